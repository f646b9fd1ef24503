"""Elementwise arithmetic: sums, products, quotients and powers of two operands, roots and logarithms, and rounding.

The operators behind Python's `+ - * / **` are here; `division.py` has the other divisions.
"""

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import numpy as np

from runner.core.lowering import Builder
from runner.core.operators import Gradient, primitive
from runner.core.precision import Needs
from runner.core.values import Tensor, Value, syntax
from runner.ops.elementwise.base import Binary, Slope, SmoothBinary, Unary, computed_in_blocks
from runner.ops.reduce import unbroadcast

# Arithmetic of two operands.


@primitive
class Add(Binary):
    """x + y."""

    ufunc: ClassVar = partial(computed_in_blocks, np.add)
    neutral: ClassVar = -0.0  # not 0.0, since -0.0 + 0.0 is 0.0
    commutes: ClassVar = True

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        x, y = inputs
        return lambda: unbroadcast(douts[0], x), lambda: unbroadcast(douts[0], y)


@primitive
class Sub(Binary):
    """x - y."""

    ufunc: ClassVar = np.subtract
    neutral: ClassVar = 0

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        x, y = inputs
        return lambda: unbroadcast(douts[0], x), lambda: unbroadcast(-douts[0], y)


@primitive
class Mul(Binary):
    """x * y."""

    ufunc: ClassVar = np.multiply
    neutral: ClassVar = 1
    commutes: ClassVar = True

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        x, y = inputs
        return lambda: unbroadcast(douts[0] * y, x), lambda: unbroadcast(douts[0] * x, y)


@primitive
class RealDiv(Binary):
    """x / y of floats."""

    ufunc: ClassVar = np.divide
    onnx: ClassVar = "Div"
    floats_only: ClassVar = True
    neutral: ClassVar = 1

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        x, y = inputs
        return lambda: unbroadcast(douts[0] / y, x), lambda: unbroadcast(-(douts[0] * outputs[0]) / y, y)


@primitive
class Pow(Binary):
    """x to the power y, of floats; the gradient with respect to y needs x >= 0.

    Constants have no slope: the gradient with respect to x is 0 where y is 0, and that to y is 0 where x is 0.
    """

    needs: ClassVar = Needs.SINGLE
    ufunc: ClassVar = np.power
    floats_only: ClassVar = True

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        (x, y), (dout,) = inputs, douts
        return (
            lambda: unbroadcast(dout * nonzero(y, y * Pow()(x, y - 1.0)), x),
            lambda: unbroadcast(dout * nonzero(x, outputs[0] * Log()(x)), y),
        )


def nonzero(condition: Value, value: Value) -> Value:
    """The value where the condition is not 0, else 0."""
    result: Value = syntax.select(condition != 0.0, value, Tensor(0.0, value.dtype))
    return result


@primitive
class SquaredDifference(SmoothBinary):
    """(x - y) * (x - y)."""

    def kernel(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(np.square(x - y))

    def slopes(self, x: Value, y: Value, out: Value) -> tuple[Slope, Slope]:
        return lambda: (x - y) * 2.0, lambda: (y - x) * 2.0

    def lower(self, b: Builder, x: str, y: str) -> str:
        difference = b.node("Sub", (x, y))
        return b.node("Mul", (difference, difference))


# Functions of one operand.


@primitive
class Neg(Unary):
    """-x."""

    ufunc: ClassVar = np.negative
    floats_only: ClassVar = False

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (-douts[0],)


@primitive
class Abs(Unary):
    """|x|; the gradient at 0 is 0."""

    floats_only: ClassVar = False
    ufunc: ClassVar = np.abs

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (douts[0] * Sign()(inputs[0]),)


@primitive
class Sign(Unary):
    """-1, 0 or 1."""

    floats_only: ClassVar = False
    is_flat: ClassVar = True
    ufunc: ClassVar = np.sign


@primitive
class Square(Unary):
    """x * x."""

    floats_only: ClassVar = False
    needs: ClassVar = Needs.SINGLE
    ufunc: ClassVar = np.square

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (douts[0] * inputs[0] * 2.0,)

    def lower(self, b: Builder, x: str) -> str:
        return b.node("Mul", (x, x))


@primitive
class Sqrt(Unary):
    """Square root."""

    ufunc: ClassVar = np.sqrt

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (douts[0] * 0.5 / outputs[0],)


@primitive
class Rsqrt(Unary):
    """1 / sqrt(x)."""

    needs: ClassVar = Needs.SINGLE

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(np.reciprocal(np.sqrt(x)))

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        (y,) = outputs
        return (douts[0] * -0.5 * y * y * y,)

    def lower(self, b: Builder, x: str) -> str:
        return b.node("Reciprocal", (b.node("Sqrt", (x,)),))


@primitive
class Reciprocal(Unary):
    """1 / x."""

    needs: ClassVar = Needs.SINGLE
    ufunc: ClassVar = np.reciprocal

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (-(douts[0] * outputs[0] * outputs[0]),)


@primitive
class Exp(Unary):
    """e to the power x."""

    needs: ClassVar = Needs.SINGLE
    ufunc: ClassVar = np.exp

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (douts[0] * outputs[0],)


@primitive
class Log(Unary):
    """Natural logarithm."""

    needs: ClassVar = Needs.SINGLE
    ufunc: ClassVar = np.log

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (douts[0] / inputs[0],)


# Rounding to whole numbers.


@primitive
class Floor(Unary):
    """The largest whole number that is not above x; without a gradient."""

    is_flat: ClassVar = True
    ufunc: ClassVar = np.floor


@primitive
class Ceil(Unary):
    """The smallest whole number that is not below x; without a gradient."""

    is_flat: ClassVar = True
    ufunc: ClassVar = np.ceil


@primitive
class Round(Unary):
    """The nearest whole number, the even one of two; without a gradient."""

    is_flat: ClassVar = True
    ufunc: ClassVar = np.rint


@primitive
class Rint(Unary):
    """As Round."""

    is_flat: ClassVar = True
    ufunc: ClassVar = np.rint
    onnx: ClassVar = "Round"
