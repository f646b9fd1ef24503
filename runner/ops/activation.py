"""Activation functions."""

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from runner import dtype as dt
from runner.core.lowering import LAST, Builder, Form, axis_last, elementwise_forms
from runner.core.operators import Gradient, Primitive, family, primitive
from runner.core.precision import Needs
from runner.core.values import Value
from runner.ops.array import require
from runner.ops.elementwise import Unary, UnaryGrad
from runner.ops.elementwise_blocks import computed_in_blocks, in_blocks
from runner.ops.reduce import ReduceSum
from runner.types import TensorType

__all__ = ["LogSoftmax", "ReLU", "ReluGrad", "Sigmoid", "Softmax", "Tanh"]

STEEP = float(np.finfo(np.float32).max)


@primitive
class ReLU(Unary):
    """max(x, 0)."""

    onnx: ClassVar = "Relu"
    never_decreases: ClassVar = True

    def kernel(self, x: np.ndarray) -> np.ndarray:
        zero = x.dtype.type(0)  # in NumPy 1, a scalar and a Python 0 give a Float64
        return computed_in_blocks(lambda x, **out: np.maximum(x, zero, **out), x)

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (ReluGrad()(douts[0], outputs[0]),)


@primitive
class ReluGrad(UnaryGrad):
    """dout where ReLU's result `out` is positive, NaN where it is NaN, else 0."""

    gradient_of: ClassVar = "ReLU"

    def kernel(self, dout: np.ndarray, out: np.ndarray) -> np.ndarray:
        result = np.empty_like(out)
        in_blocks(_masked, dout, out, result)
        return result

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return ReluGrad()(douts[0], inputs[1]), None

    def lower(self, b: Builder, dout: str, out: str) -> str:
        # Multiplying by a 0/1 mask is two to three times faster than Where on large tensors.
        return b.node("Mul", (dout, b.node("Sign", (b.node("Relu", (out,)),))))

    def forms(self, dout: TensorType, out: TensorType) -> Sequence[Form]:
        return elementwise_forms(self._lower_steep if out.dtype is dt.float32 else self.lower, dout, out)

    def _lower_steep(self, b: Builder, dout: str, out: str) -> str:
        """As `lower`, with the mask computed in one pass: a ramp so steep that every normal positive number gives 1."""
        return b.node("Mul", (dout, b.node("HardSigmoid", (out,), alpha=STEEP, beta=0.0)))


def _masked(dout: np.ndarray, out: np.ndarray, result: np.ndarray) -> None:
    np.copyto(result, out > 0)  # numpy multiplies bools with floats slowly
    result *= dout
    if out.size and math.isnan(out.max()):  # a quarter of the time of looking at every element
        result[np.isnan(out)] = np.nan


@primitive
class Sigmoid(Unary):
    """1 / (1 + exp(-x)), precise also where it is almost 0: onnxruntime's own Sigmoid is 0 below -18."""

    flops_each: ClassVar = 4

    def kernel(self, x: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):  # exp(-x) is infinite for x < -88, and the result 0
            return np.asarray(np.reciprocal(np.exp(-x) + x.dtype.type(1)))

    def lower(self, b: Builder, x: str) -> str:
        inverse = b.node("Add", (b.node("Exp", (b.node("Neg", (x,)),)), b.const(1.0, like=x)))
        return b.node("Reciprocal", (inverse,))

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (douts[0] * outputs[0] * (1.0 - outputs[0]),)


@primitive
class Tanh(Unary):
    """Hyperbolic tangent."""

    flops_each: ClassVar = 4
    ufunc: ClassVar = np.tanh

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (douts[0] * (1.0 - outputs[0] * outputs[0]),)


def log_softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    """log(exp(x) / sum(exp(x))), computed from x - max(x) to avoid overflow."""
    shifted = x - x.max(axis, keepdims=True)
    result: np.ndarray = shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))
    return result


@family
class AlongAxis(Primitive):
    """Base: floats in the type of x, computed along `axis`, whose position differs in the batch-last layout."""

    flops_each: ClassVar = 5  # maximum, difference, exponential, sum, quotient
    needs: ClassVar = Needs.SINGLE
    needs_elements: ClassVar = True

    axis: int = -1

    def __post_init__(self) -> None:
        if isinstance(self.axis, list | tuple):  # the reference allows a tuple of one axis
            require(len(self.axis) == 1, "needs one axis", axis=self.axis)
            object.__setattr__(self, "axis", self.axis[0])

    def infer(self, x: TensorType) -> TensorType:
        fits = x.dtype.is_float and -x.ndim <= self.axis < x.ndim
        require(fits, "needs floats and an axis in range", x=x, axis=self.axis)
        return x

    def lower(self, b: Builder, x: str) -> str:
        return b.node(self.onnx, (x,), axis=self.axis)

    def forms(self, x: TensorType) -> Sequence[Form]:
        plain = Form("plain", self.lower)
        if x.ndim < 2:
            return (plain,)
        return plain, Form("last", type(self)(axis_last(self.axis, x.ndim)).lower, (LAST,), (LAST,))


@primitive
class Softmax(AlongAxis):
    """exp(x) / sum(exp(x)) along `axis`."""

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(np.exp(log_softmax(x, self.axis)))

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        (y,), (dout,) = outputs, douts
        return (y * (dout - ReduceSum(True, self.axis)(dout * y)),)


@primitive
class LogSoftmax(AlongAxis):
    """Logarithm of Softmax along `axis`."""

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return log_softmax(x, self.axis)

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        (x,), (dout,) = inputs, douts
        return (dout - Softmax(self.axis)(x) * ReduceSum(True, self.axis)(dout),)
