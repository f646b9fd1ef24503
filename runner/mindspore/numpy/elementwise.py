"""`mindspore.numpy`: functions of single elements, and of pairs of them that broadcast."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from runner import dtype as dt
from runner.core.values import Value
from runner.errors import ShapeError
from runner.mindspore.numpy.conversion import (
    Axis,
    axes_of,
    cast,
    element_type,
    in_floats,
    nan,
    promote_types,
    promoted,
    tensor,
)
from runner.mindspore.numpy.creation import broadcast_to, concatenate, expand_dims, flip, moveaxis, where
from runner.mindspore.ops.reductions import ReduceAny
from runner.ops import composite
from runner.ops.activation import Tanh
from runner.ops.convolution.conv import Conv2D
from runner.ops.elementwise.arithmetic import (
    Abs,
    Add,
    Ceil,
    Exp,
    Floor,
    Log,
    Mul,
    Neg,
    Pow,
    RealDiv,
    Reciprocal,
    Sign,
    Sqrt,
    Square,
    Sub,
)
from runner.ops.elementwise.compare import (
    Equal,
    Greater,
    GreaterEqual,
    IsFinite,
    IsInf,
    IsNan,
    Less,
    LessEqual,
    LogicalAnd,
    LogicalNot,
    LogicalOr,
    Maximum,
    Minimum,
    NotEqual,
)
from runner.ops.elementwise.division import FloorDiv, FloorMod
from runner.ops.elementwise.functions import (
    ACos,
    Acosh,
    Asin,
    Asinh,
    Atan,
    Atan2,
    Atanh,
    Cos,
    Cosh,
    Expm1,
    Log1p,
    Sin,
    Sinh,
    Tan,
)
from runner.ops.reduce import CumSum, ReduceMax, ReduceMean, ReduceMin, ReduceSum
from runner.types import resolve_axes

_Compute = Callable[..., Any]
_EUCLID_STEPS = 46  # the largest number that two Int32 need


def _of_elements(name: str, what: str, compute: _Compute, operands: Callable[..., list[Value]]) -> Callable[..., Value]:
    def function(*args: Any, dtype: Any = None) -> Value:
        return cast(compute(*operands(*args)), dtype)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{what}, for each element. `dtype` casts the result."
    return function


def _one(operands: Callable[..., list[Value]], name: str, what: str, compute: _Compute) -> Callable[..., Value]:
    function = _of_elements(name, what, compute, operands)

    def unary(x: Any, dtype: Any = None) -> Value:
        return function(x, dtype=dtype)

    unary.__name__, unary.__qualname__, unary.__doc__ = name, name, function.__doc__
    return unary


def _two(operands: Callable[..., list[Value]], name: str, what: str, compute: _Compute) -> Callable[..., Value]:
    function = _of_elements(name, what, compute, operands)

    def binary(x1: Any, x2: Any, dtype: Any = None) -> Value:
        return function(x1, x2, dtype=dtype)

    binary.__name__, binary.__qualname__, binary.__doc__ = name, name, function.__doc__
    return binary


def _limits(x1: Any, x2: Any) -> list[Value]:
    """Operands of one element type: a number takes that of the tensor."""
    first, second = tensor(x1), tensor(x2)
    if bool(first.ndim) == bool(second.ndim):
        return promoted(first, second)
    dtype = first.dtype if first.ndim else second.dtype
    return [cast(first, dtype), cast(second, dtype)]


def _with_nan(compute: _Compute, x1: Value, x2: Value) -> Value:
    """A result that is NaN where an operand is."""
    result: Value = compute(x1, x2)
    if not result.dtype.is_float:
        return result
    unordered = NotEqual()(x1, x1), NotEqual()(x2, x2)
    return where(cast(cast(unordered[0], dt.int32) + cast(unordered[1], dt.int32), dt.bool_), nan_like(result), result)


def nan_like(x: Value) -> Value:
    """NaN in the element type of x."""
    return cast(tensor(nan), x.dtype)


def _toward_zero(x: Value) -> Value:
    return where(x < 0, Ceil()(x), Floor()(x))


def _fmod(x1: Value, x2: Value) -> Value:
    """The remainder with the sign of x1."""
    dtype = promote_types(x1.dtype, dt.float32)
    first, second = cast(x1, dtype), cast(x2, dtype)
    return cast(first - second * _toward_zero(first / second), x1.dtype)


def _gcd(x1: Value, x2: Value) -> Value:
    """Euclid's steps, as many as any two numbers need; a divisor of 0 ends them."""
    first: Value = Abs()(x1)
    second: Value = Abs()(x2)
    for _ in range(_EUCLID_STEPS):
        ended = second == 0
        rest = FloorMod()(first, where(ended, 1, second))
        first, second = where(ended, first, second), where(ended, 0, rest)
    return first


def _lcm(x1: Value, x2: Value) -> Value:
    common = _gcd(x1, x2)
    return where(common == 0, 0, FloorDiv()(Abs()(x1 * x2), where(common == 0, 1, common)))


