"""`mindspore.numpy`: functions that make tensors."""

from collections.abc import Callable
from typing import Any

import numpy as np

from runner import dtype as dt
from runner.core.value import Tensor, Value
from runner.errors import ConfigError
from runner.mindspore.numpy.conversion import arranged, cast, constant, in_floats, shape_of, tensor
from runner.mindspore.numpy.dtypes import element_type, narrowed
from runner.ops.handle import Identity

__all__ = [
    "arange",
    "array",
    "asarray",
    "asfarray",
    "copy",
    "diag",
    "diag_indices",
    "diagflat",
    "diagonal",
    "empty",
    "empty_like",
    "eye",
    "full",
    "full_like",
    "geomspace",
    "identity",
    "indices",
    "ix_",
    "linspace",
    "logspace",
    "meshgrid",
    "mgrid",
    "ogrid",
    "ones",
    "ones_like",
    "trace",
    "tri",
    "tril",
    "triu",
    "vander",
    "zeros",
    "zeros_like",
]


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
    same: Value = Identity()(x)
    return same


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
