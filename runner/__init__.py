"""runner: a declarative experiment runner. `runner +experiment=lenet` trains; `import runner` is the same in Python.

Names follow the reference, so that its scripts run after replacing the package name `mindspore` by `runner`.
"""

import gc
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_collecting = gc.isenabled()
gc.disable()  # importing leaves nothing to collect, and looking for it takes 20 ms of every start

from runner import common, context, dataset, dtype, nn, ops  # noqa: E402
from runner.checkpoint import load_checkpoint, load_param_into_net, save_checkpoint  # noqa: E402
from runner.core.value import Parameter, Tensor  # noqa: E402
from runner.errors import RunnerError  # noqa: E402
from runner.seed import get_seed, set_seed  # noqa: E402
from runner.train import Model  # noqa: E402

gc.freeze()  # modules stay: no collection has to look at them again
if _collecting:
    gc.enable()

__version__ = "0.1.0"

__all__ = [
    "Model",
    "Parameter",
    "RunnerError",
    "Tensor",
    "common",
    "context",
    "dataset",
    "dtype",
    "get_seed",
    "load_checkpoint",
    "load_param_into_net",
    "nn",
    "ops",
    "run",
    "save_checkpoint",
    "set_seed",
]


def run(overrides: Sequence[str] = (), config_dir: str | Path | None = None) -> dict[str, Any]:
    """Run one experiment as the command line does, and return its summary.

    `overrides` are written as on the command line: `runner.run(["+experiment=lenet", "epochs=2"])`. Raises the
    RunnerError whose `exit_code` the command would have returned.
    """
    # Hydra comes along with this, and scripts that use only the language should not wait for it.
    summary: dict[str, Any] = importlib.import_module("runner.launch").run(overrides, config_dir)
    return summary
