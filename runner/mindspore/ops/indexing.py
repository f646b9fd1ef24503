"""Operators that change rows of a parameter or tensor at positions, reduce rows by segments, and look rows up."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from runner import dtype as dt
from runner.core.interpreter import current
from runner.core.lowering import Builder
from runner.core.operators import ComposedOperator, Gradient, Primitive, family, primitive
from runner.core.precision import OperandPrecision
from runner.core.values import Tensor, Value
from runner.errors import ConfigError
from runner.ops.array import Cast, ExpandDims, Reshape, Transpose, as_value, as_written, require, require_parameter
from runner.ops.elementwise.compare import Equal, GreaterEqual, Less, LogicalAnd, Select
from runner.ops.indexing.gather import Gather, UnsortedSegmentSum
from runner.ops.indexing.scatter import ScatterReduce
from runner.ops.reduce import nan_where
from runner.types import TensorType


@dataclass(frozen=True)
class ScatterNd(ComposedOperator):
    """Base: the blocks of a parameter at `indices` (..., K) changed, and its new value.

    `use_locking` has no effect: updates are never lost.
    """

    mode: ClassVar[str]

    use_locking: bool = False

    def compose(self, input_x: Any, indices: Any, updates: Any) -> Value:
        parameter = require_parameter(input_x)
        new: Value = ScatterReduce(self.mode)(parameter, self.places(as_value(indices)), as_written(parameter, updates))
        current().assign(parameter, new)
        return new

    def places(self, indices: Value) -> Value:
        """The positions as blocks of the first K axes."""
        return indices


@dataclass(frozen=True)
class ScatterRows(ScatterNd):
    """Base: the rows of a parameter with the numbers `indices`, of any shape, changed."""

    def places(self, indices: Value) -> Value:
        return ExpandDims(indices.ndim)(indices)


@dataclass(frozen=True)
class ScatterUpdate(ScatterRows):
    """The rows of a parameter at `indices` replaced by `updates` (*indices.shape, *row), and its new value."""

    mode: ClassVar[str] = "update"
    use_locking: bool = True


@dataclass(frozen=True)
class ScatterNdUpdate(ScatterNd):
    """The blocks of a parameter at `indices` (..., K) replaced by `updates`, and its new value."""

    mode: ClassVar[str] = "update"
    use_locking: bool = True


@dataclass(frozen=True)
class ScatterAdd(ScatterRows):
    """`updates` added to the rows of a parameter at `indices`, and its new value."""

    mode: ClassVar[str] = "add"


@dataclass(frozen=True)
class ScatterSub(ScatterRows):
    """`updates` subtracted from the rows of a parameter at `indices`, and its new value."""

    mode: ClassVar[str] = "sub"


@dataclass(frozen=True)
class ScatterMul(ScatterRows):
    """The rows of a parameter at `indices` times `updates`, and its new value."""

    mode: ClassVar[str] = "mul"


@dataclass(frozen=True)
class ScatterDiv(ScatterRows):
    """The rows of a parameter of floats at `indices` divided by `updates`, and its new value."""

    mode: ClassVar[str] = "div"


@dataclass(frozen=True)
class ScatterMax(ScatterRows):
    """The larger one of the rows of a parameter at `indices` and of `updates`, and its new value."""

    mode: ClassVar[str] = "max"


@dataclass(frozen=True)
class ScatterMin(ScatterRows):
    """The smaller one of the rows of a parameter at `indices` and of `updates`, and its new value."""

    mode: ClassVar[str] = "min"


@dataclass(frozen=True)
class ScatterNdAdd(ScatterNd):
    """`updates` added to the blocks of a parameter at `indices` (..., K), and its new value."""

    mode: ClassVar[str] = "add"


@dataclass(frozen=True)
class ScatterNdSub(ScatterNd):
    """`updates` subtracted from the blocks of a parameter at `indices` (..., K), and its new value."""

    mode: ClassVar[str] = "sub"


@dataclass(frozen=True)
class ScatterNonAliasingAdd(ScatterNd):
    """As ScatterNdAdd."""

    mode: ClassVar[str] = "add"


@dataclass(frozen=True)
class Inplace(ComposedOperator):
    """Base: a tensor with the rows `indices`, a number or a tuple, changed by v; as in MindSpore's examples, the
    new tensor is the result, and x is not changed."""

    mode: ClassVar[str]

    indices: int | Sequence[int]

    def compose(self, input_x: Value, input_v: Value) -> Value:
        numbers = (self.indices,) if isinstance(self.indices, int) else tuple(self.indices)
        require(len(numbers) > 0, "needs the number of a row", indices=self.indices)
        places = Tensor(np.asarray(numbers, np.int32).reshape(-1, 1))
        return ScatterReduce(self.mode)(input_x, places, input_v)


@dataclass(frozen=True)
class InplaceAdd(Inplace):
    """x with v (rows, ...) added to its rows `indices`."""

    mode: ClassVar[str] = "add"


@dataclass(frozen=True)
class InplaceSub(Inplace):
    """x with v (rows, ...) subtracted from its rows `indices`."""

    mode: ClassVar[str] = "sub"


@dataclass(frozen=True)
class InplaceUpdate(Inplace):
    """x with its rows `indices` replaced by v (rows, ...)."""

    mode: ClassVar[str] = "update"


@dataclass(frozen=True)
class IndexAdd(ComposedOperator):
    """y added to the slices of a parameter with the numbers `indices` (Int32 vector) along `axis`, and its new value.

    `use_lock` and `check_index_bound` have no effect: updates are never lost, and numbers are always checked.
    """

    axis: int
    use_lock: bool = True
    check_index_bound: bool = True

    def compose(self, input_x: Any, indices: Value, input_y: Value) -> Value:
        parameter = require_parameter(input_x)
        axis = self.axis % parameter.ndim
        order = (axis, *(k for k in range(parameter.ndim) if k != axis))
        back = tuple(order.index(k) for k in range(parameter.ndim))
        turn = Transpose(order)
        summed = ScatterReduce("add")(turn(parameter), ExpandDims(1)(indices), turn(input_y))
        new: Value = Transpose(back)(summed)
        current().assign(parameter, new)
        return new


# Extrema and products of the rows that have the same segment number.


@family
class UnsortedSegment(Primitive):
    """Base: rows (*S, ...) and their numbers S to (num_segments, ...); `empty` is for segments without a row."""

    precision: ClassVar = OperandPrecision.SINGLE
    ufunc: ClassVar[Any]
    reduction: ClassVar[str]

    num_segments: int = 1
    statics: ClassVar = ("num_segments",)

    def empty(self, dtype: np.dtype) -> Any:
        """The result of a segment without a row."""
        raise NotImplementedError

    def infer(self, x: TensorType, segment_ids: TensorType) -> TensorType:
        require(x.dtype is not dt.bool_, "needs numbers", x=x)
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
    """Base: equal extrema share the gradient equally, as in MindSpore; a NaN is the extremum of its segment."""

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
        none = b.node("Expand", (b.const(np.zeros((), np.float32)), b.const(list(out.shape))))
        nan = b.node("Cast", (b.node("IsNaN", (x,)),), to=dt.float32)
        return nan_where(b, b.node("ScatterND", (none, index, nan), reduction="add"), extremum, dtype)


@primitive
class UnsortedSegmentMax(SegmentExtremum):
    """Largest of the rows with the same number: (*S, ...), S to (num_segments, ...).

    For segments without a row, the lowest number of the element type (of floats, that of Float32).
    """

    ufunc: ClassVar = np.maximum
    reduction: ClassVar = "max"

    def empty(self, dtype: np.dtype) -> Any:
        return np.finfo(np.float32).min if dtype.kind == "f" else np.iinfo(dtype).min


@primitive
class UnsortedSegmentMin(SegmentExtremum):
    """Smallest of the rows with the same number: (*S, ...), S to (num_segments, ...).

    For segments without a row, the largest number of the element type (of floats, that of Float32).
    """

    ufunc: ClassVar = np.minimum
    reduction: ClassVar = "min"

    def empty(self, dtype: np.dtype) -> Any:
        return np.finfo(np.float32).max if dtype.kind == "f" else np.iinfo(dtype).max


@primitive
class UnsortedSegmentProd(UnsortedSegment):
    """Product of the rows with the same number, 1 without a row: (*S, ...), S to (num_segments, ...). No gradient."""

    ufunc: ClassVar = np.multiply
    reduction: ClassVar = "mul"

    def empty(self, dtype: np.dtype) -> Any:
        return 1


# Rows of a part of a table, and the different elements of a tensor.


@dataclass(frozen=True)
class EmbeddingLookup(ComposedOperator):
    """The rows of `params` (K, ...) with the numbers `indices - offset`, zeros for numbers that are not 0 to K - 1."""

    def compose(self, params: Value, indices: Value, offset: int) -> Value:
        numbers = as_value(indices) - offset
        inside = LogicalAnd()(GreaterEqual()(numbers, 0), Less()(numbers, params.shape[0]))
        safe = Select()(inside, numbers, Tensor(np.zeros((), numbers.dtype.numpy)))
        rows = Gather(0)(params, safe)
        mask = Reshape((*inside.shape, *(1,) * (params.ndim - 1)))(inside)
        return Select()(mask, rows, Tensor(np.zeros((), rows.dtype.numpy)))


@dataclass(frozen=True)
class Unique(ComposedOperator):
    """The different elements of x, in the order in which they first appear, and the place there of each (Int32).

    How many there are depends on the elements, so they must be known: raises ConfigError in graph mode.
    """

    def compose(self, x: Any) -> tuple[Value, Value]:
        value = as_value(x)
        if not isinstance(value, Tensor):
            repair = "ops.Sort, or run this network with mode=pynative"
            raise ConfigError("the shape of the result depends on elements", x=value.type, repair=repair)
        found, first, places = np.unique(value.asnumpy(), return_index=True, return_inverse=True)
        order = np.argsort(first)
        numbers = np.argsort(order)[places.reshape(value.shape)]
        return Tensor(found[order]), Tensor(numbers, dt.int32)