_unary, _unary_float = partial(_one, promoted), partial(_one, in_floats)
_binary, _binary_float = partial(_two, promoted), partial(_two, in_floats)

absolute = _unary("absolute", "The absolute value", Abs())
arccos = _unary_float("arccos", "The inverse cosine", ACos())
arccosh = _unary_float("arccosh", "The inverse hyperbolic cosine", Acosh())
arcsin = _unary_float("arcsin", "The inverse sine", Asin())
arcsinh = _unary_float("arcsinh", "The inverse hyperbolic sine", Asinh())
arctan = _unary_float("arctan", "The inverse tangent", Atan())
arctanh = _unary_float("arctanh", "The inverse hyperbolic tangent", Atanh())
cbrt = _unary_float("cbrt", "The cube root", lambda x: Sign()(x) * Pow()(Abs()(x), 1.0 / 3.0))
ceil = _unary_float("ceil", "The next whole number above", Ceil())
cos = _unary_float("cos", "The cosine", Cos())
cosh = _unary_float("cosh", "The hyperbolic cosine", Cosh())
deg2rad = _unary_float("deg2rad", "Degrees in radians", lambda x: x * (math.pi / 180))
exp = _unary_float("exp", "e to the power of x", Exp())
exp2 = _unary("exp2", "2 to the power of x", lambda x: Pow()(cast(tensor(2), x.dtype), x))
expm1 = _unary_float("expm1", "exp(x) - 1, exact for small x", Expm1())
floor = _unary_float("floor", "The next whole number below", Floor())
log = _unary_float("log", "The natural logarithm", Log())
log1p = _unary_float("log1p", "The logarithm of 1 + x, exact for small x", Log1p())
log2 = _unary_float("log2", "The logarithm with base 2", lambda x: Log()(x) / math.log(2))
log10 = _unary_float("log10", "The logarithm with base 10", lambda x: Log()(x) / math.log(10))
negative = _unary("negative", "The negative", Neg())
positive = _unary("positive", "x itself", lambda x: x)
rad2deg = _unary_float("rad2deg", "Radians in degrees", lambda x: x * (180 / math.pi))
reciprocal = _unary_float("reciprocal", "1 / x", Reciprocal())
sin = _unary_float("sin", "The sine", Sin())
sinh = _unary_float("sinh", "The hyperbolic sine", Sinh())
sqrt = _unary_float("sqrt", "The square root", Sqrt())
square = _unary("square", "The square", Square())
tan = _unary_float("tan", "The tangent", Tan())
tanh = _unary_float("tanh", "The hyperbolic tangent", Tanh())
trunc = _unary_float("trunc", "The whole number toward 0", _toward_zero)

add = _binary("add", "The sum", Add())
arctan2 = _binary_float("arctan2", "The angle of the point with abscissa x2 and ordinate x1", Atan2())
divide = _binary_float("divide", "The quotient", RealDiv())
true_divide = _binary_float("true_divide", "The quotient", RealDiv())
floor_divide = _binary("floor_divide", "The quotient, rounded down", FloorDiv())
fmod = _binary("fmod", "The remainder with the sign of x1", _fmod)
gcd = _binary("gcd", "The greatest common divisor of integers", _gcd)
heaviside = _binary(
    "heaviside", "0 below 0, 1 above it, x2 at 0", lambda x1, x2: where(x1 < 0, 0, where(x1 > 0, 1, cast(x2, x1.dtype)))
)
hypot = _binary_float("hypot", "The root of the sum of both squares", lambda x1, x2: Sqrt()(x1 * x1 + x2 * x2))
lcm = _binary("lcm", "The least common multiple of integers", _lcm)
logaddexp = _binary_float("logaddexp", "log(exp(x1) + exp(x2))", lambda x1, x2: Log()(Exp()(x1) + Exp()(x2)))
logaddexp2 = _binary_float(
    "logaddexp2", "log2(2**x1 + 2**x2)", lambda x1, x2: Log()(Pow()(2.0, x1) + Pow()(2.0, x2)) / math.log(2)
)
maximum = _two(_limits, "maximum", "The larger number, NaN with NaN", partial(_with_nan, Maximum()))
minimum = _two(_limits, "minimum", "The smaller number, NaN with NaN", partial(_with_nan, Minimum()))
multiply = _binary("multiply", "The product", Mul())
power = _binary("power", "x1 to the power of x2", Pow())
remainder = _binary("remainder", "The remainder with the sign of x2", FloorMod())
subtract = _binary("subtract", "The difference", Sub())

fabs = abs = absolute
mod = remainder


def float_power(x1: Any, x2: Any, dtype: Any = None) -> Value:
    """x1 to the power of x2 in Float32. `dtype` casts the result."""
    return power(cast(tensor(x1), dt.float32), cast(tensor(x2), dt.float32), dtype=dtype)


def fix(x: Any) -> Value:
    """The whole number toward 0, for each element."""
    return trunc(x)


