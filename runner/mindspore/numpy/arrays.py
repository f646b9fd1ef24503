"""Functions of `mindspore.numpy` that make tensors, arrange their elements and join them.

First what all functions of the package share: element types and constants, and how operands become tensors.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from runner import dtype as dt
from runner.core.values import Tensor, Value
from runner.dtype import bool_, float32, float64, int32, int64, uint32
from runner.errors import ConfigError, ShapeError
from runner.mindspore.ops.indexing import Unique
from runner.ops.array import Cast, Concat, ExpandDims, Identity, Reshape, Squeeze, Transpose
from runner.ops.elementwise.compare import Select
from runner.ops.indexing.gather import Gather, GatherD
from runner.ops.reduce import BroadcastTo, Tile
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


# `mindspore.numpy`: functions that arrange the elements of tensors, make tensors, and join them.


def expand_dims(a: Any, axis: int | Sequence[int]) -> Value:
    """A tensor with new axes of length 1 at these places of the result."""
    x = tensor(a)
    places = (axis,) if isinstance(axis, int) else tuple(axis)
    for place in sorted(resolve_axes(places, x.ndim + len(places))):
        x = ExpandDims()(x, place)
    return x


def squeeze(a: Any, axis: Axis = None) -> Value:
    """A tensor without those axes, which have length 1; without all such axes by default."""
    return Squeeze(() if axis is None else axis)(tensor(a))  # type: ignore[arg-type]


def _permuted(x: Value, axes: Sequence[int]) -> Value:
    return Transpose()(x, tuple(int(axis) for axis in axes))


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
    return Select()(cast(tensor(condition), dt.bool_), *promoted(x, y))


def unique(x: Any, return_inverse: bool = False) -> Any:
    """The sorted values of all elements, and with `return_inverse` the place of each element among them.

    The number of values depends on the elements, so it works outside of networks only.
    """
    values, places = Unique()(tensor(x).reshape(-1))
    assert isinstance(values, Tensor)
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
    return Tile()(x.reshape((1,) * (len(times) - x.ndim) + x.shape), times)


def broadcast_to(array: Any, shape: Any) -> Value:
    """A tensor, broadcast to a shape."""
    return BroadcastTo(shape_of(shape))(tensor(array))


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
    return GatherD()(x, axis, broadcast_to(places, shape))


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
    return Gather()(x, cast(inside, dt.int32), axis)


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


# Functions that make tensors.


def array(obj: Any, dtype: Any = None, copy: bool = True, ndmin: int = 0) -> Value:
    """A tensor of a number, of nested lists or of a tensor, with at least `ndmin` axes.

    Python's integers become Int32 and its floats Float32. Without `copy`, a tensor that fits is returned itself.
    """
    made = _copied(asarray(obj, dtype)) if copy else asarray(obj, dtype)
    return made.reshape((1,) * (ndmin - made.ndim) + made.shape) if made.ndim < ndmin else made


def asarray(a: Any, dtype: Any = None) -> Value:
    """As `array`, without a choice of axes."""
    if isinstance(a, np.ndarray):
        a = Tensor(a)
    return cast(tensor(a), dtype)


def asfarray(a: Any, dtype: Any = dt.float32) -> Value:
    """As `asarray`, in floats: Float32 where `dtype` is an integer type or None."""
    chosen = dt.float32 if dtype is None else element_type(dtype)
    return asarray(a, chosen if chosen.is_float else dt.float32)


def copy(a: Any) -> Value:
    """The same elements as another tensor."""
    return _copied(tensor(a))


def _copied(x: Value) -> Value:
    return Identity()(x)


def _made(elements: Any, dtype: Any = None) -> Tensor:
    elements = np.asarray(elements)
    chosen = narrowed(dt.of(elements.dtype)) if dtype is None else element_type(dtype)
    return Tensor(elements.astype(chosen.numpy))


def ones(shape: Any, dtype: Any = dt.float32) -> Tensor:
    """Ones."""
    return _made(np.ones(shape_of(shape)), dtype)


def zeros(shape: Any, dtype: Any = dt.float32) -> Tensor:
    """Zeros."""
    return _made(np.zeros(shape_of(shape)), dtype)


def empty(shape: Any, dtype: Any = dt.float32) -> Tensor:
    """A tensor whose elements are not specified; here they are 0."""
    return zeros(shape, dtype)


def full(shape: Any, fill_value: Any, dtype: Any = None) -> Tensor:
    """A number, or elements that broadcast to the shape."""
    return _made(np.broadcast_to(constant(fill_value), shape_of(shape)), dtype)


def _like(function: Callable[[Any, Any], Tensor], name: str, what: str) -> Callable[..., Tensor]:
    def made(prototype: Any, dtype: Any = None, shape: Any = None) -> Tensor:
        given = tensor(prototype)
        lengths = given.shape if shape is None else shape
        return function(lengths, given.dtype if dtype is None else dtype)

    made.__name__ = made.__qualname__ = name
    made.__doc__ = f"{what}, with shape and element type of the given tensor unless others are given."
    return made


empty_like = _like(empty, "empty_like", "Elements that are not specified")
ones_like = _like(ones, "ones_like", "Ones")
zeros_like = _like(zeros, "zeros_like", "Zeros")


def full_like(a: Any, fill_value: Any, dtype: Any = None, shape: Any = None) -> Tensor:
    """A number, with shape and element type of `a` unless others are given."""
    given = tensor(a)
    return full(given.shape if shape is None else shape, fill_value, given.dtype if dtype is None else dtype)


def arange(start: Any, stop: Any = None, step: Any = None, dtype: Any = None) -> Tensor:
    """start, start + step, ... below stop; with one number, from 0. Raises ConfigError when there is no element."""
    first, end = (0, start) if stop is None else (start, stop)
    numbers = [constant(number).item() if isinstance(number, Value) else number for number in (first, end)]
    elements = np.arange(numbers[0], numbers[1], 1 if step is None else step)
    if not elements.size:
        raise ConfigError("a range without elements", start=first, stop=end, step=step)
    return _made(elements, dtype)


def _spaced(function: Callable[..., np.ndarray], start: Any, stop: Any, dtype: Any, **settings: Any) -> Tensor:
    elements = function(constant(start).astype(np.float64), constant(stop).astype(np.float64), **settings)
    return _made(elements, dt.float32 if dtype is None else dtype)


def linspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False, dtype: Any = None, axis: int = 0
) -> Any:
    """`num` numbers in equal distances, without stop if `endpoint` is false; with `retstep` also the distance."""
    made = _spaced(np.linspace, start, stop, dtype, num=num, endpoint=endpoint, axis=axis)
    if not retstep:
        return made
    between = num - 1 if endpoint else num
    distance = (constant(stop).astype(np.float64) - constant(start)) / between if between > 0 else np.nan
    return made, _made(distance, dt.float32)


def logspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, base: Any = 10.0, dtype: Any = None, axis: int = 0
) -> Tensor:
    """The powers of `base` with `linspace` as exponents."""
    return _spaced(np.logspace, start, stop, dtype, num=num, endpoint=endpoint, base=base, axis=axis)


def geomspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0) -> Tensor:
    """`num` numbers from start to stop, each the same multiple of the one before."""
    return _spaced(np.geomspace, start, stop, dtype, num=num, endpoint=endpoint, axis=axis)


def eye(N: int, M: int | None = None, k: int = 0, dtype: Any = dt.float32) -> Tensor:
    """Ones on the diagonal k (above the main one if positive) of N rows and M columns, else zeros."""
    return _made(np.eye(N, M, k), dtype)


def identity(n: int, dtype: Any = dt.float32) -> Tensor:
    """The identity matrix of n rows."""
    return eye(n, dtype=dtype)


def tri(N: int, M: int | None = None, k: int = 0, dtype: Any = dt.float32) -> Tensor:
    """Ones on and below the diagonal k, else zeros."""
    return _made(np.tri(N, M, k), dtype)


def tril(m: Any, k: int = 0) -> Value:
    """Matrices (the last two axes) with zeros above the diagonal k."""
    x = tensor(m)
    return arranged(x, lambda positions: np.tril(positions + 1, k) - 1)


def triu(m: Any, k: int = 0) -> Value:
    """Matrices (the last two axes) with zeros below the diagonal k."""
    x = tensor(m)
    return arranged(x, lambda positions: np.triu(positions + 1, k) - 1)


def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Value:
    """The diagonals of the matrices that the two axes make, as the last axis."""
    return arranged(tensor(a), lambda positions: np.diagonal(positions, offset, axis1, axis2))


def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Value:
    """The sums of diagonals."""
    x = tensor(a)
    return cast(diagonal(cast(x, dt.float32), offset, axis1, axis2).sum(-1), x.dtype if dtype is None else dtype)


def diag(v: Any, k: int = 0) -> Value:
    """The matrix with a vector as diagonal k, or the diagonal k of a matrix."""
    x = tensor(v)
    return arranged(x, lambda positions: np.diag(positions + 1, k) - 1 if x.ndim == 1 else np.diag(positions, k))


def diagflat(v: Any, k: int = 0) -> Value:
    """The matrix with all elements as diagonal k."""
    return arranged(tensor(v), lambda positions: np.diagflat(positions + 1, k) - 1)


def diag_indices(n: int, ndim: int = 2) -> tuple[Tensor, ...]:
    """The indices of the main diagonal of a tensor with `ndim` axes of length n."""
    return tuple(arange(n) for _ in range(ndim))


def meshgrid(*xi: Any, sparse: bool = False, indexing: str = "xy") -> list[Value]:
    """Vectors, broadcast against each other; with "xy" the second one runs along the first axis."""
    vectors = [x.reshape(-1) for x in map(tensor, xi)]
    lengths = [x.size for x in vectors]
    if indexing not in ("xy", "ij"):
        raise ConfigError("no such indexing", given=indexing, allowed="xy, ij")
    order = list(range(len(vectors)))
    if indexing == "xy" and len(order) > 1:
        order[:2] = 1, 0
    grids = []
    for place, x in zip(order, vectors, strict=True):
        shape = [1] * len(order)
        shape[place] = x.size
        full_shape = tuple(lengths[order.index(axis)] for axis in range(len(order)))
        grid = x.reshape(tuple(shape))
        grids.append(grid if sparse else cast(grid * ones(full_shape, x.dtype), x.dtype))
    return grids


class _Grid:
    """`mgrid[0:5, 0:3]` and `ogrid[...]`: coordinates of the points of a grid, as numpy's."""

    def __init__(self, grid: Any, what: str) -> None:
        self._grid, self.__doc__ = grid, what

    def __getitem__(self, key: Any) -> Any:
        made = self._grid[key]
        return [_made(each) for each in made] if isinstance(made, list | tuple) else _made(made)


