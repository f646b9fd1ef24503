"""`mindspore.numpy`: functions that reduce axes or add along one, products of tensors, functions of neighbours."""

from collections.abc import Callable
from typing import Any

from runner import dtype as dt
from runner.core.values import Value
from runner.errors import ShapeError
from runner.mindspore.numpy.arrays import (
    Axis,
    axes_of,
    broadcast_to,
    cast,
    concatenate,
    element_type,
    expand_dims,
    flip,
    in_floats,
    moveaxis,
    promoted,
    tensor,
    where,
)
from runner.mindspore.numpy.elementwise import isnan
from runner.ops import composite
from runner.ops.convolution.conv import Conv2D
from runner.ops.elementwise.arithmetic import (
    Sqrt,
)
from runner.ops.elementwise.compare import (
    Maximum,
    Minimum,
)
from runner.ops.reduce import CumSum, ReduceMax, ReduceMean, ReduceMin, ReduceSum
from runner.types import resolve_axes


def _sum(x: Value, axis: Axis, keepdims: bool) -> Value:
    return ReduceSum(keepdims, axes_of(axis, x.ndim))(x) if x.ndim else x


def mean(a: Any, axis: Axis = None, keepdims: bool = False, dtype: Any = None) -> Value:
    """The mean over axes, of integers in Float32 and then in their own type, as in MindSpore."""
    x = tensor(a)
    (values,) = in_floats(x)
    result = ReduceMean(keepdims, axes_of(axis, x.ndim))(values) if x.ndim else values
    return cast(result, x.dtype if dtype is None else dtype)


def var(x: Any, axis: Axis = None, ddof: int = 0, keepdims: bool = False) -> Value:
    """The mean of the squares of the distances from the mean; divided by `ddof` less."""
    (values,) = in_floats(x)
    axes = axes_of(axis, values.ndim)
    distances = values - mean(values, axes, True)
    count = values.size // count_of_results(values, axes)
    return _sum(distances * distances, axes, keepdims) / (count - ddof)


def count_of_results(x: Value, axes: tuple[int, ...]) -> int:
    """The number of results of a reduction over axes."""
    kept = 1
    for axis, length in enumerate(x.shape):
        kept *= 1 if axis in axes else length
    return kept


def std(x: Any, axis: Axis = None, ddof: int = 0, keepdims: bool = False) -> Value:
    """The root of `var`."""
    return Sqrt()(var(x, axis, ddof, keepdims))


def ptp(x: Any, axis: Axis = None, keepdims: bool = False) -> Value:
    """The largest element less the smallest one."""
    return amax(x, axis, keepdims) - amin(x, axis, keepdims)


def _extremum(
    a: Any, operator: Callable[..., Any], limit: Any, axis: Axis, keepdims: bool, initial: Any, chosen: Any
) -> Value:
    x = tensor(a)
    if chosen is not True:
        if initial is None:
            raise ShapeError("a choice of elements needs `initial`, for lines without any")
        x = where(chosen, x, cast(tensor(initial), x.dtype))
    result: Value = operator(keepdims, axes_of(axis, x.ndim))(x) if x.ndim else x
    return limit(result, initial) if initial is not None else result


def amax(a: Any, axis: Axis = None, keepdims: bool = False, initial: Any = None, where: Any = True) -> Value:
    """The largest element over axes, at least `initial`, of those that `where` has. Raises ShapeError."""
    return _extremum(a, ReduceMax, Maximum(), axis, keepdims, initial, where)


def amin(a: Any, axis: Axis = None, keepdims: bool = False, initial: Any = None, where: Any = True) -> Value:
    """The smallest element over axes, at most `initial`, of those that `where` has. Raises ShapeError."""
    return _extremum(a, ReduceMin, Minimum(), axis, keepdims, initial, where)


max, min = amax, amin


def count_nonzero(x: Any, axis: Axis = None, keepdims: bool = False) -> Value:
    """The number of elements that are not 0 over axes: Int32."""
    return cast(_sum(cast(tensor(x) != 0, dt.float32), axis, keepdims), dt.int32)


def average(x: Any, axis: Axis = None, weights: Any = None, returned: bool = False) -> Any:
    """The mean over axes with weights (of the shape of x, or a vector along the axis); with `returned` their sum too.

    Raises ShapeError for other weights.
    """
    values = tensor(x)
    shares = tensor(1.0) if weights is None else tensor(weights)
    if shares.shape != values.shape and shares.ndim == 1:
        if not isinstance(axis, int):
            raise ShapeError("a vector of weights needs one axis", axis=axis, weights=shares.type)
        shares = shares.reshape([shares.size if k == axis % values.ndim else 1 for k in range(values.ndim)])
    values, shares = in_floats(values, shares)
    shares = broadcast_to(shares, values.shape)
    total = _sum(shares, axis, False)
    result = _sum(values * shares, axis, False) / total
    return (result, total) if returned else result


