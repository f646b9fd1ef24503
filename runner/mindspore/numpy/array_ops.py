"""`mindspore.numpy`: functions that arrange elements."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from runner import dtype as dt
from runner.core.value import Tensor, Value
from runner.errors import ShapeError
from runner.mindspore.numpy.conversion import Axis, arranged, axes_of, cast, promoted, shape_of, tensor
from runner.ops.array import ExpandDims, Transpose
from runner.ops.compare import Select
from runner.ops.gather_elements import GatherD
from runner.ops.lookup import Unique
from runner.ops.reduce import BroadcastTo
from runner.ops.rows import Gather
from runner.ops.split import Squeeze, Tile
from runner.types import resolve_axes

__all__ = [
    "array_split",
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "broadcast_arrays",
    "broadcast_to",
    "dsplit",
    "expand_dims",
    "flip",
    "fliplr",
    "flipud",
    "hsplit",
    "moveaxis",
    "ravel",
    "repeat",
    "reshape",
    "roll",
    "rollaxis",
    "rot90",
    "select",
    "split",
    "squeeze",
    "swapaxes",
    "take",
    "take_along_axis",
    "tile",
    "transpose",
    "unique",
    "vsplit",
    "where",
]


def expand_dims(a: Any, axis: int | Sequence[int]) -> Value:
    """A tensor with new axes of length 1 at these places of the result."""
    x = tensor(a)
    places = (axis,) if isinstance(axis, int) else tuple(axis)
    for place in sorted(resolve_axes(places, x.ndim + len(places))):
        x = ExpandDims()(x, place)
    return x


def squeeze(a: Any, axis: Axis = None) -> Value:
    """A tensor without those axes, which have length 1; without all such axes by default."""
    removed: Value = Squeeze(() if axis is None else axis)(tensor(a))  # type: ignore[arg-type]
    return removed


def _permuted(x: Value, axes: Sequence[int]) -> Value:
    result: Value = Transpose()(x, tuple(int(axis) for axis in axes))
    return result


def transpose(a: Any, axes: Sequence[int] | None = None) -> Value:
    """A tensor with its axes in this order, by default reversed."""
    x = tensor(a)
    return _permuted(x, tuple(reversed(range(x.ndim))) if axes is None else axes)


def _order(x: Value, move: Callable[[np.ndarray], np.ndarray]) -> Sequence[int]:
    """The axes of x in the order in which numpy's `move` places them."""
    return move(np.empty(tuple(range(x.ndim)))).shape


def rollaxis(x: Any, axis: int, start: int = 0) -> Value:
    """A tensor whose axis stands before the axis `start`."""
    given = tensor(x)
    return _permuted(given, _order(given, lambda axes: np.rollaxis(axes, axis, start)))


def swapaxes(x: Any, axis1: int, axis2: int) -> Value:
    """A tensor with two axes exchanged."""
    return tensor(x).swapaxes(axis1, axis2)


def moveaxis(a: Any, source: Any, destination: Any) -> Value:
    """A tensor whose axes `source` stand at `destination`."""
    x = tensor(a)
    return _permuted(x, _order(x, lambda axes: np.moveaxis(axes, source, destination)))


def reshape(x: Any, new_shape: Any) -> Value:
    """The same elements in another shape; one length may be -1."""
    return tensor(x).reshape(new_shape)


def ravel(x: Any) -> Value:
    """All elements in one axis."""
    return tensor(x).reshape(-1)


def _at_least(ndim: int, arrays: tuple[Any, ...]) -> Any:
    made = []
    for x in map(tensor, arrays):
        missing = max(ndim - x.ndim, 0)
        # As in numpy, a matrix has its third axis at the end, and a vector one axis at each end.
        after = 1 if ndim == 3 and 0 < x.ndim < 3 else 0
        made.append(x.reshape((1,) * (missing - after) + x.shape + (1,) * after) if missing else x)
    return made[0] if len(made) == 1 else made


def atleast_1d(*arys: Any) -> Any:
    """Tensors with at least one axis; a list of them for several."""
    return _at_least(1, arys)


def atleast_2d(*arys: Any) -> Any:
    """Tensors with at least two axes, new ones in front; a list of them for several."""
    return _at_least(2, arys)


def atleast_3d(*arys: Any) -> Any:
    """Tensors with at least three axes: [N] becomes [1, N, 1] and [M, N] becomes [M, N, 1]."""
    return _at_least(3, arys)


def where(condition: Any, x: Any = None, y: Any = None) -> Value:
    """x where the condition holds, else y; the three broadcast. Raises ShapeError without x and y."""
    if x is None or y is None:
        raise ShapeError("the places of true elements have no static shape", repair="pass x and y")
    chosen: Value = Select()(cast(tensor(condition), dt.bool_), *promoted(x, y))
    return chosen


def unique(x: Any, return_inverse: bool = False) -> Any:
    """The sorted values of all elements, and with `return_inverse` the place of each element among them.

    The number of values depends on the elements, so it works outside of networks only.
    """
    values, places = Unique()(tensor(x).reshape(-1))
    order = np.argsort(values.asnumpy(), kind="stable")
    rank = Tensor(np.argsort(order).astype(np.int32))
    ordered = Gather()(values, Tensor(order.astype(np.int32)), 0)
    return (ordered, Gather()(rank, places, 0).reshape(tensor(x).shape)) if return_inverse else ordered


