"""Layer normalisation (Ba, Kiros and Hinton, 2016), and its gradient."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from runner.core.lowering import Builder
from runner.core.operators import Gradient, Primitive, family, primitive
from runner.core.precision import Needs
from runner.core.values import Value
from runner.ops.array import require
from runner.types import Shape, TensorType, resolve_axes

__all__ = ["LayerNorm", "LayerNormGrad"]


@family
class Normalization(Primitive):
    """Base: axes from `begin_norm_axis` are normalised; gamma and beta have the axes from `begin_params_axis`."""

    needs_elements: ClassVar = True

    needs: ClassVar = Needs.SINGLE

    begin_norm_axis: int = 1
    begin_params_axis: int = 1
    epsilon: float = 1e-7

    def axes(self, ndim: int) -> tuple[int, ...]:
        """The axes of mean and variance."""
        return tuple(range(resolve_axes(self.begin_norm_axis, ndim)[0], ndim))

    def params_at(self, ndim: int) -> int:
        """The first axis of gamma and beta."""
        return resolve_axes(self.begin_params_axis, ndim)[0]

    def keepdims_shape(self, shape: Shape) -> Shape:
        """Shape of mean and variance: normalised axes have length 1."""
        axes = self.axes(len(shape))
        return tuple(1 if k in axes else n for k, n in enumerate(shape))

    def mean(self, b: Builder, value: str, ndim: int) -> str:
        """Lower the mean of a value over the normalised axes."""
        return b.node("ReduceMean", (value, b.const(list(self.axes(ndim)))), keepdims=1)

    def centre_and_deviation(self, b: Builder, x: str, mean: str, variance: str) -> tuple[str, str]:
        """Lower x - mean and the deviation sqrt(variance + epsilon)."""
        inside = b.node("Add", (variance, b.const(float(self.epsilon), like=x)))
        return b.node("Sub", (x, mean)), b.node("Sqrt", (inside,))


@primitive
class LayerNorm(Normalization):
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta; outputs: y, mean and variance (biased).

    x of floats; gamma and beta have the shape of x from `begin_params_axis`. In mean and variance the normalised axes
    have length 1. As in the reference, the second and third output have no gradient.
    """

    flops_each: ClassVar = 7  # as BatchNorm
    without_gradient: ClassVar = (1, 2)

    def infer(self, x: TensorType, gamma: TensorType, beta: TensorType) -> tuple[TensorType, TensorType, TensorType]:
        require(x.ndim >= 1 and x.dtype.is_float, "needs floats with at least one axis", x=x)
        expected = x.with_shape(*x.shape[self.params_at(x.ndim) :])
        fits = gamma == beta == expected
        require(fits, "gamma and beta do not match x", x=x, gamma=gamma, beta=beta, expected=expected)
        few = x.with_shape(*self.keepdims_shape(x.shape))
        return x, few, few

    def kernel(self, x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        axes = self.axes(x.ndim)
        mean = x.mean(axes, dtype=x.dtype, keepdims=True)
        centred = x - mean
        variance = np.square(centred).mean(axes, dtype=x.dtype, keepdims=True)
        centred /= np.sqrt(variance + x.dtype.type(self.epsilon))
        centred *= gamma
        centred += beta
        return centred, mean, variance

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        (x, gamma, _), (_, mean, variance) = inputs, outputs
        gradients: tuple[Value, Value, Value] = LayerNormGrad(**self.attributes())(x, douts[0], variance, mean, gamma)
        return gradients

    def lower(self, b: Builder, x: str, gamma: str, beta: str) -> tuple[str, str, str]:
        # Not the LayerNormalization of ONNX, whose third output is 1 / deviation instead of the variance.
        ndim = b.type(x).ndim
        mean = self.mean(b, x, ndim)
        centred = b.node("Sub", (x, mean))
        variance = self.mean(b, b.node("Mul", (centred, centred)), ndim)
        normal = b.node("Div", self.centre_and_deviation(b, x, mean, variance))
        return b.node("Add", (b.node("Mul", (normal, gamma)), beta)), mean, variance


@primitive
class LayerNormGrad(Normalization):
    """Gradients of LayerNorm with respect to x, gamma and beta: (x, dout, variance, mean, gamma)."""

    flops_each: ClassVar = 11

    def infer(
        self, x: TensorType, dout: TensorType, variance: TensorType, mean: TensorType, gamma: TensorType
    ) -> tuple[TensorType, TensorType, TensorType]:
        expected = LayerNorm(**self.attributes()).infer(x, gamma, gamma)
        fits = (dout, mean, variance) == expected
        require(fits, "dout, mean and variance must have LayerNorm's types", dout=dout, mean=mean, variance=variance)
        return x, gamma, gamma

    def kernel(
        self, x: np.ndarray, dout: np.ndarray, variance: np.ndarray, mean: np.ndarray, gamma: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        axes, lead = self.axes(x.ndim), tuple(range(self.params_at(x.ndim)))
        deviation = np.sqrt(variance + x.dtype.type(self.epsilon))
        normal, weighed = (x - mean) / deviation, dout * gamma
        along = (weighed * normal).mean(axes, dtype=x.dtype, keepdims=True)
        dx = (weighed - weighed.mean(axes, dtype=x.dtype, keepdims=True) - normal * along) / deviation
        return dx, (dout * normal).sum(lead, dtype=x.dtype), dout.sum(lead, dtype=x.dtype)

    def lower(self, b: Builder, x: str, dout: str, variance: str, mean: str, gamma: str) -> tuple[str, str, str]:
        ndim = b.type(x).ndim
        centred, deviation = self.centre_and_deviation(b, x, mean, variance)
        normal, weighed = b.node("Div", (centred, deviation)), b.node("Mul", (dout, gamma))
        along = b.node("Mul", (normal, self.mean(b, b.node("Mul", (weighed, normal)), ndim)))
        across = b.node("Sub", (weighed, self.mean(b, weighed, ndim)))
        dx = b.node("Div", (b.node("Sub", (across, along)), deviation))
        lead = b.const(list(range(self.params_at(ndim))))
        parts = b.node("Mul", (dout, normal)), dout
        # Without leading axes there is nothing to sum; an empty list means all axes without noop_with_empty_axes.
        dgamma, dbeta = (b.node("ReduceSum", (part, lead), keepdims=0, noop_with_empty_axes=1) for part in parts)
        return dx, dgamma, dbeta
