"""Dumps: what operators take and return, as files, and the readers of these files."""

from runner.host.lazy import late_names

VARIABLE = "MINDSPORE_DUMP_CONFIG"  # of the environment: the absolute path of a JSON file that requests a dump
__getattr__, __dir__, __all__ = late_names(__name__, __file__)