def roll(a: Any, shift: Any, axis: Axis = None) -> Value:
    """A tensor whose elements are moved along the axes by `shift`; what leaves at one end enters at the other."""
    return arranged(tensor(a), lambda positions: np.roll(positions, shift, axis))


def tile(a: Any, reps: Any) -> Value:
    """A tensor, repeated `reps` times along each axis."""
    x, times = tensor(a), shape_of(reps)
    times = (1,) * (x.ndim - len(times)) + times
    result: Value = Tile()(x.reshape((1,) * (len(times) - x.ndim) + x.shape), times)
    return result


def broadcast_to(array: Any, shape: Any) -> Value:
    """A tensor, broadcast to a shape."""
    result: Value = BroadcastTo(shape_of(shape))(tensor(array))
    return result


def broadcast_arrays(*args: Any) -> list[Value]:
    """Tensors, broadcast against each other."""
    values = [tensor(each) for each in args]
    shape = np.broadcast_shapes(*(value.shape for value in values))
    return [broadcast_to(value, shape) for value in values]


def array_split(x: Any, indices_or_sections: Any, axis: int = 0) -> tuple[Value, ...]:
    """Parts along an axis: so many, of lengths that differ by at most 1, or cut at these indices."""
    given = tensor(x)
    cuts = indices_or_sections if isinstance(indices_or_sections, int) else list(indices_or_sections)
    (axis,) = resolve_axes(axis, given.ndim)
    parts = np.array_split(np.arange(given.shape[axis]), cuts)
    before = (slice(None),) * axis
    return tuple(given[(*before, slice(int(part[0]), int(part[-1]) + 1))] for part in parts if part.size)


def split(x: Any, indices_or_sections: Any, axis: int = 0) -> tuple[Value, ...]:
    """Parts along an axis: so many, of equal length, or cut at these indices. Raises ShapeError for other lengths."""
    length = tensor(x).shape[axis]
    if isinstance(indices_or_sections, int) and length % indices_or_sections:
        raise ShapeError("parts of equal length need a divisor", length=length, parts=indices_or_sections)
    return array_split(x, indices_or_sections, axis)


def vsplit(x: Any, indices_or_sections: Any) -> tuple[Value, ...]:
    """`split` along the first axis."""
    return split(x, indices_or_sections, 0)


def hsplit(x: Any, indices_or_sections: Any) -> tuple[Value, ...]:
    """`split` along the second axis; that of vectors along their only one."""
    return split(x, indices_or_sections, min(tensor(x).ndim - 1, 1))


def dsplit(x: Any, indices_or_sections: Any) -> tuple[Value, ...]:
    """`split` along the third axis."""
    return split(x, indices_or_sections, 2)


def flip(m: Any, axis: Axis = None) -> Value:
    """A tensor with the elements along the axes in reverse order; all axes by default."""
    x = tensor(m)
    axes = axes_of(axis, x.ndim)
    return arranged(x, lambda positions: np.flip(positions, axes))


def flipud(m: Any) -> Value:
    """`flip` along the first axis."""
    return flip(m, 0)


def fliplr(m: Any) -> Value:
    """`flip` along the second axis."""
    return flip(m, 1)


def rot90(a: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Value:
    """A tensor, rotated k times by 90 degrees from the first of the two axes to the second."""
    return arranged(tensor(a), lambda positions: np.rot90(positions, k, axes))


def take_along_axis(arr: Any, indices: Any, axis: int | None) -> Value:
    """The element of each line along the axis at the given place; without an axis, of all elements in order."""
    x, places = tensor(arr), tensor(indices)
    if axis is None:
        return take_along_axis(x.reshape(-1), places.reshape(-1), 0)
    (axis,) = resolve_axes(axis, x.ndim)
    shape = (*x.shape[:axis], places.shape[axis], *x.shape[axis + 1 :])
    taken: Value = GatherD()(x, axis, broadcast_to(places, shape))
    return taken


def take(a: Any, indices: Any, axis: int | None = None, mode: str = "clip") -> Value:
    """The elements of these numbers along an axis; without an axis, of all elements in order.

    A number outside is limited ("clip") or counted round ("wrap"). Raises ShapeError for another mode.
    """
    x, places = tensor(a), tensor(indices)
    if axis is None:
        x, axis = x.reshape(-1), 0
    length = x.shape[axis]
    if mode not in ("clip", "wrap"):
        raise ShapeError("no such mode", mode=mode, allowed="clip, wrap")
    inside = places % length if mode == "wrap" else places.clip(0, length - 1)
    taken: Value = Gather()(x, cast(inside, dt.int32), axis)
    return taken


def repeat(a: Any, repeats: Any, axis: int | None = None) -> Value:
    """Every element along the axis as often as `repeats` has it; without an axis, of all elements in order."""
    times = repeats if isinstance(repeats, int) else list(repeats)
    return arranged(tensor(a), lambda positions: np.repeat(positions, times, axis))


def select(condlist: Any, choicelist: Any, default: Any = 0) -> Value:
    """The elements of the first choice whose condition holds, else of `default`."""
    conditions, choices = list(condlist), list(choicelist)
    if len(conditions) != len(choices) or not conditions:
        raise ShapeError("every condition has a choice", conditions=len(conditions), choices=len(choices))
    *values, result = promoted(*choices, default)
    for condition, value in zip(reversed(conditions), reversed(values), strict=True):
        result = where(condition, value, result)
    return result
