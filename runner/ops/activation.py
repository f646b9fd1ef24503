"""Activation functions: ReLU, Sigmoid, Tanh, Softmax; their variants and approximations; and smooth ones.

Each has its gradient beside it, as an operator of its own where that is one pass over memory (`ReluGrad`).
"""

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from runner import dtype as dt
from runner.core.lowering import LAST, Builder, Lowering, axis_last, elementwise_lowerings
from runner.core.operators import KERNEL, LOWERING, Gradient, Primitive, family, primitive
from runner.core.parts import Axes, PartRule, Parts, apart_from, each_sample
from runner.core.precision import OperandPrecision
from runner.core.values import Tensor, Value
from runner.ops.array import Reshape, require
from runner.ops.elementwise.arithmetic import Abs, Reciprocal, Smooth, Unary, UnaryGrad, computed_in_blocks, in_blocks
from runner.ops.elementwise.compare import Greater, Select
from runner.ops.elementwise.functions import lower_log1p
from runner.ops.reduce import ReduceSum, unbroadcast
from runner.types import Shape, TensorType

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
    operand_names: ClassVar = ("y_backprop", "x")

    def kernel(self, dout: np.ndarray, out: np.ndarray) -> np.ndarray:
        result = np.empty_like(out)
        in_blocks(_masked, dout, out, result)
        return result

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return ReluGrad()(douts[0], inputs[1]), None

    def lower(self, b: Builder, dout: str, out: str) -> str:
        # Multiplying by a 0/1 mask is two to three times faster than Where on large tensors.
        return b.node("Mul", (dout, b.node("Sign", (b.node("Relu", (out,)),))))

    def lowerings(self, dout: TensorType, out: TensorType) -> Sequence[Lowering]:
        return elementwise_lowerings(self._lower_steep if out.dtype is dt.float32 else self.lower, dout, out)

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


# onnxruntime's kernels sum in as many lanes as the processor has: with more columns than the 16 of AVX-512 the bits of
# a row depend on the machine. Below max(x) - 88 so does whether a result of Softmax is 0 or denormal, with any columns.
# Five operators that do not depend on it take 1.3 to 5 times as long; to cut the rows into parts that stay in the cache
# costs more than it gains.
KERNEL_COLUMNS = 16  # of LogSoftmax


def lower_softmax(b: Builder, kind: str, x: str, axis: int, length: int) -> str:
    """Softmax or LogSoftmax (`kind`) along the axis at this place of the array, which has this length."""
    if kind == "LogSoftmax" and length <= KERNEL_COLUMNS:
        return b.node(kind, (x,), axis=axis)
    axes = b.const([axis])
    shifted = b.node("Sub", (x, b.node("ReduceMax", (x, axes), keepdims=1)))
    powers = b.node("Exp", (shifted,))
    total = b.node("ReduceSum", (powers, axes), keepdims=1)
    return b.node("Div", (powers, total)) if kind == "Softmax" else b.node("Sub", (shifted, b.node("Log", (total,))))


