"""Variants of the usual activation functions: ReLU6, HSigmoid, HSwish, PReLU; and smooth ones: GeLU, Elu, Softplus."""

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from runner.core.lowering import Builder
from runner.core.operators import Gradient, Primitive, primitive
from runner.core.precision import Needs
from runner.core.values import Tensor, Value
from runner.ops.activation import Sigmoid
from runner.ops.array import Reshape, require
from runner.ops.compare import Greater, Select
from runner.ops.elementwise import Unary, UnaryGrad
from runner.ops.reduce import unbroadcast
from runner.types import Shape, TensorType

__all__ = ["Elu", "GeLU", "GeLUGrad", "HSigmoid", "HSwish", "PReLU", "ReLU6", "ReLU6Grad", "Softplus"]

# Hendrycks and Gimpel, "Gaussian Error Linear Units", section 2: gelu(x) ~ x/2 (1 + tanh(SLOPE (x + CUBIC x^3))).
SLOPE = math.sqrt(2.0 / math.pi)
CUBIC = 0.044715


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


@primitive
class GeLU(Unary):
    """x times the cumulative normal distribution at x, in the tanh approximation (as in r1.2)."""

    flops_each: ClassVar = 4

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(0.5 * x * (1.0 + _tanh_term(x)), x.dtype)

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (GeLUGrad()(douts[0], inputs[0]),)

    def lower(self, b: Builder, x: str) -> str:
        share = b.node("Add", (_lower_tanh_term(b, x), b.const(1.0, like=x)))
        return b.node("Mul", (b.node("Mul", (x, b.const(0.5, like=x))), share))


@primitive
class GeLUGrad(UnaryGrad):
    """dout times the derivative of GeLU at x."""

    flops_each: ClassVar = 4

    def kernel(self, dout: np.ndarray, x: np.ndarray) -> np.ndarray:
        tanh = _tanh_term(x)
        inner = SLOPE + 3.0 * SLOPE * CUBIC * (x * x)
        return np.asarray(dout * 0.5 * (1.0 + tanh + x * (1.0 - tanh * tanh) * inner), dout.dtype)

    def lower(self, b: Builder, dout: str, x: str) -> str:
        one, tanh = b.const(1.0, like=x), _lower_tanh_term(b, x)
        cubic = b.node("Mul", (b.node("Mul", (x, x)), b.const(3.0 * SLOPE * CUBIC, like=x)))
        inner = b.node("Mul", (x, b.node("Add", (cubic, b.const(SLOPE, like=x)))))
        steep = b.node("Mul", (b.node("Sub", (one, b.node("Mul", (tanh, tanh)))), inner))
        slope = b.node("Add", (b.node("Add", (tanh, one)), steep))
        return b.node("Mul", (b.node("Mul", (dout, b.const(0.5, like=x))), slope))


def _tanh_term(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.tanh(x * (SLOPE + SLOPE * CUBIC * (x * x))))


def _lower_tanh_term(b: Builder, x: str) -> str:
    cubic = b.node("Mul", (b.node("Mul", (x, x)), b.const(SLOPE * CUBIC, like=x)))
    return b.node("Tanh", (b.node("Mul", (x, b.node("Add", (cubic, b.const(SLOPE, like=x))))),))


@primitive
class Elu(Unary):
    """x where positive, else alpha (exp(x) - 1). The gradient at 0 is that from below, alpha."""

    flops_each: ClassVar = 4

    alpha: float = 1.0

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(np.where(x > 0, x, self.alpha * np.expm1(np.minimum(x, 0))), x.dtype)

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (Select()(Greater()(inputs[0], 0.0), douts[0], douts[0] * (outputs[0] + self.alpha)),)

    def lower(self, b: Builder, x: str) -> str:
        # onnxruntime's own Elu is exp(x) - 1, which is 0 for small x: exp(x) - 1 = tanh(x / 2) * (exp(x) + 1).
        zero = b.const(0.0, like=x)
        negative = b.node("Min", (x, zero))
        slope = b.node("Tanh", (b.node("Mul", (negative, b.const(0.5, like=x))),))
        below = b.node("Mul", (slope, b.node("Add", (b.node("Exp", (negative,)), b.const(1.0, like=x)))))
        scaled = b.node("Mul", (below, b.const(float(self.alpha), like=x)))
        return b.node("Where", (b.node("Greater", (x, zero)), x, scaled))


@primitive
class Softplus(Unary):
    """log(1 + exp(x)), computed without overflow."""

    flops_each: ClassVar = 4
    needs: ClassVar = Needs.SINGLE

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))), x.dtype)

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (douts[0] * Sigmoid()(inputs[0]),)
