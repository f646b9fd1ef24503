"""Trigonometric and hyperbolic functions, and their inverses; angles are in radians."""

import math
from typing import ClassVar

import numpy as np

from runner.core.lowering import Builder
from runner.core.operators import primitive
from runner.core.precision import Needs
from runner.core.values import Value
from runner.ops.elementwise import Sqrt
from runner.ops.math import Reciprocal, Rsqrt
from runner.ops.smooth import Slope, Smooth, SmoothBinary

__all__ = ["ACos", "Acosh", "Asin", "Asinh", "Atan", "Atan2", "Atanh", "Cosh", "Sinh", "Tan"]


class Angular(Smooth):
    """Base: functions that lose digits in Float16."""

    needs: ClassVar = Needs.SINGLE
    flops_each: ClassVar = 4


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
        slope: Value = Rsqrt()((1.0 - x) * (1.0 + x))
        return slope


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
        slope: Value = Reciprocal()(1.0 + x * x)
        return slope


@primitive
class Sinh(Angular):
    """Hyperbolic sine."""

    ufunc: ClassVar = np.sinh

    def slope(self, x: Value, y: Value) -> Value:
        slope: Value = Cosh()(x)
        return slope


@primitive
class Cosh(Angular):
    """Hyperbolic cosine."""

    ufunc: ClassVar = np.cosh

    def slope(self, x: Value, y: Value) -> Value:
        slope: Value = Sinh()(x)
        return slope


@primitive
class Asinh(Angular):
    """Inverse hyperbolic sine."""

    ufunc: ClassVar = np.arcsinh

    def slope(self, x: Value, y: Value) -> Value:
        slope: Value = Rsqrt()(1.0 + x * x)
        return slope


@primitive
class Acosh(Angular):
    """Inverse hyperbolic cosine; NaN below 1."""

    ufunc: ClassVar = np.arccosh

    def slope(self, x: Value, y: Value) -> Value:
        slope: Value = Reciprocal()(Sqrt()(x - 1.0) * Sqrt()(x + 1.0))
        return slope


@primitive
class Atanh(Angular):
    """Inverse hyperbolic tangent; NaN outside of -1 to 1."""

    ufunc: ClassVar = np.arctanh

    def slope(self, x: Value, y: Value) -> Value:
        slope: Value = Reciprocal()((1.0 - x) * (1.0 + x))
        return slope


@primitive
class Atan2(SmoothBinary):
    """The angle of the point (y, x), first operand / second operand, from -pi to pi in its quadrant."""

    needs: ClassVar = Needs.SINGLE
    flops_each: ClassVar = 4
    floats_only: ClassVar = True
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