@family
class AlongAxis(Primitive):
    """Base: floats in the type of x, computed along `axis`, whose position differs in the batch-last layout."""

    flops_each: ClassVar = 5  # maximum, difference, exponential, sum, quotient
    precision: ClassVar = OperandPrecision.SINGLE
    needs_elements: ClassVar = True

    axis: int = -1

    def __post_init__(self) -> None:
        if isinstance(self.axis, list | tuple):  # MindSpore allows a tuple of one axis
            require(len(self.axis) == 1, "needs one axis", axis=self.axis)
            object.__setattr__(self, "axis", self.axis[0])

    def infer(self, x: TensorType) -> TensorType:
        fits = x.dtype.is_float and -x.ndim <= self.axis < x.ndim
        require(fits, "needs floats and an axis in range", x=x, axis=self.axis)
        return x

    def part(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> PartRule | None:
        return apart_from(self, types, axes, [self.axis])

    def lower(self, b: Builder, x: str) -> str:
        return lower_softmax(b, self.name, x, self.axis, b.type(x).shape[self.axis])

    def lowerings(self, x: TensorType) -> Sequence[Lowering]:
        plain = Lowering("plain", self.lower)
        return (plain, Lowering("last", self._lower_last, (LAST,), (LAST,))) if x.ndim >= 2 else (plain,)

    def _lower_last(self, b: Builder, x: str) -> str:
        shape = b.type(x).shape
        return lower_softmax(b, self.name, x, axis_last(self.axis, len(shape)), shape[self.axis])


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


# Variants of the usual activation functions: ReLU6, HSigmoid, HSwish, PReLU; and smooth ones: GeLU, Elu, Softplus.

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

    precision: ClassVar = OperandPrecision.FIRST

    def infer(self, x: TensorType, weight: TensorType) -> TensorType:
        require(x.ndim >= 2 and x.dtype.is_float, "needs floats (N, C, ...)", x=x)
        fits = weight.shape in ((1,), x.shape[1:2]) and weight.dtype is x.dtype
        require(fits, "needs one weight, or one per channel", x=f"{x} has {x.shape[1]} channels", weight=weight)
        return x

    def kernel(self, x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return np.where(x > 0, x, x * weight.reshape(_per_channel(x.ndim)))

    def part(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> PartRule | None:
        return each_sample(self, axes, (0, None), (0,))

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
    depends_on_libc: ClassVar = (KERNEL,)

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
    depends_on_libc: ClassVar = (KERNEL, LOWERING)
    precision: ClassVar = OperandPrecision.SINGLE

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))), x.dtype)

    def lower(self, b: Builder, x: str) -> str:
        """onnxruntime's Softplus of Float64 overflows from 710 on, and is 0 below -37."""
        if b.type(x).dtype is not dt.float64:
            return super().lower(b, x)
        small = b.node("Exp", (b.node("Neg", (b.node("Abs", (x,)),)),))
        rest = lower_log1p(b, small, b.const(1.0, like=x))
        return b.node("Add", (b.node("Max", (x, b.const(0.0, like=x))), rest))

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (douts[0] * Sigmoid()(inputs[0]),)


# Activation functions that are smooth, or nearly so, composed of elementwise ones.

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
        return share * share


@primitive
class Mish(Smooth):
    """x * tanh(log(1 + exp(x)))."""

    flops_each: ClassVar = 8
    depends_on_libc: ClassVar = (KERNEL, LOWERING)
    precision: ClassVar = OperandPrecision.SINGLE

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(x * np.tanh(Softplus().kernel(x)), x.dtype)

    def slope(self, x: Value, y: Value) -> Value:
        share = Tanh()(Softplus()(x))
        return share + x * (1.0 - share * share) * Sigmoid()(x)

    def lower(self, b: Builder, x: str) -> str:
        return b.node("Mul", (x, b.node("Tanh", (Softplus().lower(b, x),))))


@primitive
class SeLU(Smooth):
    """1.0507 times x where positive, else 1.0507 * 1.6733 * (exp(x) - 1). The gradient at 0 is that from below."""

    flops_each: ClassVar = 5
    depends_on_libc: ClassVar = (KERNEL,)

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(SELU_SCALE * Elu(SELU_ALPHA).kernel(x), x.dtype)

    def slope(self, x: Value, y: Value) -> Value:
        return Select()(x > 0.0, Tensor(SELU_SCALE, x.dtype), y + SELU_SCALE * SELU_ALPHA)

    def lower(self, b: Builder, x: str) -> str:
        return b.node("Mul", (Elu(SELU_ALPHA).lower(b, x), b.const(SELU_SCALE, like=x)))


@primitive
class FastGeLU(Smooth):
    """x * sigmoid(1.702 x)."""

    flops_each: ClassVar = 6
    precision: ClassVar = OperandPrecision.SINGLE

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(x * Sigmoid().kernel(x * x.dtype.type(GELU_SLOPE)))

    def slope(self, x: Value, y: Value) -> Value:
        share = Sigmoid()(x * GELU_SLOPE)
        return share + x * GELU_SLOPE * share * (1.0 - share)

    def lower(self, b: Builder, x: str) -> str:
        steep = b.node("Exp", (b.node("Mul", (x, b.const(-GELU_SLOPE, like=x))),))
        return b.node("Mul", (x, b.node("Reciprocal", (b.node("Add", (steep, b.const(1.0, like=x))),))))
