"""Functions of numbers: sine, cosine and their relatives, exponentials near 1, and the error function.

Angles are in radians.
"""

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from runner import dtype as dt
from runner.core.lowering import Builder
from runner.core.operators import KERNEL, LOWERING, Gradient, primitive
from runner.core.precision import OperandPrecision
from runner.core.values import Value
from runner.ops.elementwise.arithmetic import Exp, Reciprocal, Rsqrt, Slope, Smooth, SmoothBinary, Sqrt, Unary

# Trigonometric and hyperbolic functions, and their inverses.


@primitive
class Sin(Unary):
    """Sine of an angle in radians."""

    ufunc: ClassVar = np.sin

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (douts[0] * Cos()(inputs[0]),)


@primitive
class Cos(Unary):
    """Cosine of an angle in radians."""

    ufunc: ClassVar = np.cos

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (-(douts[0] * Sin()(inputs[0])),)


class Angular(Smooth):
    """Base: functions that lose digits in Float16, and that numpy and onnxruntime have from the C library.

    onnxruntime computes some of them itself, but not the last elements, which do not fill a vector.
    """

    precision: ClassVar = OperandPrecision.SINGLE
    flops_each: ClassVar = 4
    depends_on_libc: ClassVar = (KERNEL, LOWERING)


@primitive
class Tan(Angular):
    """Tangent."""

    ufunc: ClassVar = np.tan

    def slope(self, x: Value, y: Value) -> Value:
        return 1.0 + y * y


@primitive
class Asin(Angular):
    """Inverse sine; NaN outside of -1 to 1."""

    ufunc: ClassVar = np.arcsin

    def slope(self, x: Value, y: Value) -> Value:
        return Rsqrt()((1.0 - x) * (1.0 + x))


@primitive
class ACos(Angular):
    """Inverse cosine; NaN outside of -1 to 1."""

    ufunc: ClassVar = np.arccos
    onnx: ClassVar = "Acos"

    def slope(self, x: Value, y: Value) -> Value:
        return -Asin().slope(x, y)


@primitive
class Atan(Angular):
    """Inverse tangent."""

    ufunc: ClassVar = np.arctan

    def slope(self, x: Value, y: Value) -> Value:
        return Reciprocal()(1.0 + x * x)


@primitive
class Sinh(Angular):
    """Hyperbolic sine."""

    ufunc: ClassVar = np.sinh

    def slope(self, x: Value, y: Value) -> Value:
        return Cosh()(x)


@primitive
class Cosh(Angular):
    """Hyperbolic cosine."""

    ufunc: ClassVar = np.cosh

    def slope(self, x: Value, y: Value) -> Value:
        return Sinh()(x)


@primitive
class Asinh(Angular):
    """Inverse hyperbolic sine."""

    ufunc: ClassVar = np.arcsinh

    def slope(self, x: Value, y: Value) -> Value:
        return Rsqrt()(1.0 + x * x)


@primitive
class Acosh(Angular):
    """Inverse hyperbolic cosine; NaN below 1."""

    ufunc: ClassVar = np.arccosh

    def slope(self, x: Value, y: Value) -> Value:
        return Reciprocal()(Sqrt()(x - 1.0) * Sqrt()(x + 1.0))


@primitive
class Atanh(Angular):
    """Inverse hyperbolic tangent; NaN outside of -1 to 1."""

    ufunc: ClassVar = np.arctanh

    def slope(self, x: Value, y: Value) -> Value:
        return Reciprocal()((1.0 - x) * (1.0 + x))


@primitive
class Atan2(SmoothBinary):
    """The angle of the point (y, x), first operand / second operand, from -pi to pi in its quadrant."""

    precision: ClassVar = OperandPrecision.SINGLE
    flops_each: ClassVar = 4
    floats_only: ClassVar = True
    depends_on_libc: ClassVar = (KERNEL, LOWERING)
    ufunc: ClassVar = np.arctan2

    def slopes(self, x: Value, y: Value, out: Value) -> tuple[Slope, Slope]:
        square = x * x + y * y
        return lambda: y / square, lambda: -x / square

    def lower(self, b: Builder, x: str, y: str) -> str:
        """The angle in the octant nearest to the second axis, then mirrored: onnxruntime has no atan2."""
        height, width = b.node("Abs", (x,)), b.node("Abs", (y,))
        small, large = b.node("Min", (height, width)), b.node("Max", (height, width))
        zero, one = b.const(0.0, like=x), b.const(1.0, like=x)
        ratio = b.node("Where", (b.node("Equal", (small, large)), one, b.node("Div", (small, large))))
        ratio = b.node("Where", (b.node("Equal", (large, zero)), zero, ratio))
        angle = b.node("Atan", (ratio,))
        upright = b.node("Sub", (b.const(math.pi / 2, like=x), angle))
        angle = b.node("Where", (b.node("Greater", (height, width)), upright, angle))
        behind = b.node("Sub", (b.const(math.pi, like=x), angle))
        angle = b.node("Where", (_is_negative(b, y), behind, angle))
        return b.node("Where", (_is_negative(b, x), b.node("Neg", (angle,)), angle))


def _is_negative(b: Builder, x: str) -> str:
    """Whether the sign of x is negative, also that of -0.0: 1 / -0.0 is negative."""
    zero = b.const(0.0, like=x)
    below = b.node("Less", (b.node("Reciprocal", (x,)), zero))
    return b.node("Or", (b.node("Less", (x, zero)), b.node("And", (b.node("Equal", (x, zero)), below))))


