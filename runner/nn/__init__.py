"""Layers, losses, optimizers, schedules, metrics: the names of `mindspore.nn` r1.2, listed in `__init__.pyi`."""

from runner.host.lazy import late_names
from runner.nn import steps  # noqa: F401  registers the executors of each mode

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
