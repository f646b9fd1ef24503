"""Nonlinearities with exponentials in them: GeLU, Elu, Softplus."""

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from runner.core.lowering import Builder, Form, elementwise_forms
from runner.core.precision import Needs
from runner.core.primitive import Gradient, Primitive, primitive
from runner.core.value import Value
from runner.ops.activation import Sigmoid
from runner.ops.array import require
from runner.ops.compare import Greater, Select
from runner.ops.elementwise import Unary
from runner.types import TensorType

# Hendrycks and Gimpel, "Gaussian Error Linear Units", section 2: gelu(x) ~ x/2 (1 + tanh(SLOPE (x + CUBIC x^3))).
SLOPE = math.sqrt(2.0 / math.pi)
CUBIC = 0.044715


@primitive
class GeLU(Unary):
    """x times the normal distribution's integral up to x, in the approximation by a tanh (as in r1.2)."""

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(0.5 * x * (1.0 + _bent(x)), x.dtype)

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (GeLUGrad()(douts[0], inputs[0]),)

    def lower(self, b: Builder, x: str) -> str:
        share = b.node("Add", (_lower_bent(b, x), b.const(1.0, like=x)))
        return b.node("Mul", (b.node("Mul", (x, b.const(0.5, like=x))), share))


@primitive
class GeLUGrad(Primitive):
    """dout times the derivative of GeLU at x."""

    def infer(self, dout: TensorType, x: TensorType) -> TensorType:
        require(dout == x, "dout and x must have one type", dout=dout, x=x)
        return dout

    def kernel(self, dout: np.ndarray, x: np.ndarray) -> np.ndarray:
        bent = _bent(x)
        rise = SLOPE + 3.0 * SLOPE * CUBIC * (x * x)
        return np.asarray(dout * 0.5 * (1.0 + bent + x * (1.0 - bent * bent) * rise), dout.dtype)

    def lower(self, b: Builder, dout: str, x: str) -> str:
        one, bent = b.const(1.0, like=x), _lower_bent(b, x)
        cubic = b.node("Mul", (b.node("Mul", (x, x)), b.const(3.0 * SLOPE * CUBIC, like=x)))
        rise = b.node("Mul", (x, b.node("Add", (cubic, b.const(SLOPE, like=x)))))
        steep = b.node("Mul", (b.node("Sub", (one, b.node("Mul", (bent, bent)))), rise))
        slope = b.node("Add", (b.node("Add", (bent, one)), steep))
        return b.node("Mul", (b.node("Mul", (dout, b.const(0.5, like=x))), slope))

    def forms(self, dout: TensorType, x: TensorType) -> Sequence[Form]:
        return elementwise_forms(self.lower, dout, x)


def _bent(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.tanh(x * (SLOPE + SLOPE * CUBIC * (x * x))))


def _lower_bent(b: Builder, x: str) -> str:
    cubic = b.node("Mul", (b.node("Mul", (x, x)), b.const(SLOPE * CUBIC, like=x)))
    return b.node("Tanh", (b.node("Mul", (x, b.node("Add", (cubic, b.const(SLOPE, like=x))))),))


@primitive
class Elu(Unary):
    """x where it is positive, else alpha (exp(x) - 1). The gradient at 0 is the one from below, alpha."""

    alpha: float = 1.0

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(np.where(x > 0, x, self.alpha * np.expm1(np.minimum(x, 0))), x.dtype)

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (Select()(Greater()(inputs[0], 0.0), douts[0], douts[0] * (outputs[0] + self.alpha)),)

    def lower(self, b: Builder, x: str) -> str:
        return b.node("Elu", (x,), alpha=float(self.alpha))  # attributes of ONNX are Float32, also when x is Float64


@primitive
class Softplus(Unary):
    """log(1 + exp(x)), computed so that nothing overflows."""

    needs: ClassVar = Needs.SINGLE
    onnx: ClassVar = "Softplus"

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))), x.dtype)

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (douts[0] * Sigmoid()(inputs[0]),)
