"""Callbacks: the events of a training, and the callbacks of MindSpore."""

from runner.host.lazy import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
