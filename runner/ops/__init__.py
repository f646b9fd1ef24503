"""Operators: one class each, with its type rule, numpy kernel, gradient and lowering.

Names and attributes are those of `mindspore.ops` r1.2; `__init__.pyi` lists them.
"""

from runner.core.value import OPERATORS
from runner.host.lazy import late_names
from runner.ops import array, compare, elementwise, identity, matmul, subscript  # noqa: F401  registers the operators of tensors (`x + y`)

__getattr__, __dir__, __all__ = late_names(__name__, __file__)
OPERATORS["StridedSlice"] = lambda *operands: __getattr__("StridedSlice")()(*operands)  # loads at the first slice
