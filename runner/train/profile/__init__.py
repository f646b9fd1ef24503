"""Profiled trainings: steps with a clock, and the profiler of models."""

from runner.host.lazy import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
