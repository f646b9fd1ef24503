"""Operators: one class each, with its type rule, numpy kernel, gradient and lowering.

Names and attributes are those of `mindspore.ops` r1.2; `__init__.pyi` lists them.
"""

from typing import Any

from runner.core.values import OPERATORS
from runner.host.lazy import late_names
from runner.ops import array, matrices, numpy_functions  # noqa: F401
from runner.ops.elementwise import arithmetic, compare  # noqa: F401
from runner.ops.indexing import slices  # noqa: F401  for `x + y`, `x[0]`

__getattr__, __dir__, __all__ = late_names(__name__, __file__)


def _late(name: str) -> Any:
    """An operator whose module is loaded when a value first needs it."""
    return lambda *operands: __getattr__(name)()(*operands)


OPERATORS["class"] = __getattr__
OPERATORS.update({name: _late(name) for name in ("StridedSlice", "FloorDiv", "FloorMod", "LogicalNot")})
