"""runner: a declarative experiment runner. `runner +experiment=lenet` trains; `import runner` is the same in Python.

Names follow the reference, so that its scripts run after replacing the package name `mindspore` by `runner`.
"""

import gc
import importlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.startup import late_names, lazy_import, uncollected

with uncollected():
    from runner import common, context, dataset, dtype, nn, ops
    from runner.core.value import Parameter, Tensor
    from runner.errors import RunnerError
    from runner.prints.file import parse_print
    from runner.seed import get_seed, set_seed
    from runner.train import Model
    from runner.train.loss_scale_manager import DynamicLossScaleManager, FixedLossScaleManager, LossScaleManager

    gc.freeze()  # modules stay: no collection has to look at them again

if TYPE_CHECKING:
    from runner.checkpoint import load_checkpoint, load_param_into_net, save_checkpoint
else:
    __getattr__, __dir__ = late_names(__name__, {"checkpoint": "load_checkpoint load_param_into_net save_checkpoint"})

_dumps = lazy_import("runner.train.dump")  # few scripts need it, or the next one
_system = lazy_import("runner.system")
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
    summary: dict[str, Any] = importlib.import_module("runner.launch").run(overrides, config_dir)
    return summary


def dump(path: str | Path, kernels: Sequence[str] | None = None, **options: Any) -> AbstractContextManager[Any]:
    """Dump what the cells take and make that are called in a `with` block, and the models that are trained in it.

    `with runner.dump("/tmp/before", kernels=["Conv2D"]): network(x)`; see `runner.train.dump.dump` for the options
    (net_name, iteration, input_output, trans_flag) and what it raises.
    """
    made: AbstractContextManager[Any] = _dumps.dump(path, kernels, **options)
    return made


def initialize_system(name: str | None = None) -> dict[str, float]:
    """Prepare the mode and the device of the context, so that no training waits for that; seconds of each phase.

    See `runner.system.initialize_system` for the phases and for what it raises.
    """
    took: dict[str, float] = _system.initialize_system(name)
    return took


def shutdown_system(name: str | None = None) -> None:
    """Forget what `initialize_system` has prepared."""
    _system.shutdown_system(name)
