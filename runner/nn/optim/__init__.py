"""Optimizers: the names of `mindspore.nn.optim` r1.2, listed in `__init__.pyi`."""

from runner.host.lazy import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
