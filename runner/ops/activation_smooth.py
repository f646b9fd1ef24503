"""Activation functions with exponentials: GeLU, Elu, Softplus."""

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from runner.core.lowering import Builder
from runner.core.precision import Needs
from runner.core.primitive import Gradient, primitive
from runner.core.value import Value
from runner.ops.activation import Sigmoid
from runner.ops.compare import Greater, Select
from runner.ops.elementwise import Unary, UnaryGrad

__all__ = ["Elu", "GeLU", "GeLUGrad", "Softplus"]

# Hendrycks and Gimpel, "Gaussian Error Linear Units", section 2: gelu(x) ~ x/2 (1 + tanh(SLOPE (x + CUBIC x^3))).
SLOPE = math.sqrt(2.0 / math.pi)
CUBIC = 0.044715


@primitive
class GeLU(Unary):
    """x times the cumulative normal distribution at x, in the tanh approximation (as in r1.2)."""

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

    alpha: float = 1.0

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(np.where(x > 0, x, self.alpha * np.expm1(np.minimum(x, 0))), x.dtype)

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (Select()(Greater()(inputs[0], 0.0), douts[0], douts[0] * (outputs[0] + self.alpha)),)

    def lower(self, b: Builder, x: str) -> str:
        return b.node("Elu", (x,), alpha=float(self.alpha))  # ONNX attributes are Float32, even for a Float64 x


@primitive
class Softplus(Unary):
    """log(1 + exp(x)), computed without overflow."""

    needs: ClassVar = Needs.SINGLE

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))), x.dtype)

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (douts[0] * Sigmoid()(inputs[0]),)
