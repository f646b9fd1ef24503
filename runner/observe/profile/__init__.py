"""Profiles: the record of a profiled training, its analysis, and the files."""

from runner.host.lazy import late_names

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
