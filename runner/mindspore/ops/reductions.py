"""Sums of several tensors, extrema with their positions, counts, and whether all or any elements hold."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from runner import dtype as dt
from runner.core.lowering import Builder
from runner.core.operators import ComposedOperator, primitive
from runner.core.values import Value
from runner.ops.array import Cast, ExpandDims, Squeeze, as_tensors, as_value, require
from runner.ops.elementwise.arithmetic import Add, Square
from runner.ops.elementwise.compare import Equal, Greater, IsFinite, LogicalAnd
from runner.ops.indexing.gather import GatherD, OneHot
from runner.ops.matrices import MatMul
from runner.ops.reduce import Argmax, Argmin, ReduceSum, Reduction
from runner.types import TensorType


class SumOfTensors(ComposedOperator):
    """Base: the sum of tensors of one type, given as a tuple or list."""

    def compose(self, *inputs: Any) -> Value:
        xs = as_tensors(inputs)
        same = len({x.type for x in xs}) == 1
        require(same, "all tensors must have one type", given=", ".join(str(x.type) for x in xs))
        total = xs[0]
        for x in xs[1:]:
            total = Add()(total, x)
        return total


@dataclass(frozen=True)
class AddN(SumOfTensors):
    """The sum of tensors of one type, given as a tuple or list."""


@dataclass(frozen=True)
class AccumulateNV2(SumOfTensors):
    """As AddN."""


@dataclass(frozen=True)
class ExtremumWithValue(ComposedOperator):
    """Base: positions along an axis, and the values there."""

    axis: int = 0
    keep_dims: bool = False

    def chosen(self, x: Value, positions: Value) -> tuple[Value, Value]:
        axis = self.axis % x.ndim
        index = ExpandDims(axis)(positions)
        values = GatherD(axis)(x, index)
        return (index, values) if self.keep_dims else (positions, Squeeze(axis)(values))


@dataclass(frozen=True)
class ArgMaxWithValue(ExtremumWithValue):
    """Positions (Int32) of the first maxima along `axis`, and the maxima."""

    def compose(self, input_x: Value) -> tuple[Value, Value]:
        return self.chosen(input_x, Argmax(self.axis)(input_x))


@dataclass(frozen=True)
class ArgMinWithValue(ExtremumWithValue):
    """Positions (Int32) of the first minima along `axis`, and the minima."""

    def compose(self, input_x: Value) -> tuple[Value, Value]:
        return self.chosen(input_x, Argmin(self.axis)(input_x))


@dataclass(frozen=True)
class EqualCount(ComposedOperator):
    """The number of equal elements of two tensors of one type: (1,) in their element type."""

    def compose(self, x: Any, y: Any) -> Value:
        first, second = as_value(x), as_value(y)
        require(first.type == second.type, "both operands must have one type", x=first.type, y=second.type)
        equal = Cast(dt.float32)(Equal()(first, second))
        return Cast(first.dtype)(ExpandDims(0)(ReduceSum()(equal)))


@dataclass(frozen=True)
class SquareSumAll(ComposedOperator):
    """The sums of the squares of two tensors, as scalars."""

    def compose(self, input_x: Value, input_y: Value) -> tuple[Value, Value]:
        return ReduceSum()(Square()(input_x)), ReduceSum()(Square()(input_y))


@dataclass(frozen=True)
class InTopK(ComposedOperator):
    """Whether each class number is among the k highest scores: scores (N, C), classes (N,) to Bool (N,).

    Classes whose score equals that of the class are not above it. False where the score of the class is not finite.
    """

    k: int

    def compose(self, x1: Value, x2: Value) -> Value:
        fits = x1.ndim == 2 and x1.dtype.is_float and x2.shape == x1.shape[:1]
        require(fits, "needs scores (N, C) of floats and classes (N,)", x1=x1.type, x2=x2.type)
        own = GatherD(1)(x1, ExpandDims(1)(x2))
        above = ReduceSum(axis=1)(Cast(dt.float32)(Greater()(x1, own)))
        return LogicalAnd()(Greater()(float(self.k), above), IsFinite()(Squeeze(1)(own)))


@dataclass(frozen=True)
class ConfusionMatrix(ComposedOperator):
    """Counts, or sums of `weights` (N,), of the pairs of labels (N,) and predictions (N,): (classes, classes)."""

    num_classes: int
    dtype: str = "int32"

    def compose(self, labels: Value, predictions: Value, weights: Value | None = None) -> Value:
        fits = labels.ndim == 1 and labels.shape == predictions.shape
        require(fits, "needs labels and predictions (N,)", labels=labels.type, predictions=predictions.type)
        hot = OneHot(depth=self.num_classes)
        rows = hot(labels)
        if weights is not None:
            rows = rows * ExpandDims(1)(Cast(dt.float32)(weights))
        return Cast(dt.of(self.dtype))(MatMul(True, False)(rows, hot(predictions)))


# Reductions of Bool tensors.


class BoolReduction(Reduction):
    """Base: onnxruntime reduces no Bool, so bytes are reduced."""

    is_flat: ClassVar = True
    needs_elements: ClassVar = True

    def infer(self, x: TensorType) -> TensorType:
        require(x.dtype is dt.bool_, "the operand must be Bool", x=x)
        return super().infer(x)

    def lower(self, b: Builder, x: str) -> str:
        axes = b.const(list(self.axes(b.type(x))))
        reduced = b.node(self.onnx, (b.node("Cast", (x,), to=dt.uint8), axes), keepdims=int(self.keep_dims))
        return b.node("Cast", (reduced,), to=dt.bool_)


@primitive
class ReduceAll(BoolReduction):
    """Whether all elements over `axis` (all axes by default) are true."""

    onnx: ClassVar = "ReduceMin"
    ufunc: ClassVar = np.logical_and


@primitive
class ReduceAny(BoolReduction):
    """Whether any element over `axis` (all axes by default) is true."""

    onnx: ClassVar = "ReduceMax"
    ufunc: ClassVar = np.logical_or
