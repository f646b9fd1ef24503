"""The part of the reference's `ops.functional` that is about Python values: numbers, tuples, dictionaries, types.

Networks compute with them while they are traced, so they leave no operators in graphs.
"""

import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

from runner import dtype as dt
from runner.core.value import Tensor, Value
from runner.errors import ConfigError
from runner.ops.array import Cast
from runner.ops.static_values import IsInstance
from runner.types import Shape, resolve_axes

__all__ = [
    "array_to_scalar",
    "bool_and",
    "bool_eq",
    "bool_not",
    "bool_or",
    "dict_getitem",
    "dict_setitem",
    "hastype",
    "in_dict",
    "is_",
    "is_not",
    "list_equal",
    "list_getitem",
    "list_len",
    "list_setitem",
    "make_dict",
    "make_list",
    "make_range",
    "make_slice",
    "make_tuple",
    "mixed_precision_cast",
    "not_in_dict",
    "reduced_shape",
    "scalar_add",
    "scalar_div",
    "scalar_eq",
    "scalar_floordiv",
    "scalar_ge",
    "scalar_gt",
    "scalar_le",
    "scalar_log",
    "scalar_lt",
    "scalar_mod",
    "scalar_mul",
    "scalar_ne",
    "scalar_pow",
    "scalar_sub",
    "scalar_uadd",
    "scalar_usub",
    "shape_mul",
    "string_concat",
    "string_eq",
    "tuple_div",
    "tuple_equal",
    "tuple_getitem",
    "tuple_len",
    "tuple_reversed",
    "tuple_setitem",
    "typeof",
]

bool_eq = operator.eq
bool_not = operator.not_
dict_getitem = operator.getitem
is_ = operator.is_
is_not = operator.is_not
list_equal = operator.eq
list_getitem = operator.getitem
list_len = len
make_slice = slice
scalar_add = operator.add
scalar_div = operator.truediv
scalar_eq = operator.eq
scalar_floordiv = operator.floordiv
scalar_ge = operator.ge
scalar_gt = operator.gt
scalar_le = operator.le
scalar_log = math.log
scalar_lt = operator.lt
scalar_mod = operator.mod
scalar_mul = operator.mul
scalar_ne = operator.ne
scalar_pow = operator.pow
scalar_sub = operator.sub
scalar_uadd = operator.pos
scalar_usub = operator.neg
shape_mul = math.prod
string_concat = operator.add
string_eq = operator.eq
tuple_equal = operator.eq
tuple_getitem = operator.getitem
tuple_len = len


def typeof(x: Any) -> dt.Type:
    """The type of a value: `Tensor[Float32]`, `Int64` for a whole number of Python, `String`, ..."""
    return dt.get_py_obj_dtype(x)


def hastype(x: Any, type_: Any) -> bool:
    """Whether the type of a value is an element type, or a class of Python."""
    return IsInstance()(x, type_)


def array_to_scalar(x: Tensor) -> bool | int | float:
    """The number of a tensor of one element. Raises ConfigError in graph mode, which has no numbers yet."""
    number: bool | int | float = x.asnumpy().item()
    return number


def mixed_precision_cast(dst_type: dt.DType, x: Any) -> Any:
    """Floats cast to an element type, also in tuples and dictionaries; other values unchanged."""
    if isinstance(x, list | tuple):
        return tuple(mixed_precision_cast(dst_type, one) for one in x)
    if isinstance(x, Mapping):
        return {key: mixed_precision_cast(dst_type, one) for key, one in x.items()}
    return Cast(dst_type)(x) if isinstance(x, Value) and x.dtype.is_float else x


def reduced_shape(x_shape: Shape, axis: Any) -> Shape:
    """The shape of a reduction that keeps its axes with length 1."""
    axes = resolve_axes(axis, len(x_shape))
    return tuple(1 if k in axes else n for k, n in enumerate(x_shape))


def bool_and(x: bool, y: bool) -> bool:
    """x and y."""
    return x and y


def bool_or(x: bool, y: bool) -> bool:
    """x or y."""
    return x or y


def make_tuple(*values: Any) -> tuple[Any, ...]:
    """A tuple of values."""
    return values


def make_list(*values: Any) -> list[Any]:
    """A list of values."""
    return list(values)


def make_dict(keys: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    """A dictionary of keys and values."""
    return dict(zip(keys, values, strict=True))


def make_range(*limits: int) -> tuple[int, ...]:
    """The numbers of `range`, as a tuple."""
    return tuple(range(*limits))


def tuple_div(x: Sequence[int], y: Sequence[int]) -> tuple[int, ...]:
    """The quotients of whole numbers. Raises ConfigError when one is not whole."""
    if any(a % b for a, b in zip(x, y, strict=True)):
        raise ConfigError("the quotients must be whole numbers", x=x, y=y)
    return tuple(a // b for a, b in zip(x, y, strict=True))


def tuple_reversed(x: Sequence[Any]) -> tuple[Any, ...]:
    """The elements in reverse order."""
    return tuple(reversed(x))


def tuple_setitem(x: Sequence[Any], index: int, value: Any) -> tuple[Any, ...]:
    """A tuple with one element replaced."""
    return tuple(list_setitem(x, index, value))


def list_setitem(x: Sequence[Any], index: int, value: Any) -> list[Any]:
    """A list with one element replaced."""
    changed = list(x)
    changed[index] = value
    return changed


def dict_setitem(x: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    """A dictionary with one value replaced or added."""
    return {**x, key: value}


def in_dict(key: str, x: Mapping[str, Any]) -> bool:
    """Whether a dictionary has a key."""
    return key in x


def not_in_dict(key: str, x: Mapping[str, Any]) -> bool:
    """Whether a dictionary does not have a key."""
    return key not in x
