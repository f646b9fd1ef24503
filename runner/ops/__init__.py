"""Operators: one class each, with its type rule, numpy kernel, gradient and lowering.

Names and attributes are those of `mindspore.ops` r1.2; `__init__.pyi` lists them.
"""

from runner.host.lazy import late_names
from runner.ops import syntax

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
syntax.fill(__getattr__)
