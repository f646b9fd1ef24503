"""Piecewise linear and quadratic activation functions: ReLU6, HSigmoid, HSwish, PReLU."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from runner.core.lowering import Builder
from runner.core.precision import Needs
from runner.core.primitive import Gradient, Primitive, primitive
from runner.core.value import Tensor, Value
from runner.ops.array import Reshape, require
from runner.ops.compare import Greater, Select
from runner.ops.elementwise import Unary, UnaryGrad
from runner.ops.reduce import unbroadcast
from runner.types import Shape, TensorType

__all__ = ["HSigmoid", "HSwish", "PReLU", "ReLU6", "ReLU6Grad"]


@primitive
class ReLU6(Unary):
    """min(max(x, 0), 6)."""

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return _clip(x)

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (ReLU6Grad()(douts[0], inputs[0]),)

    def lower(self, b: Builder, x: str) -> str:
        return _lower_clip(b, x, x)


@primitive
class ReLU6Grad(UnaryGrad):
    """dout where 0 < x < 6 for the operand x of ReLU6, else 0."""

    def kernel(self, dout: np.ndarray, x: np.ndarray) -> np.ndarray:
        result: np.ndarray = dout * ((x > 0) & (x < 6))
        return result

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return ReLU6Grad()(douts[0], inputs[1]), None

    def lower(self, b: Builder, dout: str, x: str) -> str:
        above, below = b.node("Greater", (x, b.const(0.0, like=x))), b.node("Less", (x, b.const(6.0, like=x)))
        return b.node("Mul", (dout, b.node("Cast", (b.node("And", (above, below)),), to=b.type(x).dtype)))


@primitive
class HSigmoid(Unary):
    """ReLU6(x + 3) / 6."""

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(_clip(x + x.dtype.type(3)) / x.dtype.type(6))

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (ReLU6Grad()(douts[0], inputs[0] + 3.0) / 6.0,)

    def lower(self, b: Builder, x: str) -> str:
        shifted = b.node("Add", (x, b.const(3.0, like=x)))
        return b.node("Div", (_lower_clip(b, shifted, x), b.const(6.0, like=x)))


@primitive
class HSwish(Unary):
    """x times HSigmoid(x)."""

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(x * HSigmoid().kernel(x))

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        (x,), (dout,) = inputs, douts
        return (dout * HSigmoid()(x) + ReLU6Grad()(dout * x, x + 3.0) / 6.0,)

    def lower(self, b: Builder, x: str) -> str:
        return b.node("Mul", (x, HSigmoid().lower(b, x)))


def _clip(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.minimum(np.maximum(x, x.dtype.type(0)), x.dtype.type(6)))


def _lower_clip(b: Builder, x: str, like: str) -> str:
    return b.node("Clip", (x, b.const(0.0, like=like), b.const(6.0, like=like)))


@primitive
class PReLU(Primitive):
    """x where positive, else weight * x; x (N, C, ...), weight (C,), or (1,) for all channels."""

    needs: ClassVar = Needs.FIRST

    def infer(self, x: TensorType, weight: TensorType) -> TensorType:
        require(x.ndim >= 2 and x.dtype.is_float, "needs floats (N, C, ...)", x=x)
        fits = weight.shape in ((1,), x.shape[1:2]) and weight.dtype is x.dtype
        require(fits, "needs one weight, or one per channel", x=f"{x} has {x.shape[1]} channels", weight=weight)
        return x

    def kernel(self, x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return np.where(x > 0, x, x * weight.reshape(_per_channel(x.ndim)))

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        (x, weight), (dout,) = inputs, douts
        slope = Reshape(_per_channel(x.ndim))(weight)
        positive, zero = Greater()(x, 0.0), Tensor(0.0, x.dtype)
        return (
            lambda: Select()(positive, dout, dout * slope),
            lambda: Reshape(weight.shape)(unbroadcast(Select()(positive, zero, dout * x), slope)),
        )

    def lower(self, b: Builder, x: str, weight: str) -> str:
        return b.node("PRelu", (x, b.reshape(weight, _per_channel(b.type(x).ndim))))


def _per_channel(ndim: int) -> Shape:
    return -1, *(1,) * (ndim - 2)
