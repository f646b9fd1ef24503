"""`mindspore.numpy`: functions that join tensors."""

from collections.abc import Sequence
from typing import Any

from runner.core.value import Value
from runner.errors import ShapeError
from runner.mindspore.numpy.array_ops import atleast_1d, atleast_2d, atleast_3d, expand_dims
from runner.mindspore.numpy.conversion import promoted, tensor
from runner.ops.array import Concat

__all__ = ["append", "column_stack", "concatenate", "dstack", "hstack", "stack", "vstack"]


def _tensors(given: Any) -> Sequence[Value]:
    """The tensors of a list, or along the first axis of one tensor. Raises ShapeError for none."""
    values = list(given) if isinstance(given, list | tuple | Value) else []
    if not values:
        raise ShapeError("needs at least one tensor", given=given)
    return promoted(*values)


def concatenate(arrays: Any, axis: int | None = 0) -> Value:
    """Tensors, one after the other along an axis; without an axis, all their elements in order."""
    values = _tensors(arrays)
    if axis is None:
        values, axis = [value.reshape(-1) for value in values], 0
    joined: Value = Concat(axis)(tuple(values)) if len(values) > 1 else values[0]
    return joined


def append(arr: Any, values: Any, axis: int | None = None) -> Value:
    """`values` after a tensor along an axis; without an axis, all their elements in order."""
    return concatenate((tensor(arr), tensor(values)), axis)


def stack(arrays: Any, axis: int = 0) -> Value:
    """Tensors of one shape along a new axis of the result."""
    return concatenate([expand_dims(value, axis) for value in _tensors(arrays)], axis)


def column_stack(tup: Any) -> Value:
    """Vectors as the columns of a matrix; matrices are joined along the second axis."""
    values = _tensors(tup)
    return concatenate([x if x.ndim > 1 else x.reshape(-1, 1) for x in values], 1)


def vstack(tup: Any) -> Value:
    """Tensors along the first axis; vectors are rows."""
    return concatenate([atleast_2d(value) for value in _tensors(tup)], 0)


def hstack(tup: Any) -> Value:
    """Tensors along the second axis; vectors along their only one."""
    values = [atleast_1d(value) for value in _tensors(tup)]
    return concatenate(values, 0 if values[0].ndim == 1 else 1)


def dstack(tup: Any) -> Value:
    """Tensors along the third axis."""
    return concatenate([atleast_3d(value) for value in _tensors(tup)], 2)
