"""runner: a declarative experiment runner. `runner +experiment=lenet` trains; `import runner` is the same in Python.

Names follow the reference, so that its scripts run after replacing the package name `mindspore` by `runner`.
"""

from runner import common, context, dataset, dtype, nn, ops
from runner.core.value import Parameter, Tensor
from runner.errors import RunnerError
from runner.seed import get_seed, set_seed
from runner.train import Model

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
    "nn",
    "ops",
    "set_seed",
]