def divmod(x1: Any, x2: Any, dtype: Any = None) -> tuple[Value, Value]:
    """The quotient, rounded down, and the remainder, for each element. `dtype` casts both."""
    return floor_divide(x1, x2, dtype=dtype), remainder(x1, x2, dtype=dtype)


def clip(x: Any, xmin: Any, xmax: Any, dtype: Any = None) -> Value:
    """x limited to a range, of which one bound may be None. Raises ShapeError when both are."""
    if xmin is None and xmax is None:
        raise ShapeError("one bound must be given")
    limited = tensor(x)
    for bound, limit in ((xmin, maximum), (xmax, minimum)):
        if bound is not None:
            limited = limit(limited, bound, dtype)
    return limited


# `mindspore.numpy`: comparisons and logic of elements.


def _as_bools(*operands: Any) -> list[Value]:
    return [cast(tensor(operand), dt.bool_) for operand in operands]


def _compared(
    operands: Callable[..., list[Value]], name: str, what: str, operator: Callable[..., Any]
) -> Callable[..., Value]:
    def binary(x1: Any, x2: Any, dtype: Any = None) -> Value:
        return cast(operator(*operands(x1, x2)), dtype)

    binary.__name__ = binary.__qualname__ = name
    binary.__doc__ = f"Whether {what}, for each pair of elements: Bool, or `dtype`."
    return binary


_compare, _logic = partial(_compared, promoted), partial(_compared, _as_bools)
equal = _compare("equal", "x1 equals x2", Equal())
not_equal = _compare("not_equal", "x1 differs from x2", NotEqual())
less = _compare("less", "x1 is less than x2", Less())
less_equal = _compare("less_equal", "x1 is at most x2", LessEqual())
greater = _compare("greater", "x1 is greater than x2", Greater())
greater_equal = _compare("greater_equal", "x1 is at least x2", GreaterEqual())
logical_and = _logic("logical_and", "both are true", LogicalAnd())
logical_or = _logic("logical_or", "one is true", LogicalOr())
logical_xor = _logic(
    "logical_xor", "exactly one is true", lambda a, b: NotEqual()(cast(a, dt.int32), cast(b, dt.int32))
)


def logical_not(a: Any, dtype: Any = None) -> Value:
    """Whether an element is false (0): Bool, or `dtype`."""
    return cast(LogicalNot()(*_as_bools(a)), dtype)


def isnan(x: Any, dtype: Any = None) -> Value:
    """Whether an element is NaN: Bool, or `dtype`."""
    (value,) = in_floats(x)
    return cast(IsNan()(value), dtype)


def isinf(x: Any, dtype: Any = None) -> Value:
    """Whether an element is infinite: Bool, or `dtype`."""
    (value,) = in_floats(x)
    return cast(IsInf()(value), dtype)


def isfinite(x: Any, dtype: Any = None) -> Value:
    """Whether an element is neither infinite nor NaN: Bool, or `dtype`."""
    (value,) = in_floats(x)
    return cast(IsFinite()(value), dtype)


def isposinf(x: Any) -> Value:
    """Whether an element is positive infinity."""
    return equal(in_floats(x)[0], math.inf)


def isneginf(x: Any) -> Value:
    """Whether an element is negative infinity."""
    return equal(in_floats(x)[0], -math.inf)


def isscalar(element: Any) -> bool:
    """Whether this is a number or a text of Python, and no tensor."""
    return isinstance(element, bool | int | float | str)


def isclose(a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Value:
    """Whether |a - b| is at most atol + rtol * |b|; infinities equal themselves, NaN only with `equal_nan`."""
    first, second = in_floats(a, b)
    finite = logical_and(isfinite(first), isfinite(second))
    distance = Abs()(where(finite, first, 0.0) - where(finite, second, 0.0))
    close = LessEqual()(distance, where(finite, Abs()(second), 0.0) * rtol + atol)
    result = where(finite, close, Equal()(first, second))
    return logical_or(result, logical_and(isnan(first), isnan(second))) if equal_nan else result


def isin(element: Any, test_elements: Any, invert: bool = False) -> Value:
    """Whether an element is one of others; with `invert` whether it is none of them."""
    values, others = promoted(element, test_elements)
    found = ReduceAny(axis=-1)(Equal()(values.reshape((*values.shape, 1)), others.reshape(-1)))
    return logical_not(found) if invert else found


def in1d(ar1: Any, ar2: Any, invert: bool = False) -> Value:
    """As `isin`, with all elements in one axis."""
    return isin(tensor(ar1).reshape(-1), ar2, invert)


# `mindspore.numpy`: functions that reduce axes, and sums along an axis.


def _sum(x: Value, axis: Axis, keepdims: bool) -> Value:
    return ReduceSum(keepdims, axes_of(axis, x.ndim))(x) if x.ndim else x


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


# `mindspore.numpy`: products of tensors, and functions of neighbouring elements.


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
