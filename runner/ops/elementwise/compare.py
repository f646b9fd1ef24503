"""Comparisons, selection of elements by a condition, logic of Bool and of bits, and tests of numbers."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from runner import dtype as dt
from runner.core.lowering import ORDERED, Builder, Lowering, elementwise_lowerings
from runner.core.operators import Gradient, Primitive, primitive
from runner.core.values import Tensor, Value
from runner.ops.array import Cast, require
from runner.ops.elementwise.arithmetic import Binary, Unary, broadcast_lowerings, with_rank_of
from runner.ops.reduce import unbroadcast
from runner.types import TensorType, broadcast

# Comparisons.


class Comparison(Binary):
    """Base: the result is Bool."""

    is_flat: ClassVar = True

    def infer(self, x: TensorType, y: TensorType) -> TensorType:
        return super().infer(x, y).with_dtype(dt.bool_)


@primitive
class Equal(Comparison):
    """x == y."""

    bools: ClassVar = True
    ufunc: ClassVar = np.equal


@primitive
class NotEqual(Comparison):
    """x != y."""

    bools: ClassVar = True
    ufunc: ClassVar = np.not_equal

    def lower(self, b: Builder, x: str, y: str) -> str:
        return b.node("Not", (b.node("Equal", (x, y)),))


@primitive
class Greater(Comparison):
    """x > y."""

    ufunc: ClassVar = np.greater


@primitive
class GreaterEqual(Comparison):
    """x >= y."""

    ufunc: ClassVar = np.greater_equal
    onnx: ClassVar = "GreaterOrEqual"


@primitive
class Less(Comparison):
    """x < y."""

    ufunc: ClassVar = np.less


@primitive
class LessEqual(Comparison):
    """x <= y."""

    ufunc: ClassVar = np.less_equal
    onnx: ClassVar = "LessOrEqual"


@primitive
class ApproximateEqual(Comparison):
    """Whether |x - y| is below `tolerance`."""

    floats_only: ClassVar = True

    tolerance: float = 1e-5

    def kernel(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(np.abs(x - y) < x.dtype.type(self.tolerance))

    def lower(self, b: Builder, x: str, y: str) -> str:
        difference = b.node("Abs", (b.node("Sub", (x, y)),))
        return b.node("Less", (difference, b.const(np.array(self.tolerance, b.type(x).dtype.numpy))))


# Selection: the larger or smaller of two elements, or one of two by a condition.


class Extremum(Binary):
    """Base of Maximum and Minimum: where the operands are equal, the gradient goes to x."""

    comparison: ClassVar[type[Binary]]
    wider: ClassVar = ORDERED

    def lower(self, b: Builder, x: str, y: str) -> str:
        """onnxruntime's Max and Min read the lower halves of Int64 as signed numbers: 5 would exceed 3_000_000_000."""
        if b.type(x).dtype is not dt.int64:
            return super().lower(b, x, y)
        x, y = with_rank_of(b, x, y), with_rank_of(b, y, x)
        return b.node("Where", (b.node(self.comparison().onnx, (x, y)), x, y))

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        x, y = inputs
        first = Cast(douts[0].dtype)(self.comparison()(x, y))
        return lambda: unbroadcast(douts[0] * first, x), lambda: unbroadcast(douts[0] * (1.0 - first), y)


@primitive
class Maximum(Extremum):
    """The larger of x and y."""

    ufunc: ClassVar = np.maximum
    onnx: ClassVar = "Max"
    comparison: ClassVar = GreaterEqual


@primitive
class Minimum(Extremum):
    """The smaller of x and y."""

    ufunc: ClassVar = np.minimum
    onnx: ClassVar = "Min"
    comparison: ClassVar = LessEqual


