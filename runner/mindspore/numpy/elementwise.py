"""`mindspore.numpy`: functions of single elements and of pairs of them that broadcast; comparisons and logic.

Most are rows of a table: name, description and operator, by the four constructors below.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from runner import dtype as dt
from runner.core.values import Value
from runner.errors import ShapeError
from runner.mindspore.numpy.arrays import cast, in_floats, nan, promote_types, promoted, tensor, where
from runner.mindspore.ops.reductions import ReduceAny
from runner.ops.activation import Tanh
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


# Comparisons and logic of elements.


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