mgrid = _Grid(np.mgrid, "Coordinates of all points of a grid: `mgrid[0:5, 0:3]`.")
ogrid = _Grid(np.ogrid, "Coordinates along each axis of a grid, which broadcast: `ogrid[0:5, 0:3]`.")


def ix_(*args: Any) -> tuple[Value, ...]:
    """Vectors in shapes that broadcast against each other, for `x[ix_(rows, columns)]`."""
    return tuple(meshgrid(*args, sparse=True, indexing="ij"))


def vander(x: Any, N: int | None = None, increasing: bool = False) -> Value:
    """The powers of a vector as columns, the highest one first unless `increasing`."""
    vector = tensor(x)
    exponents = np.arange(vector.size if N is None else N)
    powers = _made(exponents if increasing else exponents[::-1], dt.float32)
    (base,) = in_floats(vector)
    return cast(base.reshape(-1, 1) ** powers, vector.dtype)


def indices(dimensions: Any, dtype: Any = dt.int32, sparse: bool = False) -> list[Value]:
    """The index along each axis of every place of a tensor; with `sparse` in shapes that broadcast."""
    return meshgrid(*(arange(length, dtype=dtype) for length in dimensions), sparse=sparse, indexing="ij")


# Functions that join tensors.


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
    return Concat(axis)(tuple(values)) if len(values) > 1 else values[0]


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
