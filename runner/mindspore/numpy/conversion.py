"""What all functions of `mindspore.numpy` share: element types and constants, and how operands become tensors."""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from runner import dtype as dt
from runner.core.values import Tensor, Value
from runner.dtype import bool_, float32, float64, int32, int64, uint32
from runner.errors import ConfigError
from runner.ops.array import Cast, Reshape
from runner.ops.elementwise.compare import Select
from runner.ops.indexing.gather import Gather
from runner.types import resolve_axes

# Element types and constants; `int_` and `float_` have 32 bits here.

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


# Operands: what becomes a tensor, common element types, positions of elements.

Axis = int | Sequence[int] | None


def tensor(given: Any) -> Value:
    """A tensor of a number or of nested lists, with at most 32 bits per element; tensors unchanged.

    Raises ConfigError for other operands, also for arrays of the real numpy.
    """
    if isinstance(given, Value):
        return given
    if not isinstance(given, bool | int | float | list | tuple):
        allowed = "a Tensor, a number, or nested lists of numbers"
        raise ConfigError("not an operand of mindspore.numpy", given=type(given).__name__, allowed=allowed)
    return Tensor(constant(given))


def constant(given: Any) -> np.ndarray:
    """The elements of an operand that a network computes nothing for, with at most 32 bits if it is no tensor."""
    if isinstance(given, Tensor):
        return given.asnumpy()
    elements = np.asarray(_elements(given))
    return elements.astype(narrowed(dt.of(elements.dtype)).numpy)


def _elements(given: Any) -> Any:
    """Nested lists, whose tensors are arrays."""
    if isinstance(given, list | tuple):
        return [_elements(each) for each in given]
    return given.asnumpy() if isinstance(given, Tensor) else given


def cast(x: Value, dtype: Any) -> Value:
    """x in an element type; x itself if `dtype` is None."""
    if dtype is None or x.dtype is element_type(dtype):
        return x
    return Cast(element_type(dtype))(x)


def promoted(*operands: Any) -> list[Value]:
    """Operands as tensors of one element type."""
    values = [tensor(operand) for operand in operands]
    common = reduce(promote_types, (value.dtype for value in values))
    return [cast(value, common) for value in values]


def in_floats(*operands: Any) -> list[Value]:
    """Operands as tensors of one float type: Float32 for integers."""
    values = promoted(*operands)
    return [value if value.dtype.is_float else cast(value, dt.float32) for value in values]


def axes_of(axis: Axis, ndim: int) -> tuple[int, ...]:
    """Axes, counted from the front; all for None. Raises ShapeError for one that is not there, or is there twice."""
    return resolve_axes(tuple(range(ndim)) if axis is None else axis, ndim)


def shape_of(given: Any) -> tuple[int, ...]:
    """Lengths of axes. Raises ConfigError for anything but whole numbers of at least 0."""
    lengths = (given,) if isinstance(given, int) else tuple(given)
    if not all(isinstance(length, int) and not isinstance(length, bool) and length >= 0 for length in lengths):
        raise ConfigError("a shape has whole numbers of at least 0", given=given)
    return lengths


def arranged(x: Value, arrange: Callable[[np.ndarray], np.ndarray]) -> Value:
    """The elements of x, as numpy's `arrange` arranges an array of their positions; -1 stands for 0."""
    positions = np.asarray(arrange(np.arange(x.size, dtype=np.int32).reshape(x.shape)))
    flat = Reshape((-1,))(x)
    taken: Value = Gather()(flat, Tensor(np.maximum(positions, 0).astype(np.int32)), 0)
    if positions.size and positions.min() < 0:
        taken = Select()(Tensor(positions >= 0), taken, Tensor(np.zeros((), x.dtype.numpy)))
    return taken
