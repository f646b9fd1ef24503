"""An index of a value, `x[key]`, as one item for each axis."""

from collections.abc import Iterator
from types import EllipsisType
from typing import Any

import numpy as np

from runner import dtype as dt
from runner.core.operators import current
from runner.core.source import user_line
from runner.core.values import Parameter, Symbol, Tensor, Value
from runner.errors import RunnerError, ShapeError
from runner.types import TensorType

Item = int | slice | None | np.ndarray | Value  # None is a new axis; arrays are of Int64, values of ints


def as_items(key: object, x: Value) -> list[Item]:
    """The index with one item for each axis of x, and None for each new axis; ints count from 0.

    A Bool array is replaced by one array of positions for each of its axes. Raises ShapeError for what is no index,
    for too many indices, and for ints out of range.
    """
    try:
        return _items(key, x)
    except RunnerError as error:
        raise located(error, x) from None


def located(error: RunnerError, x: Value) -> RunnerError:
    """An error with the operand, the scope and the line of the user's code."""
    return error.add(operand=x.type, scope=current().current_scope(), line=user_line(current().source()))


def _items(key: object, x: Value) -> list[Item]:
    given = list(key) if isinstance(key, tuple) else [key]
    given = [_checked(item) for item in given]
    axes = sum(_axes(item) for item in given)
    ellipses = [k for k, item in enumerate(given) if item is Ellipsis]
    if axes > x.ndim or len(ellipses) > 1:
        raise ShapeError("too many indices", given=len(given), axes=x.ndim)
    place = ellipses[0] if ellipses else len(given)
    given[place : place + 1] = [slice(None)] * (x.ndim - axes)
    return list(_by_axis(given, x))


def _checked(item: Any) -> Any:
    """An item as None, int, slice, `...`, array of ints or Bool, or value; a list as an array."""
    if isinstance(item, bool | np.bool_):
        if item:
            return None  # as in numpy: x[True] is x[None]
        raise ShapeError("nothing is selected", given=item, repair="an index that selects at least one element")
    if isinstance(item, int | np.integer | slice | EllipsisType | None):
        return item
    if isinstance(item, list) and any(isinstance(element, Value) for element in item):
        repair = "a tensor of them, ops.Stack()([...])"
        raise ShapeError("an index has no list of tensors", given=_name(item), repair=repair)
    array: Any = item if isinstance(item, Value) else _array(item)
    kind = array.dtype.numpy.kind if isinstance(array, Value) else array.dtype.kind
    if kind not in "iub" or array.size == 0:
        raise _no_index(item)
    if kind == "b":
        return _known_mask(array)
    return array if isinstance(array, Value) else array.astype(np.int64)


def _array(item: Any) -> np.ndarray:
    if not isinstance(item, list | np.ndarray):
        raise _no_index(item)
    try:
        return np.asarray(item)
    except ValueError:  # lists of different lengths
        raise _no_index(item) from None


def _no_index(item: Any) -> ShapeError:
    allowed = "ints, slices, ..., None, and arrays of ints or Bool"
    given = f"{_name(item)} of {item.dtype}" if hasattr(item, "dtype") else _name(item)
    repair = "index.astype(dtype.int32)" if hasattr(item, "dtype") else None
    return ShapeError("not an index of a tensor", given=given, allowed=allowed, repair=repair)


def _name(item: object) -> str:
    return type(item).__name__


def _known_mask(mask: Any) -> np.ndarray:
    """The elements of a Bool array. Raises ShapeError for a value that is only known when the graph runs."""
    if isinstance(mask, np.ndarray):
        return mask
    handle = mask if isinstance(mask, Tensor) and not isinstance(mask, Parameter) else current().lift(mask)
    if isinstance(handle, Symbol):
        what = "graph mode cannot select by a condition that is only known when the graph runs"
        why = "the number of elements would differ from run to run"
        raise ShapeError(what, given=mask.type, reason=why, repair="ops.Select, or mode=pynative")
    return np.asarray(mask.asnumpy())


def _axes(item: Any) -> int:
    """The number of axes of x that an item is for."""
    if item is None or item is Ellipsis:
        return 0
    return item.ndim if isinstance(item, np.ndarray) and item.dtype.kind == "b" else 1


def _by_axis(given: list[Any], x: Value) -> Iterator[Item]:
    axis = 0
    for item in given:
        length = 0 if item is None else x.shape[axis]
        if isinstance(item, np.ndarray) and item.dtype.kind == "b":
            yield from _positions(item, x.type, axis)
        elif isinstance(item, np.ndarray):
            yield _from_zero(item, length)
        elif item is None or isinstance(item, slice | Value):
            yield item
        else:
            yield int(_from_zero(np.asarray(item), length))
        axis += _axes(item)


def _from_zero(item: np.ndarray, length: int) -> np.ndarray:
    outside = item[(item < -length) | (item >= length)]
    if outside.size:
        raise ShapeError("index out of range", given=int(outside[0]), allowed=f"{-length} to {length - 1}")
    return np.where(item < 0, item + length, item).astype(np.int64)


def _positions(mask: np.ndarray, x: TensorType, axis: int) -> tuple[np.ndarray, ...]:
    part = x.shape[axis : axis + mask.ndim]
    if mask.shape != part:
        raise ShapeError("a condition has the shape of the axes that it selects from", given=mask.shape, axes=part)
    if not mask.any():
        raise ShapeError("nothing is selected", given=f"{dt.bool_}{list(mask.shape)} without a true element")
    return tuple(positions.astype(np.int64) for positions in np.nonzero(mask))
