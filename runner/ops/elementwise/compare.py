"""Comparisons, logic of Bool tensors, selection of elements, and the reductions whose gradients select elements."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from runner import dtype as dt
from runner.core.lowering import Builder, Form
from runner.core.operators import Gradient, Primitive, primitive
from runner.core.precision import Needs
from runner.core.values import Tensor, Value
from runner.ops.array import Cast, Reshape, Transpose, require
from runner.ops.elementwise.arithmetic import Binary, Unary, broadcast_forms
from runner.ops.reduce import BroadcastTo, ReduceSum, Reduction, is_nan, nan_where, unbroadcast
from runner.types import TensorType, broadcast


class Extremum(Binary):
    """Base of Maximum and Minimum: where the operands are equal, the gradient goes to x."""

    comparison: ClassVar[type[Binary]]

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        x, y = inputs
        first = Cast(douts[0].dtype)(self.comparison()(x, y))
        return lambda: unbroadcast(douts[0] * first, x), lambda: unbroadcast(douts[0] * (1.0 - first), y)


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

    computes: ClassVar = False

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

    def forms(self, condition: TensorType, x: TensorType, y: TensorType) -> Sequence[Form]:
        return broadcast_forms(self.lower, condition, x, y)


class ReduceExtremum(Reduction):
    """Base of ReduceMax and ReduceMin: equal extrema share the gradient equally, as in the reference."""

    needs_elements: ClassVar = True

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        (x,), (y,) = inputs, outputs
        mask = Cast(x.dtype)(Equal()(x, self.broadcast_back(y, x)))
        share = mask / BroadcastTo(x.shape)(ReduceSum(True, self.axes(x))(mask))
        return (share * self.broadcast_back(douts[0], x),)

    def lower(self, b: Builder, x: str) -> str:
        """Unlike onnxruntime's, the result of operands with a NaN is NaN."""
        extremum, dtype = super().lower(b, x), b.type(x).dtype
        if not dtype.is_float:
            return extremum
        axes = b.const(list(self.axes(b.type(x))))
        any_nan = b.node("ReduceMax", (is_nan(b, x), axes), keepdims=int(self.keep_dims))
        return nan_where(b, any_nan, extremum, dtype)


@primitive
class ReduceMax(ReduceExtremum):
    """Largest element over `axis` (all axes by default)."""

    ufunc: ClassVar = np.maximum


@primitive
class ReduceMin(ReduceExtremum):
    """Smallest element over `axis` (all axes by default)."""

    ufunc: ClassVar = np.minimum


@primitive
class ReduceProd(Reduction):
    """Product over `axis` (all axes by default).

    The gradient of each element is the product of all others, which is exact for elements of 0, and takes n * n
    multiplications and elements of memory for a product of n elements.
    """

    needs: ClassVar = Needs.SINGLE
    needs_elements: ClassVar = True
    ufunc: ClassVar = np.multiply

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        (x,), axes = inputs, self.axes(inputs[0])
        perm = (*(k for k in range(x.ndim) if k not in axes), *axes)
        moved = Transpose(perm)(x)
        count = x.size // outputs[0].size
        rows = Reshape((-1, 1, count))(moved)
        others = ReduceProd(axis=-1)(Select()(Tensor(np.eye(count, dtype=bool)), Tensor(1.0, x.dtype), rows))
        back = tuple(perm.index(k) for k in range(x.ndim))
        return (self.broadcast_back(douts[0], x) * Transpose(back)(Reshape(moved.shape)(others)),)
