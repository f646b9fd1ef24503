"""Elements at positions that are an operand, and the adjoints, which add elements at positions; sorting, which finds
positions.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from runner import dtype as dt
from runner.core.lowering import Builder
from runner.core.operators import Gradient, Primitive, primitive
from runner.core.parts import Axes, PartRule, Parts, apart_from, each_sample, replaced
from runner.core.precision import OperandPrecision
from runner.core.values import Tensor, Value
from runner.ops.array import Transpose, require
from runner.types import Shape, TensorType, resolve_axes

# Rows: class numbers as vectors, rows selected, and rows summed by their number.


@primitive
class OneHot(Primitive):
    """Class numbers of any shape to vectors of length `depth` along a new axis (-1: the last): `on_value` at the class.

    For numbers below 0 or above `depth - 1` all elements are `off_value`. `on_value` and `off_value` are numbers, or
    tensors of one number, whose element type is then that of the result.
    """

    computes: ClassVar = False
    is_flat: ClassVar = True

    axis: int = -1
    depth: int = 1
    on_value: float = 1.0
    off_value: float = 0.0
    dtype: dt.DType = dt.float32
    statics: ClassVar = ("depth", "on_value", "off_value")

    def __call__(self, *operands: Any) -> Value:
        numbers = [x.asnumpy().item() if isinstance(x, Tensor) else x for x in operands[2:]]
        dtypes = {x.dtype for x in operands[2:] if isinstance(x, Tensor)}
        require(len(dtypes) <= 1, "on_value and off_value must have one element type", given=dtypes)
        op = dataclasses.replace(self, dtype=dtypes.pop()) if dtypes else self
        return super(OneHot, op).__call__(*operands[:2], *numbers)

    def infer(self, indices: TensorType) -> TensorType:
        require(indices.dtype in (dt.int32, dt.int64), "class numbers must be Int32 or Int64", indices=indices)
        require(self.depth >= 1, "depth must be positive", depth=self.depth)
        at = self._at(indices.ndim)
        return TensorType(self.dtype, (*indices.shape[:at], self.depth, *indices.shape[at:]))

    def kernel(self, indices: np.ndarray) -> np.ndarray:
        hit = indices[..., None] == np.arange(self.depth)
        values = np.array([self.off_value, self.on_value], self.dtype.numpy)
        return np.moveaxis(values[hit.astype(np.intp)], -1, self._at(indices.ndim))

    def part(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> PartRule | None:
        (axis,) = axes
        return None if axis is None else PartRule(self, (axis,), (axis + (self._at(types[0].ndim) <= axis),))

    def lower(self, b: Builder, indices: str) -> str:
        # Not the OneHot of ONNX, where negative numbers count from the end; onnxruntime lacks it for most types.
        on, off = (b.const(np.array(value, self.dtype.numpy)) for value in (self.on_value, self.off_value))
        numbers = b.reshape(b.node("Cast", (indices,), to=dt.int64), (*b.type(indices).shape, 1))
        hit = b.node("Equal", (numbers, b.const(list(range(self.depth)))))
        vectors, ndim = b.node("Where", (hit, on, off)), b.type(indices).ndim
        at = self._at(ndim)
        return vectors if at == ndim else b.node("Transpose", (vectors,), perm=(*range(at), ndim, *range(at, ndim)))

    def _at(self, ndim: int) -> int:
        """The position of the new axis."""
        require(-1 <= self.axis <= ndim, "axis out of range", axis=self.axis, allowed=f"-1 to {ndim}")
        return ndim if self.axis == -1 else self.axis


@primitive
class Gather(Primitive):
    """Rows of `params` (K, ...) along `axis`, selected by `indices` of any shape (Int32 or Int64, 0 to K - 1)."""

    computes: ClassVar = False

    axis: int = 0
    statics: ClassVar = ("axis",)

    def infer(self, params: TensorType, indices: TensorType) -> TensorType:
        require(indices.dtype in (dt.int32, dt.int64), "indices must be Int32 or Int64", indices=indices)
        require(-params.ndim <= self.axis < params.ndim, "axis out of range", axis=self.axis, params=params)
        at = self.axis % params.ndim
        require(params.shape[at] > 0, "there are no rows to select", axis=self.axis, params=params)
        return params.with_shape(*params.shape[:at], *indices.shape, *params.shape[at + 1 :])

    def kernel(self, params: np.ndarray, indices: np.ndarray) -> np.ndarray:
        return np.take(params, indices, axis=self.axis)

    def part(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> PartRule | None:
        (axis, rows), (params, indices) = axes, types
        at = self.axis % params.ndim
        if axis is None and rows is not None:
            return PartRule(self, (None, rows), (at + rows,))
        if axis is None or rows is not None or axis == at:
            return None
        return PartRule(self, (axis, None), (axis + (indices.ndim - 1) * (axis > at),))

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        params, indices = inputs
        at = self.axis % params.ndim
        count = indices.ndim
        # With the gathered axes in front, the adjoint is a sum of rows.
        front = (*range(at, at + count), *range(at), *range(at + count, outputs[0].ndim))
        rows = UnsortedSegmentSum(params.shape[at])(Transpose(front)(douts[0]), indices)
        back = (*range(1, at + 1), 0, *range(at + 1, params.ndim))
        return Transpose(back)(rows), None

    def lower(self, b: Builder, params: str, indices: str) -> str:
        return b.node("Gather", (params, indices), axis=self.axis)


@primitive
class UnsortedSegmentSum(Primitive):
    """Sum the rows of `x` that have the same segment number: (*S, ...), S to (num_segments, ...). Adjoint of Gather."""

    precision: ClassVar = OperandPrecision.SINGLE

    num_segments: int = 1
    statics: ClassVar = ("num_segments",)

    def infer(self, x: TensorType, segment_ids: TensorType) -> TensorType:
        require(
            segment_ids.dtype in (dt.int32, dt.int64), "segment numbers must be Int32 or Int64", segment_ids=segment_ids
        )
        require(x.shape[: segment_ids.ndim] == segment_ids.shape, "leading axes differ", x=x, segment_ids=segment_ids)
        require(self.num_segments >= 1, "num_segments must be positive", num_segments=self.num_segments)
        return x.with_shape(self.num_segments, *x.shape[segment_ids.ndim :])

    def kernel(self, x: np.ndarray, segment_ids: np.ndarray) -> np.ndarray:
        out = np.zeros((self.num_segments, *x.shape[segment_ids.ndim :]), x.dtype)
        np.add.at(out, segment_ids, x)
        return out

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return inputs[0].size

    def part(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> PartRule | None:
        """Terms of sums over the rows; where the sums are larger than the rows, adding them would take longer."""
        axis, segment_ids = axes[0], types[1]
        if axis is None or axis >= segment_ids.ndim or self.num_segments > segment_ids.size:
            return None
        return each_sample(self, axes, (axis, axis), (None,))

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return Gather(0)(douts[0], inputs[1]), None

    def lower(self, b: Builder, x: str, segment_ids: str) -> str:
        out = self.infer(b.type(x), b.type(segment_ids))
        # Expanded when the model is loaded: a constant would make it as large as the table of an embedding.
        zeros = b.node("Expand", (b.const(np.zeros((), out.dtype.numpy)), b.const(list(out.shape))))
        index = b.reshape(b.node("Cast", (segment_ids,), to=dt.int64), (*b.type(segment_ids).shape, 1))
        return b.node("ScatterND", (zeros, index, x), reduction="add")


# Elements along one axis.


@primitive
class GatherD(Primitive):
    """The elements of x at the positions `index` along axis `dim`: `GatherD()(x, dim, index)`, in the shape of index.

    index is Int32 or Int64, -n to n - 1 for an axis of length n, and has the lengths of x or smaller ones in the other
    axes.
    """

    computes: ClassVar = False

    dim: int = 0

    def __call__(self, *operands: Any) -> Value:
        if len(operands) != 3:
            return super().__call__(*operands)
        return dataclasses.replace(self, dim=int(operands[1]))(operands[0], operands[2])

    def infer(self, x: TensorType, index: TensorType) -> TensorType:
        require(index.dtype in (dt.int32, dt.int64), "positions must be Int32 or Int64", index=index)
        (axis,) = resolve_axes(self.dim, x.ndim)
        lengths = zip(x.shape, index.shape, strict=False)
        fits = x.ndim == index.ndim and all(k == axis or m <= n for k, (n, m) in enumerate(lengths))
        require(fits, "index must have the axes of x, and no longer ones beside dim", x=x, index=index, dim=self.dim)
        require(x.shape[axis] > 0 or index.size == 0, "there is nothing to select", x=x, dim=self.dim)
        return x.with_shape(*index.shape)

    def kernel(self, x: np.ndarray, index: np.ndarray) -> np.ndarray:
        return np.take_along_axis(_cut(x, index.shape, self.dim), index.astype(np.int64), self.dim)

    def part(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> PartRule | None:
        return apart_from(self, types, axes, [self.dim]) if _equal_beside(self.dim, *types) else None

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return GatherDGrad(self.dim, inputs[0].shape)(douts[0], inputs[1]), None

    def lower(self, b: Builder, x: str, index: str) -> str:
        return b.node("GatherElements", (x, index), axis=self.dim)


def _equal_beside(dim: int, x: TensorType, index: TensorType) -> bool:
    """Whether the axes beside `dim` have the same lengths."""
    lengths = zip(x.shape, index.shape, strict=True)
    return all(n == m for k, (n, m) in enumerate(lengths) if k != dim % x.ndim)


def _cut(x: np.ndarray, shape: Shape, dim: int) -> np.ndarray:
    """x without the elements beyond `shape` in the axes beside `dim`."""
    axis = dim % x.ndim
    return x[tuple(slice(None) if k == axis else slice(n) for k, n in enumerate(shape))]


@primitive
class GatherDGrad(Primitive):
    """Adjoint of GatherD: the elements of dout are added to zeros of `x_shape` at their positions."""

    precision: ClassVar = OperandPrecision.SINGLE

    dim: int = 0
    x_shape: Shape = ()

    def infer(self, dout: TensorType, index: TensorType) -> TensorType:
        x = dout.with_shape(*self.x_shape)
        fits = GatherD(self.dim).infer(x, index) == dout
        require(fits, "dout must have the shape of the positions", dout=dout, index=index)
        return x

    def kernel(self, dout: np.ndarray, index: np.ndarray) -> np.ndarray:
        result = np.zeros(self.x_shape, dout.dtype)
        places: list[np.ndarray] = list(np.indices(index.shape, sparse=True))
        places[self.dim] = index
        np.add.at(result, tuple(places), dout)
        return result

    def part(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> PartRule | None:
        x = types[0].with_shape(*self.x_shape)
        part = apart_from(self, types, axes, [self.dim]) if _equal_beside(self.dim, x, types[1]) else None
        if part is None or (axis := part.results[0]) is None:
            return None
        return dataclasses.replace(part, op=GatherDGrad(self.dim, replaced(self.x_shape, axis, parts)))

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return GatherD(self.dim)(douts[0], inputs[1]), None

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return inputs[0].size

    def lower(self, b: Builder, dout: str, index: str) -> str:
        zeros = b.node("Expand", (b.const(np.zeros((), b.type(dout).dtype.numpy)), b.const(list(self.x_shape))))
        return b.node("ScatterElements", (zeros, index, dout), axis=self.dim, reduction="add")


# Blocks at positions that are rows of an operand.
#
# `indices` (*N, K) has one position for each of its rows, along the first K axes of the tensor; the rest of the axes
# are taken whole. Negative numbers count from the end of their axis.


def block_shape(x: TensorType, indices: TensorType) -> Shape:
    """Shape of the blocks of x at the positions. Raises ShapeError for indices that do not fit x."""
    require(indices.dtype in (dt.int32, dt.int64), "indices must be Int32 or Int64", indices=indices)
    fits = indices.ndim >= 1 and 1 <= indices.shape[-1] <= x.ndim
    require(fits, "the last axis of indices must have one number for each indexed axis", x=x, indices=indices)
    require(0 not in x.shape[: indices.shape[-1]], "there are no elements at any position", x=x, indices=indices)
    return (*indices.shape[:-1], *x.shape[indices.shape[-1] :])


def as_index(indices: np.ndarray) -> tuple[np.ndarray, ...]:
    """The positions as an index of numpy."""
    return tuple(np.moveaxis(indices, -1, 0))


@primitive
class GatherNd(Primitive):
    """The elements or blocks of x at the positions: (*N, *blocks)."""

    computes: ClassVar = False

    def infer(self, x: TensorType, indices: TensorType) -> TensorType:
        return x.with_shape(*block_shape(x, indices))

    def kernel(self, x: np.ndarray, indices: np.ndarray) -> np.ndarray:
        return np.asarray(x[as_index(indices)])

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        x, indices = inputs
        return lambda: ScatterNd(x.shape)(indices, douts[0]), None

    def lower(self, b: Builder, x: str, indices: str) -> str:
        return b.node("GatherND", (x, b.node("Cast", (indices,), to=dt.int64)))


@primitive
class ScatterNd(Primitive):
    """Zeros of `shape` with `updates` added at the positions. Adjoint of GatherNd."""

    precision: ClassVar = OperandPrecision.SINGLE

    shape: Shape = ()
    statics: ClassVar = ("shape",)

    def infer(self, indices: TensorType, updates: TensorType) -> TensorType:
        out = updates.with_shape(*self.shape)
        expected = block_shape(out, indices)
        require(updates.shape == expected, "updates have another shape", updates=updates, expected=expected)
        return out

    def kernel(self, indices: np.ndarray, updates: np.ndarray) -> np.ndarray:
        out = np.zeros(self.shape, updates.dtype)
        np.add.at(out, as_index(indices), updates)
        return out

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return inputs[1].size

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return None, lambda: GatherNd()(douts[0], inputs[0])

    def lower(self, b: Builder, indices: str, updates: str) -> str:
        zeros = b.node("Expand", (b.const(np.zeros((), b.type(updates).dtype.numpy)), b.const(list(self.shape))))
        return b.node("ScatterND", (zeros, b.node("Cast", (indices,), to=dt.int64), updates), reduction="add")


# Orders of elements along an axis: Sort, and TopK, the largest ones.

ORDERED = (dt.float16, dt.float32, dt.float64, dt.int32, dt.int64)  # what onnxruntime sorts


class Ordering(Primitive):
    """Base of Sort and TopK: the first elements of an order along an axis, and their positions as Int32.

    Of equal elements the first one is first. NaN counts as infinity.
    """

    def order(self, x: TensorType) -> tuple[int, int, bool]:
        """The axis, the number of elements, and whether the largest come first."""
        raise NotImplementedError

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        require(x.dtype in ORDERED, "cannot order this element type", x=x, allowed=", ".join(map(str, ORDERED)))
        axis, count, _ = self.order(x)
        values = x.with_shape(*x.shape[:axis], count, *x.shape[axis + 1 :])
        return values, values.with_dtype(dt.int32)

    def kernel(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        axis, count, largest = self.order(TensorType.of(x))
        keys = np.where(np.isnan(x), np.inf, x).astype(x.dtype) if x.dtype.kind == "f" else x
        if largest:  # the reverse of the order of the reversed elements: equal ones keep their order
            order = np.flip(x.shape[axis] - 1 - np.argsort(np.flip(keys, axis), axis, kind="stable"), axis)
        else:
            order = np.argsort(keys, axis, kind="stable")
        order = np.take(order, range(count), axis)
        return np.take_along_axis(x, order, axis), order.astype(np.int32)

    def part(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> PartRule | None:
        return apart_from(self, types, axes, [self.order(types[0])[0]], 2)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return inputs[0].size

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        axis = self.order(inputs[0].type)[0]
        return (GatherDGrad(axis, inputs[0].shape)(douts[0], outputs[1]),)

    def lower(self, b: Builder, x: str) -> tuple[str, str]:
        axis, count, largest = self.order(b.type(x))
        keys = x
        if b.type(x).dtype.is_float:
            keys = b.node("Where", (b.node("IsNaN", (x,)), b.const(np.inf, like=x), x))
        _, order = b.nodes("TopK", (keys, b.const([count])), 2, axis=axis, largest=int(largest), sorted=1)
        return b.node("GatherElements", (x, order), axis=axis), b.node("Cast", (order,), to=dt.int32)


@primitive
class Sort(Ordering):
    """The elements in ascending order along `axis`, or `descending`, and their positions as Int32.

    Of equal elements the first one is first; NaN counts as infinity.
    """

    axis: int = -1
    descending: bool = False

    def order(self, x: TensorType) -> tuple[int, int, bool]:
        (axis,) = resolve_axes(self.axis, x.ndim)
        return axis, x.shape[axis], self.descending


@primitive
class TopK(Ordering):
    """The k largest elements along the last axis in descending order, and their positions as Int32: `TopK()(x, k)`.

    Beyond MindSpore, along another `axis`, or the smallest ones in ascending order. Of equal elements the first one
    is first; NaN counts as infinity. The result is ordered also for `sorted=False`.
    """

    sorted: bool = False
    k: int = 1
    axis: int = -1
    largest: bool = True
    statics: ClassVar = ("k",)

    def order(self, x: TensorType) -> tuple[int, int, bool]:
        (axis,) = resolve_axes(self.axis, x.ndim)
        which = "the last axis" if self.axis == -1 else f"axis {self.axis}"
        require(1 <= self.k <= x.shape[axis], f"k must be 1 to the length of {which}", k=self.k, x=x)
        return axis, self.k, self.largest