@primitive
class Select(Primitive):
    """x where the condition (Bool) holds, else y; all of one shape after broadcasting."""

    elementwise: ClassVar = True
    computes: ClassVar = False
    wider: ClassVar = {**ORDERED, dt.uint64: dt.int64}

    def infer(self, condition: TensorType, x: TensorType, y: TensorType) -> TensorType:
        require(condition.dtype is dt.bool_, "the condition must be Bool", condition=condition)
        require(x.dtype is y.dtype, "both choices must have the same element type", x=x, y=y)
        return x.with_shape(*broadcast(condition, x, y))

    def kernel(self, condition: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.where(condition, x, y)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return outputs[0].size

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        condition, x, y = inputs
        zero = Tensor(0.0, x.dtype)
        return (
            None,
            lambda: unbroadcast(Select()(condition, douts[0], zero), x),
            lambda: unbroadcast(Select()(condition, zero, douts[0]), y),
        )

    def lower(self, b: Builder, condition: str, x: str, y: str) -> str:
        if b.type(x).dtype is not dt.bool_:
            return b.node("Where", (condition, x, y))
        second = b.node("And", (b.node("Not", (condition,)), y))  # onnxruntime has no Where of Bool
        return b.node("Or", (b.node("And", (condition, x)), second))

    def lowerings(self, condition: TensorType, x: TensorType, y: TensorType) -> Sequence[Lowering]:
        return broadcast_lowerings(self.lower, condition, x, y)


# Logic of Bool, and of the bits of whole numbers.


class Logic(Binary):
    """Base: two Bool operands."""

    is_flat: ClassVar = True
    bools: ClassVar = True

    def infer(self, x: TensorType, y: TensorType) -> TensorType:
        require(x.dtype is y.dtype is dt.bool_, "both operands must be Bool", x=x, y=y)
        return super().infer(x, y)


@primitive
class LogicalAnd(Logic):
    """x and y."""

    ufunc: ClassVar = np.logical_and
    onnx: ClassVar = "And"


@primitive
class LogicalOr(Logic):
    """x or y."""

    ufunc: ClassVar = np.logical_or
    onnx: ClassVar = "Or"


@primitive
class LogicalNot(Unary):
    """not x."""

    is_flat: ClassVar = True
    floats_only: ClassVar = False
    ufunc: ClassVar = np.logical_not
    onnx: ClassVar = "Not"

    def infer(self, x: TensorType) -> TensorType:
        require(x.dtype is dt.bool_, "the operand must be Bool", x=x)
        return x


class Bitwise(Binary):
    """Base: two operands of whole numbers that are broadcast."""

    is_flat: ClassVar = True

    def infer(self, x: TensorType, y: TensorType) -> TensorType:
        require(x.dtype.numpy.kind in "iu", "needs whole numbers", x=x)
        return super().infer(x, y)


@primitive
class BitwiseAnd(Bitwise):
    """The bits that both x and y have."""

    ufunc: ClassVar = np.bitwise_and


@primitive
class BitwiseOr(Bitwise):
    """The bits that x or y has."""

    ufunc: ClassVar = np.bitwise_or


@primitive
class BitwiseXor(Bitwise):
    """The bits that one of x and y has."""

    ufunc: ClassVar = np.bitwise_xor


@primitive
class Invert(Unary):
    """The bits that x does not have."""

    is_flat: ClassVar = True
    floats_only: ClassVar = False
    ufunc: ClassVar = np.invert
    onnx: ClassVar = "BitwiseNot"

    def infer(self, x: TensorType) -> TensorType:
        require(x.dtype.numpy.kind in "iu", "needs whole numbers", x=x)
        return x


# Tests for numbers that are not finite.


class FloatTest(Primitive):
    """Base: Bool for each element, a constant for whole numbers and Bool."""

    elementwise: ClassVar = True
    is_flat: ClassVar = True
    ufunc: ClassVar[Any]

    def infer(self, x: TensorType) -> TensorType:
        return x.with_dtype(dt.bool_)

    def kernel(self, x: np.ndarray) -> np.ndarray:
        result: np.ndarray = self.ufunc(x)
        return result

    def lower(self, b: Builder, x: str) -> str:
        type = b.type(x)
        if type.dtype.is_float:
            return self.lower_floats(b, x)
        same = b.node("Equal", (x, x))  # onnxruntime's tests of numbers take floats only
        return same if self.ufunc(0) else b.node("Not", (same,))

    def lower_floats(self, b: Builder, x: str) -> str:
        """The test of floats in ONNX."""
        return b.node(self.onnx, (x,))

    def lowerings(self, x: TensorType) -> Sequence[Lowering]:
        return elementwise_lowerings(self.lower, x)


@primitive
class IsNan(FloatTest):
    """Whether each element is NaN."""

    ufunc: ClassVar = np.isnan
    onnx: ClassVar = "IsNaN"


@primitive
class IsInf(FloatTest):
    """Whether each element is infinite."""

    ufunc: ClassVar = np.isinf


@primitive
class IsFinite(FloatTest):
    """Whether each element is neither NaN nor infinite."""

    ufunc: ClassVar = np.isfinite

    def lower_floats(self, b: Builder, x: str) -> str:
        return b.node("Not", (b.node("Or", (b.node("IsNaN", (x,)), b.node("IsInf", (x,)))),))


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

    def lowerings(self, x: TensorType) -> Sequence[Lowering]:
        return elementwise_lowerings(self.lower, x, results=0)
