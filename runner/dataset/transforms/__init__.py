"""Transforms of values: those of MindSpore in `c_transforms`, and the base classes of custom ones."""

from runner.host.lazy import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
