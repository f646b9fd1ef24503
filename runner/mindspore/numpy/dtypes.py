"""Element types and constants of `mindspore.numpy`; `int_` and `float_` have 32 bits there."""

from typing import Any

import numpy as np

from runner import dtype as dt
from runner.dtype import bool_, float16, float32, float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64
from runner.errors import ConfigError

__all__ = [
    "bool_",
    "float16",
    "float32",
    "float64",
    "float_",
    "int8",
    "int16",
    "int32",
    "int64",
    "int_",
    "promote_types",
    "uint",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]

int_, uint, float_ = int32, uint32, float32
inf = PINF = float("inf")
NINF = float("-inf")
nan = float("nan")
pi = float(np.pi)

_SHORT = {"int": int_, "uint": uint, "float": float_, "bool": bool_, int: int_, float: float_, bool: bool_}
_NARROWER = {float64: float32, int64: int32}


def element_type(given: Any) -> dt.DType:
    """The element type of a name, a type of Python or numpy, or of this module. Raises ConfigError for others."""
    if not isinstance(given, dt.Type | np.dtype):
        try:
            given = _SHORT.get(given.lower() if isinstance(given, str) else given, given)
        except TypeError:
            raise ConfigError("not an element type", given=given) from None
    return dt.of(given)


def narrowed(given: dt.DType) -> dt.DType:
    """32 bits for what has 64: the types of Python's numbers and lists."""
    return _NARROWER.get(given, given)


def promote_types(type1: Any, type2: Any) -> dt.DType:
    """The element type of an operation of two: that of the larger float, or an integer that holds both.

    Unlike numpy, an integer never widens a float.
    """
    first, second = element_type(type1), element_type(type2)
    if first.is_float != second.is_float:
        return first if first.is_float else second
    return dt.of(np.promote_types(first.numpy, second.numpy))
