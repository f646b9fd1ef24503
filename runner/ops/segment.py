"""Extrema and products of the rows that have the same segment number."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from runner import dtype as dt
from runner.core.lowering import Builder
from runner.core.precision import Needs
from runner.core.primitive import Gradient, Primitive, family, primitive
from runner.core.value import Tensor, Value
from runner.ops.array import Cast
from runner.ops.compare import Equal, Select
from runner.ops.reduce import nan_where
from runner.ops.rows import Gather, UnsortedSegmentSum
from runner.types import TensorType

__all__ = ["UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentProd"]


@family
class UnsortedSegment(Primitive):
    """Base: rows (*S, ...) and their numbers S to (num_segments, ...); `empty` is for segments without a row."""

    needs: ClassVar = Needs.SINGLE
    ufunc: ClassVar[Any]
    reduction: ClassVar[str]

    num_segments: int = 1
    statics: ClassVar = ("num_segments",)

    def empty(self, dtype: np.dtype) -> Any:
        """The result of a segment without a row."""
        raise NotImplementedError

    def infer(self, x: TensorType, segment_ids: TensorType) -> TensorType:
        return UnsortedSegmentSum(self.num_segments).infer(x, segment_ids)

    def kernel(self, x: np.ndarray, segment_ids: np.ndarray) -> np.ndarray:
        shape = (self.num_segments, *x.shape[segment_ids.ndim :])
        result = np.full(shape, self.empty(x.dtype), x.dtype)
        self.ufunc.at(result, segment_ids, x)
        return result

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return inputs[0].size

    def lower(self, b: Builder, x: str, segment_ids: str) -> str:
        out = self.infer(b.type(x), b.type(segment_ids))
        start = b.const(np.array(self.empty(out.dtype.numpy), out.dtype.numpy))
        index = b.reshape(b.node("Cast", (segment_ids,), to=dt.int64), (*b.type(segment_ids).shape, 1))
        rows = b.node("Expand", (start, b.const(list(out.shape))))
        return b.node("ScatterND", (rows, index, x), reduction=self.reduction)


class SegmentExtremum(UnsortedSegment):
    """Base: equal extrema share the gradient equally, as in the reference; a NaN is the extremum of its segment."""

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        x, numbers = inputs
        rows = Gather(0)
        is_extremum = Equal()(x, rows(outputs[0], numbers))
        count = UnsortedSegmentSum(self.num_segments)(Cast(x.dtype)(is_extremum), numbers)
        shared = rows(douts[0], numbers) / rows(count, numbers)
        return Select()(is_extremum, shared, Tensor(0.0, x.dtype)), None

    def lower(self, b: Builder, x: str, segment_ids: str) -> str:
        """Unlike onnxruntime's, the extremum of rows with a NaN is NaN."""
        extremum, dtype = super().lower(b, x, segment_ids), b.type(x).dtype
        if not dtype.is_float:
            return extremum
        out = self.infer(b.type(x), b.type(segment_ids))
        index = b.reshape(b.node("Cast", (segment_ids,), to=dt.int64), (*b.type(segment_ids).shape, 1))
        none = b.node("Expand", (b.const(np.zeros((), np.int32)), b.const(list(out.shape))))
        nan = b.node("Cast", (b.node("IsNaN", (x,)),), to=dt.int32)
        return nan_where(b, b.node("ScatterND", (none, index, nan), reduction="add"), extremum, dtype)


@primitive
class UnsortedSegmentMax(SegmentExtremum):
    """Largest of the rows with the same number: (*S, ...), S to (num_segments, ...).

    For segments without a row, the lowest number of the element type (of floats, that of Float32).
    """

    ufunc: ClassVar = np.maximum
    reduction: ClassVar = "max"

    def empty(self, dtype: np.dtype) -> Any:
        """The lowest number."""
        return np.finfo(np.float32).min if dtype.kind == "f" else np.iinfo(dtype).min


@primitive
class UnsortedSegmentMin(SegmentExtremum):
    """Smallest of the rows with the same number: (*S, ...), S to (num_segments, ...).

    For segments without a row, the largest number of the element type (of floats, that of Float32).
    """

    ufunc: ClassVar = np.minimum
    reduction: ClassVar = "min"

    def empty(self, dtype: np.dtype) -> Any:
        """The largest number."""
        return np.finfo(np.float32).max if dtype.kind == "f" else np.iinfo(dtype).max


@primitive
class UnsortedSegmentProd(UnsortedSegment):
    """Product of the rows with the same number, 1 without a row: (*S, ...), S to (num_segments, ...). No gradient."""

    ufunc: ClassVar = np.multiply
    reduction: ClassVar = "mul"

    def empty(self, dtype: np.dtype) -> Any:
        """The product of no numbers."""
        return 1
