"""Activation functions that are smooth, or nearly so, composed of elementwise ones."""

from typing import ClassVar

import numpy as np

from runner.core.lowering import Builder
from runner.core.operators import primitive
from runner.core.precision import Needs
from runner.core.values import Tensor, Value
from runner.ops.activation import Sigmoid, Tanh
from runner.ops.activation_variants import Elu, Softplus
from runner.ops.compare import Select
from runner.ops.elementwise import Abs
from runner.ops.math import Reciprocal
from runner.ops.smooth import Smooth

__all__ = ["FastGeLU", "Mish", "SeLU", "Softsign"]

# The fixed point of the mean 0 and the variance 1 of normal operands.
SELU_ALPHA, SELU_SCALE = 1.67326324, 1.05070098
GELU_SLOPE = 1.702


@primitive
class Softsign(Smooth):
    """x / (1 + |x|)."""

    flops_each: ClassVar = 3

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(x / (1 + np.abs(x)), x.dtype)

    def slope(self, x: Value, y: Value) -> Value:
        share = Reciprocal()(Abs()(x) + 1.0)
        slope: Value = share * share
        return slope


@primitive
class Mish(Smooth):
    """x * tanh(log(1 + exp(x)))."""

    flops_each: ClassVar = 8
    needs: ClassVar = Needs.SINGLE

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(x * np.tanh(Softplus().kernel(x)), x.dtype)

    def slope(self, x: Value, y: Value) -> Value:
        share = Tanh()(Softplus()(x))
        slope: Value = share + x * (1.0 - share * share) * Sigmoid()(x)
        return slope

    def lower(self, b: Builder, x: str) -> str:
        return b.node("Mul", (x, b.node("Tanh", (Softplus().lower(b, x),))))


@primitive
class SeLU(Smooth):
    """1.0507 times x where positive, else 1.0507 * 1.6733 * (exp(x) - 1). The gradient at 0 is that from below."""

    flops_each: ClassVar = 5

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(SELU_SCALE * Elu(SELU_ALPHA).kernel(x), x.dtype)

    def slope(self, x: Value, y: Value) -> Value:
        slope: Value = Select()(x > 0.0, Tensor(SELU_SCALE, x.dtype), y + SELU_SCALE * SELU_ALPHA)
        return slope

    def lower(self, b: Builder, x: str) -> str:
        return b.node("Mul", (Elu(SELU_ALPHA).lower(b, x), b.const(SELU_SCALE, like=x)))


@primitive
class FastGeLU(Smooth):
    """x * sigmoid(1.702 x)."""

    flops_each: ClassVar = 6
    needs: ClassVar = Needs.SINGLE

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(x * Sigmoid().kernel(x * x.dtype.type(GELU_SLOPE)))

    def slope(self, x: Value, y: Value) -> Value:
        share = Sigmoid()(x * GELU_SLOPE)
        slope: Value = share + x * GELU_SLOPE * share * (1.0 - share)
        return slope

    def lower(self, b: Builder, x: str) -> str:
        steep = b.node("Exp", (b.node("Mul", (x, b.const(-GELU_SLOPE, like=x))),))
        return b.node("Mul", (x, b.node("Reciprocal", (b.node("Add", (steep, b.const(1.0, like=x))),))))
