"""Dumps: writers, readers and comparison of files with the inputs and outputs of operators."""

from runner.host.lazy import late_names

VARIABLE = "MINDSPORE_DUMP_CONFIG"  # of the environment: the absolute path of a JSON file that requests a dump
__getattr__, __dir__, __all__ = late_names(__name__, __file__)
