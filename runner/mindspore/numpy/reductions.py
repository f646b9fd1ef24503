"""`mindspore.numpy`: functions that reduce axes, and sums along an axis."""

from collections.abc import Callable
from typing import Any

from runner import dtype as dt
from runner.core.value import Value
from runner.errors import ShapeError
from runner.mindspore.numpy.array_ops import broadcast_to, where
from runner.mindspore.numpy.conversion import Axis, axes_of, cast, in_floats, tensor
from runner.mindspore.numpy.dtypes import element_type
from runner.mindspore.numpy.logic_ops import isnan
from runner.ops.compare import Maximum, Minimum, ReduceMax, ReduceMin
from runner.ops.cumulative_sum import CumSum
from runner.ops.elementwise import Sqrt
from runner.ops.reduce import ReduceMean, ReduceSum

__all__ = [
    "amax",
    "amin",
    "average",
    "count_nonzero",
    "cumsum",
    "max",
    "mean",
    "min",
    "nancumsum",
    "nanmean",
    "nanstd",
    "nansum",
    "nanvar",
    "ptp",
    "std",
    "var",
]


def _sum(x: Value, axis: Axis, keepdims: bool) -> Value:
    total: Value = ReduceSum(keepdims, axes_of(axis, x.ndim))(x) if x.ndim else x
    return total


def mean(a: Any, axis: Axis = None, keepdims: bool = False, dtype: Any = None) -> Value:
    """The mean over axes, of integers in Float32 and then in their own type, as in the reference."""
    x = tensor(a)
    (values,) = in_floats(x)
    result = ReduceMean(keepdims, axes_of(axis, x.ndim))(values) if x.ndim else values
    return cast(result, x.dtype if dtype is None else dtype)


def var(x: Any, axis: Axis = None, ddof: int = 0, keepdims: bool = False) -> Value:
    """The mean of the squares of the distances from the mean; divided by `ddof` less."""
    (values,) = in_floats(x)
    axes = axes_of(axis, values.ndim)
    distances = values - mean(values, axes, True)
    count = values.size // max_length(values, axes)
    return _sum(distances * distances, axes, keepdims) / (count - ddof)


def max_length(x: Value, axes: tuple[int, ...]) -> int:
    """The number of results of a reduction over axes."""
    kept = 1
    for axis, length in enumerate(x.shape):
        kept *= 1 if axis in axes else length
    return kept


def std(x: Any, axis: Axis = None, ddof: int = 0, keepdims: bool = False) -> Value:
    """The root of `var`."""
    root: Value = Sqrt()(var(x, axis, ddof, keepdims))
    return root


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
