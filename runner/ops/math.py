"""More functions of one operand: elementwise ones, and the detection of values that are not finite."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from runner.core.lowering import Builder, Form, elementwise_forms
from runner.core.operators import Gradient, Primitive, primitive
from runner.core.precision import Needs
from runner.core.values import Value
from runner.ops.array import require
from runner.ops.elementwise import Unary
from runner.types import TensorType

__all__ = ["Cos", "FloatStatus", "Floor", "OnesLike", "Reciprocal", "Rsqrt", "Sin", "ZerosLike"]


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


@primitive
class Floor(Unary):
    """The largest whole number that is not above x; without a gradient."""

    is_flat: ClassVar = True
    ufunc: ClassVar = np.floor


class ConstantLike(Primitive):
    """Base: a constant in the type of x."""

    computes: ClassVar = False
    is_flat: ClassVar = True
    number: ClassVar[int]

    def infer(self, x: TensorType) -> TensorType:
        return x

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return np.full(x.shape, self.number, x.dtype)

    def lower(self, b: Builder, x: str) -> str:
        kind = b.type(x)
        return b.node("Expand", (b.const(np.array(self.number, kind.dtype.numpy)), b.const(list(kind.shape))))


@primitive
class OnesLike(ConstantLike):
    """Ones in the type of x."""

    number: ClassVar = 1


@primitive
class ZerosLike(ConstantLike):
    """Zeros in the type of x."""

    number: ClassVar = 0


@primitive
class FloatStatus(Primitive):
    """0 when all elements of x (floats) are finite, else 1: (1,) in the element type of x."""

    is_flat: ClassVar = True

    def infer(self, x: TensorType) -> TensorType:
        require(x.dtype.is_float, "needs floats", x=x)
        return x.with_shape(1)

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return np.asarray([not np.isfinite(x).all()], x.dtype)

    def lower(self, b: Builder, x: str) -> str:
        # x * 0 is 0 for finite x, else NaN; and a sum of zeros cannot overflow.
        zeros = b.node("Mul", (x, b.const(0.0, like=x)))
        not_finite = b.node("IsNaN", (b.node("ReduceSum", (zeros,), keepdims=0),))
        return b.reshape(b.node("Cast", (not_finite,), to=b.type(x).dtype), (1,))

    def forms(self, x: TensorType) -> Sequence[Form]:
        return elementwise_forms(self.lower, x, results=0)
