"""runner: a declarative experiment runner. `runner +experiment=lenet` trains; `import runner` is the same in Python.

Names follow the reference, so that its scripts run after replacing the package name `mindspore` by `runner`.
"""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.host.lazy import late_names

if TYPE_CHECKING:
    from runner import common, context, dataset, dtype, nn, ops
    from runner.common import Parameter, Tensor
    from runner.errors import RunnerError
    from runner.host.seed import get_seed, set_seed
    from runner.ops.print.file import parse_print
    from runner.train import Model
    from runner.train.checkpoint import load_checkpoint, load_param_into_net, save_checkpoint
    from runner.train.device_setup import initialize_system, shutdown_system
    from runner.train.dump import dump
    from runner.train.loss_scale_manager import DynamicLossScaleManager, FixedLossScaleManager, LossScaleManager
else:  # a shell that asks what can stand next on a line waits for none of them
    __getattr__, __dir__ = late_names(
        __name__,
        {
            "checkpoint": "load_checkpoint load_param_into_net save_checkpoint",
            "common": "Parameter Tensor",
            "context": "",
            "dataset": "",
            "dtype": "",
            "errors": "RunnerError",
            "nn": "",
            "ops": "",
            "prints.file": "parse_print",
            "seed": "get_seed set_seed",
            "system": "initialize_system shutdown_system",
            "train": "Model",
            "train.dump": "dump",
            "train.loss_scale_manager": "DynamicLossScaleManager FixedLossScaleManager LossScaleManager",
        },
    )

__version__ = "0.1.0"

__all__ = [
    "DynamicLossScaleManager",
    "FixedLossScaleManager",
    "LossScaleManager",
    "Model",
    "Parameter",
    "RunnerError",
    "Tensor",
    "common",
    "context",
    "dataset",
    "dtype",
    "dump",
    "get_seed",
    "initialize_system",
    "load_checkpoint",
    "load_param_into_net",
    "nn",
    "ops",
    "parse_print",
    "run",
    "save_checkpoint",
    "set_seed",
    "shutdown_system",
]


def run(overrides: Sequence[str] = (), config_dir: str | Path | None = None) -> dict[str, Any]:
    """Run one experiment as the command line does, and return its summary.

    `overrides` are written as on the command line: `runner.run(["+experiment=lenet", "epochs=2"])`. Raises the
    RunnerError whose `exit_code` the command would have returned.
    """
    # Hydra comes along with this, and scripts that use only the language should not wait for it.
    summary: dict[str, Any] = importlib.import_module("runner.experiment.launch").run(overrides, config_dir)
    return summary
