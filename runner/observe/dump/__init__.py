"""Dumps: what operators take and return, as files, and the readers of these files."""

from runner.host.lazy import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
