"""Operands of `mindspore.numpy`: what becomes a tensor, common element types, positions of elements."""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from runner import dtype as dt
from runner.core.value import Tensor, Value
from runner.errors import ConfigError
from runner.mindspore.numpy.dtypes import element_type, narrowed, promote_types
from runner.ops.array import Cast, Reshape
from runner.ops.compare import Select
from runner.ops.rows import Gather
from runner.types import resolve_axes

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
    result: Value = Cast(element_type(dtype))(x)
    return result


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