def cumsum(a: Any, axis: int | None = None, dtype: Any = None) -> Value:
    """The sum of all elements up to each one along an axis; without an axis, of all elements in order.

    Bool, Int8 and Int16 become Int32.
    """
    x = tensor(a)
    kept = dt.int32 if x.dtype in (dt.bool_, dt.int8, dt.int16) else x.dtype
    values = cast(x, dt.float32)
    summed = CumSum()(values.reshape(-1), 0) if axis is None else CumSum()(values, axis)
    return cast(summed, kept if dtype is None else element_type(dtype))


def _without_nan(a: Any) -> tuple[Value, Value]:
    """x with 0 in the places of NaN, and 1 in all other places."""
    x = tensor(a)
    if not x.dtype.is_float:
        return x, cast(x == x, dt.float32)
    missing = isnan(x)
    return where(missing, 0.0, x), where(missing, 0.0, cast(tensor(1.0), x.dtype))


def nancumsum(a: Any, axis: int | None = None, dtype: Any = None) -> Value:
    """`cumsum` with NaN as 0."""
    return cumsum(_without_nan(a)[0], axis, dtype)


def nansum(a: Any, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Value:
    """The sum over axes with NaN as 0."""
    x = _without_nan(a)[0]
    return cast(_sum(cast(x, dt.float32), axis, keepdims), x.dtype if dtype is None else dtype)


def nanmean(a: Any, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Value:
    """The mean over axes of the elements that are not NaN."""
    x, counted = _without_nan(a)
    return cast(_sum(cast(x, dt.float32), axis, keepdims) / _sum(counted, axis, keepdims), dtype)


def nanvar(a: Any, axis: Axis = None, dtype: Any = None, ddof: int = 0, keepdims: bool = False) -> Value:
    """`var` of the elements that are not NaN."""
    x, counted = _without_nan(a)
    distances = (x - nanmean(a, axis, keepdims=True)) * counted
    return cast(_sum(distances * distances, axis, keepdims) / (_sum(counted, axis, keepdims) - ddof), dtype)


def nanstd(a: Any, axis: Axis = None, dtype: Any = None, ddof: int = 0, keepdims: bool = False) -> Value:
    """The root of `nanvar`."""
    return cast(Sqrt()(nanvar(a, axis, None, ddof, keepdims)), dtype)


# Products of tensors.


def _floats(*operands: Any) -> tuple[list[Value], dt.DType]:
    """Operands in floats, and the element type of their product."""
    kept = promoted(*operands)[0].dtype
    return in_floats(*operands), kept


def matmul(x1: Any, x2: Any, dtype: Any = None) -> Value:
    """The matrix product with the rules of `numpy.matmul`: leading axes broadcast, vectors are rows or columns."""
    (first, second), kept = _floats(x1, x2)
    return cast(composite.matmul(first, second), kept if dtype is None else dtype)


def tensordot(a: Any, b: Any, axes: Any = 2) -> Value:
    """The sum of products over axes: the last n of a and the first n of b, or the axes of each."""
    (first, second), kept = _floats(a, b)
    if not first.ndim or not second.ndim:
        return cast(first * second, kept)
    return cast(composite.tensor_dot(first, second, axes), kept)


def inner(a: Any, b: Any) -> Value:
    """The sum of products over the last axis of both; scalars multiply."""
    axes = (-1,), (-1,)
    return tensordot(a, b, axes)


def dot(a: Any, b: Any) -> Value:
    """The sum of products over the last axis of a and the last but one of b (the only one of a vector)."""
    return tensordot(a, b, ((-1,), (-2 if tensor(b).ndim > 1 else -1,)))


def outer(a: Any, b: Any) -> Value:
    """The products of all elements of a (rows) with all of b (columns)."""
    return tensor(a).reshape(-1, 1) * tensor(b).reshape(1, -1)


def kron(a: Any, b: Any) -> Value:
    """The Kronecker product: b in place of every element of a, multiplied by it."""
    first, second = promoted(a, b)
    ndim = first.ndim if first.ndim > second.ndim else second.ndim
    shapes = [(1,) * (ndim - x.ndim) + x.shape for x in (first, second)]
    rows = first.reshape([length for one in shapes[0] for length in (one, 1)])
    columns = second.reshape([length for one in shapes[1] for length in (1, one)])
    return (rows * columns).reshape([m * n for m, n in zip(*shapes, strict=True)])


def cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Value:
    """The vector product along the axes, which have 2 or 3 elements; of pairs only its third component.

    Raises ShapeError for other lengths.
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    (first, second), kept = _floats(a, b)
    first, second = moveaxis(first, axisa, -1), moveaxis(second, axisb, -1)
    lengths = first.shape[-1], second.shape[-1]
    if not set(lengths) <= {2, 3}:
        raise ShapeError("vectors have 2 or 3 elements", a=first.type, b=second.type)
    x, y = ([v[..., k] for k in range(v.shape[-1])] + [v[..., 0] * 0] for v in (first, second))
    parts = [x[i] * y[j] - x[j] * y[i] for i, j in ((1, 2), (2, 0), (0, 1))]
    if lengths == (2, 2):
        return cast(parts[2], kept)
    return cast(moveaxis(concatenate([expand_dims(part, -1) for part in parts], -1), -1, axisc), kept)


# Functions of neighbouring elements, and of samples.


def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Value:
    """The n-th differences of neighbours along an axis, between `prepend` and `append`; with n = 0 the tensor itself.

    Raises ShapeError when n is negative, or the axis too short.
    """
    x = tensor(a)
    if n == 0:
        return x
    (axis,) = resolve_axes(axis, x.ndim)
    parts = [tensor(part) for part in (prepend, x, append) if part is not None]
    one = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    joined = concatenate([part if part.ndim else broadcast_to(part, one) for part in parts], axis)
    if not 0 < n < joined.shape[axis]:
        raise ShapeError("there are no such differences", n=n, axis=axis, x=joined.type)
    for _ in range(n):
        before = (slice(None),) * axis
        joined = joined[(*before, slice(1, None))] - joined[(*before, slice(None, -1))]
    return cast(joined, x.dtype)


def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Value:
    """The differences of neighbours of all elements in order, between `to_begin` and `to_end`."""
    x = tensor(ary)
    parts = [None if part is None else tensor(part) for part in (to_begin, diff(x.reshape(-1)), to_end)]
    return concatenate([cast(part, x.dtype).reshape(-1) for part in parts if part is not None])


def trapz(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> Value:
    """The integral along an axis by the trapezoidal rule, with the places x or the distance dx."""
    (values,) = in_floats(y)
    (axis,) = resolve_axes(axis, values.ndim)
    values = moveaxis(values, axis, -1)
    widths = tensor(dx) if x is None else tensor(x)
    if x is not None:
        widths = diff(widths if widths.ndim == 1 else moveaxis(widths, axis, -1))
    areas = (values[..., 1:] + values[..., :-1]) / 2.0 * cast(widths, values.dtype)
    return areas.sum(-1)


def convolve(a: Any, v: Any, mode: str = "full") -> Value:
    """The convolution of two vectors: all places ("full"), as many as the longer has ("same"), or complete ones.

    Raises ShapeError for another mode.
    """
    if mode not in ("full", "same", "valid"):
        raise ShapeError("no such mode", mode=mode, allowed="full, same, valid")
    (first, second), kept = _floats(a, v)
    first, second = first.reshape(-1), second.reshape(-1)
    if first.size < second.size:
        first, second = second, first
    length = second.size
    sides = {"full": (length - 1, length - 1), "same": (length // 2, length - 1 - length // 2), "valid": (0, 0)}
    before, after = ([cast(tensor([0.0] * count), first.dtype)] if count else [] for count in sides[mode])
    padded = concatenate([*before, first, *after])
    kernel = flip(second).reshape((1, 1, 1, length))
    result = Conv2D(1, (1, length), pad_mode="valid")(padded.reshape((1, 1, 1, padded.size)), kernel)
    return cast(result.reshape(-1), kept)


def cov(
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: Any = None,
    aweights: Any = None,
    dtype: Any = None,
) -> Value:
    """The covariances of the rows of m and y, or of their columns if `rowvar` is false.

    `fweights` says how often an observation counts, `aweights` how much. Sums are divided by the number of
    observations less `ddof`: 1 by default, 0 with `bias`.
    """
    given = [cast(tensor(each), dt.float32) for each in (m, y) if each is not None]
    rows = [x.reshape(1, -1) if x.ndim < 2 else x if rowvar else x.T for x in given]
    variables = concatenate(rows, 0)
    often, much = (None if w is None else cast(tensor(w), dt.float32) for w in (fweights, aweights))
    weights = tensor([1.0] * variables.shape[1])
    for each in (often, much):
        weights = weights if each is None else weights * each
    less = (0 if bias else 1) if ddof is None else ddof
    total = weights.sum()
    divisor = total - less * (1.0 if much is None else (weights * much).sum() / total)
    centred = variables - expand_dims(average(variables, 1, weights), -1)
    return cast(matmul(centred, (centred * weights).T) / divisor, dtype).squeeze()