# Functions of one operand that need care to keep all digits: exponentials near 1, and the error function.

_erf, _erfc = (np.frompyfunc(function, 1, 1) for function in (math.erf, math.erfc))
# log(erfc(z) * exp(z * z) / t) for t = 2 / (2 + z), z >= 0, as a series of Chebyshev polynomials of 2 t - 1. Fitted in
# 60 digits; the error is below 1e-16.
SERIES = (
    -0.6513268598908547,
    0.6419697923564902,
    0.019476473204185836,
    -0.009561514786808632,
    -0.0009465953444820369,
    0.00036683949785276145,
    4.252332480690777e-05,
    -2.0278578112534242e-05,
    -1.6242900046470256e-06,
    1.3036558355805232e-06,
    1.5626441722066142e-08,
    -8.523809591492654e-08,
    6.5290544390988515e-09,
    5.059343495551469e-09,
    -9.91364156493033e-10,
    -2.273651222931836e-10,
    9.646791102015527e-11,
    2.3940380830391146e-12,
    -6.886027526497553e-12,
    8.944879273090725e-13,
    3.130921399342958e-13,
    -1.1270822361367252e-13,
    3.810905255189232e-16,
    7.106097613609237e-15,
    -1.5230282014571043e-15,
    -9.457494571291233e-17,
    1.210237189224279e-16,
    -2.816663087747177e-17,
)


@primitive
class Expm1(Smooth):
    """exp(x) - 1, with all digits where x is small."""

    precision: ClassVar = OperandPrecision.SINGLE
    flops_each: ClassVar = 4
    depends_on_libc: ClassVar = (KERNEL,)
    ufunc: ClassVar = np.expm1

    def slope(self, x: Value, y: Value) -> Value:
        return y + 1.0

    def lower(self, b: Builder, x: str) -> str:
        """exp(x) - 1 = tanh(x / 2) * (exp(x) + 1)."""
        half = b.node("Tanh", (b.node("Mul", (x, b.const(0.5, like=x))),))
        return b.node("Mul", (half, b.node("Add", (b.node("Exp", (x,)), b.const(1.0, like=x)))))


@primitive
class Log1p(Smooth):
    """log(1 + x), with all digits where x is small; NaN below -1."""

    precision: ClassVar = OperandPrecision.SINGLE
    flops_each: ClassVar = 4
    depends_on_libc: ClassVar = (KERNEL,)
    ufunc: ClassVar = np.log1p

    def slope(self, x: Value, y: Value) -> Value:
        return Reciprocal()(x + 1.0)

    def lower(self, b: Builder, x: str) -> str:
        return lower_log1p(b, x, b.const(1.0, like=x))


def lower_log1p(b: Builder, x: str, one: str) -> str:
    """log(u) * x / (u - 1) with u = 1 + x as it was rounded: the two errors of rounding cancel."""
    shifted = b.node("Add", (x, one))
    logarithm, moved = b.node("Log", (shifted,)), b.node("Sub", (shifted, one))
    corrected = b.node("Mul", (logarithm, b.node("Div", (x, moved))))
    large = b.node("Where", (b.node("Equal", (shifted, x)), logarithm, corrected))
    return b.node("Where", (b.node("Equal", (shifted, one)), x, large))


@primitive
class Erf(Smooth):
    """The error function, 2 / sqrt(pi) times the integral of exp(-t * t) from 0 to x."""

    precision: ClassVar = OperandPrecision.SINGLE
    flops_each: ClassVar = 4
    depends_on_libc: ClassVar = (KERNEL,)

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(_erf(x), x.dtype)

    def slope(self, x: Value, y: Value) -> Value:
        return Exp()(-(x * x)) * (2.0 / math.sqrt(math.pi))


@primitive
class Erfc(Smooth):
    """1 - Erf(x), with all digits where that is small."""

    precision: ClassVar = OperandPrecision.SINGLE
    flops_each: ClassVar = 4
    depends_on_libc: ClassVar = (KERNEL,)

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(_erfc(x), x.dtype)

    def slope(self, x: Value, y: Value) -> Value:
        return -Erf().slope(x, y)

    def lower(self, b: Builder, x: str) -> str:
        """In Float64: Float32 would lose digits of x * x."""
        wide = b.node("Cast", (x,), to=dt.float64)
        zero, one, two = (b.const(np.array(number, np.float64)) for number in (0.0, 1.0, 2.0))
        z = b.node("Abs", (wide,))
        t = b.node("Div", (two, b.node("Add", (z, two))))
        series = _lower_series(b, b.node("Sub", (b.node("Mul", (t, two)), one)))
        power = b.node("Sub", (series, b.node("Mul", (z, z))))
        tail = b.node("Mul", (t, b.node("Exp", (power,))))
        below = b.node("Less", (wide, zero))
        return b.node("Cast", (b.node("Where", (below, b.node("Sub", (two, tail)), tail)),), to=b.type(x).dtype)


def _lower_series(b: Builder, x: str) -> str:
    """The sum of the series at x, by Clenshaw's recurrence."""
    twice = b.node("Add", (x, x))
    last, before = b.const(np.array(SERIES[-1])), b.const(np.array(0.0))
    for number in reversed(SERIES[1:-1]):
        step = b.node("Sub", (b.node("Mul", (twice, last)), before))
        last, before = b.node("Add", (step, b.const(np.array(number)))), last
    return b.node("Add", (b.node("Sub", (b.node("Mul", (x, last)), before)), b.const(np.array(SERIES[0]))))
