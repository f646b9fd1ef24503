"""Operators that move elements without computing with them."""

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from runner import dtype as dt
from runner.core.lowering import Builder
from runner.core.primitive import Gradient, Primitive, primitive
from runner.core.value import Value
from runner.errors import ShapeError
from runner.types import Shape, TensorType


def require(holds: bool, what: str, **rows: object) -> None:
    """Raise ShapeError with a sentence and the values it speaks of, unless the condition holds."""
    if not holds:
        raise ShapeError(what, **rows)


@primitive
class Reshape(Primitive):
    """The same elements, in row-major order, in another shape; one -1 in `shape` stands for what is left."""

    shape: Shape = ()
    statics: ClassVar = ("shape",)

    def infer(self, x: TensorType) -> TensorType:
        known = math.prod(n for n in self.shape if n != -1)
        free = self.shape.count(-1)
        fits = x.size == known if free == 0 else free == 1 and known > 0 and x.size % known == 0
        require(
            fits and all(n >= -1 for n in self.shape),
            "the elements do not fill the shape",
            elements=x.size,
            shape=self.shape,
        )
        return x.with_shape(*(x.size // known if n == -1 else n for n in self.shape))

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return x.reshape(self.shape)

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (Reshape(inputs[0].shape)(douts[0]),)

    def lower(self, b: Builder, x: str) -> str:
        return b.reshape(x, self.infer(b.type(x)).shape)

    def identity(self, types: Sequence[TensorType], known: Sequence[np.ndarray | None]) -> int | None:
        return 0 if types[0].shape == self.infer(types[0]).shape else None


@primitive
class Flatten(Primitive):
    """(N, ...) to (N, everything else), in row-major order."""

    def infer(self, x: TensorType) -> TensorType:
        require(x.ndim >= 1, "needs at least one axis", x=x)
        return x.with_shape(x.shape[0], math.prod(x.shape[1:]))

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return x.reshape(len(x), math.prod(x.shape[1:]))

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (Reshape(inputs[0].shape)(douts[0]),)

    def lower(self, b: Builder, x: str) -> str:
        return b.reshape(x, self.infer(b.type(x)).shape)


@primitive
class ExpandDims(Primitive):
    """A new axis of length 1 at `axis`."""

    axis: int = 0
    statics: ClassVar = ("axis",)

    def infer(self, x: TensorType) -> TensorType:
        require(-x.ndim - 1 <= self.axis <= x.ndim, "axis out of range", axis=self.axis, x=x)
        at = self.axis % (x.ndim + 1)
        return x.with_shape(*x.shape[:at], 1, *x.shape[at:])

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return np.expand_dims(x, self.axis)

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (Reshape(inputs[0].shape)(douts[0]),)

    def lower(self, b: Builder, x: str) -> str:
        return b.reshape(x, self.infer(b.type(x)).shape)


@primitive
class Transpose(Primitive):
    """Axes in the order `perm`."""

    perm: tuple[int, ...] = ()
    statics: ClassVar = ("perm",)

    def infer(self, x: TensorType) -> TensorType:
        require(sorted(self.perm) == list(range(x.ndim)), "perm must name each axis once", perm=self.perm, x=x)
        return x.with_shape(*(x.shape[p] for p in self.perm))

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return x.transpose(self.perm)

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        back = tuple(self.perm.index(axis) for axis in range(len(self.perm)))
        return (Transpose(back)(douts[0]),)

    def lower(self, b: Builder, x: str) -> str:
        return b.node("Transpose", (x,), perm=self.perm)

    def identity(self, types: Sequence[TensorType], known: Sequence[np.ndarray | None]) -> int | None:
        return 0 if self.perm == tuple(range(len(self.perm))) else None


@primitive
class Cast(Primitive):
    """The same values with another element type; floats become ints by dropping the fraction."""

    dtype: dt.DType = dt.float32
    statics: ClassVar = ("dtype",)

    def infer(self, x: TensorType) -> TensorType:
        return x.with_dtype(dt.of(self.dtype))

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return x.astype(self.dtype.numpy)

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (Cast(inputs[0].dtype)(douts[0]) if inputs[0].dtype.is_float else None,)

    def lower(self, b: Builder, x: str) -> str:
        return b.node("Cast", (x,), to=self.dtype)

    def identity(self, types: Sequence[TensorType], known: Sequence[np.ndarray | None]) -> int | None:
        return 0 if types[0].dtype is self.dtype else None


@primitive
class OneHot(Primitive):
    """Class numbers of any shape to vectors of length `depth` along a new last axis: `on_value` at the class.

    A number below 0 or from `depth` on has no place: its vector is `off_value` throughout.
    """

    depth: int = 1
    on_value: float = 1.0
    off_value: float = 0.0
    dtype: dt.DType = dt.float32
    statics: ClassVar = ("depth", "on_value", "off_value")

    def infer(self, indices: TensorType) -> TensorType:
        require(indices.dtype in (dt.int32, dt.int64), "class numbers must be Int32 or Int64", indices=indices)
        require(self.depth >= 1, "depth must be positive", depth=self.depth)
        return TensorType(self.dtype, (*indices.shape, self.depth))

    def kernel(self, indices: np.ndarray) -> np.ndarray:
        hit = indices[..., None] == np.arange(self.depth)
        values = np.array([self.off_value, self.on_value], self.dtype.numpy)
        made: np.ndarray = values[hit.astype(np.intp)]
        return made

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (None,)

    def lower(self, b: Builder, indices: str) -> str:
        # Not ONNX's OneHot, which counts negative numbers from the end; onnxruntime also lacks it for most types.
        on, off = (b.const(np.array(value, self.dtype.numpy)) for value in (self.on_value, self.off_value))
        numbers = b.reshape(b.node("Cast", (indices,), to=dt.int64), (*b.type(indices).shape, 1))
        hit = b.node("Equal", (numbers, b.const(list(range(self.depth)))))
        return b.node("Where", (hit, on, off))


@primitive
class Gather(Primitive):
    """Rows of `params` (K, ...) along `axis`, chosen by `indices` of any shape (Int32 or Int64, 0 to K - 1)."""

    axis: int = 0
    statics: ClassVar = ("axis",)

    def infer(self, params: TensorType, indices: TensorType) -> TensorType:
        require(indices.dtype in (dt.int32, dt.int64), "indices must be Int32 or Int64", indices=indices)
        require(-params.ndim <= self.axis < params.ndim, "axis out of range", axis=self.axis, params=params)
        at = self.axis % params.ndim
        return params.with_shape(*params.shape[:at], *indices.shape, *params.shape[at + 1 :])

    def kernel(self, params: np.ndarray, indices: np.ndarray) -> np.ndarray:
        return np.take(params, indices, axis=self.axis)

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        params, indices = inputs
        at = self.axis % params.ndim
        count = indices.ndim
        # Bring the gathered axes to the front, so that the adjoint is a sum of rows.
        front = (*range(at, at + count), *range(at), *range(at + count, outputs[0].ndim))
        rows = UnsortedSegmentSum(params.shape[at])(Transpose(front)(douts[0]), indices)
        back = (*range(1, at + 1), 0, *range(at + 1, params.ndim))
        return Transpose(back)(rows), None

    def lower(self, b: Builder, params: str, indices: str) -> str:
        return b.node("Gather", (params, indices), axis=self.axis)


@primitive
class UnsortedSegmentSum(Primitive):
    """Sum the rows of `x` that have the same segment number: (*S, ...), S to (num_segments, ...). Adjoint of Gather."""

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

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return Gather(0)(douts[0], inputs[1]), None

    def lower(self, b: Builder, x: str, segment_ids: str) -> str:
        out = self.infer(b.type(x), b.type(segment_ids))
        zeros = b.const(np.zeros(out.shape, out.dtype.numpy))
        index = b.reshape(b.node("Cast", (segment_ids,), to=dt.int64), (*b.type(segment_ids).shape, 1))
        return b.node("ScatterND", (zeros, index, x), reduction="add")


@primitive
class Concat(Primitive):
    """Tensors one after the other along `axis`."""

    axis: int = 0

    def infer(self, *xs: TensorType) -> TensorType:
        require(len(xs) > 0, "needs at least one tensor")
        require(-xs[0].ndim <= self.axis < xs[0].ndim, "axis out of range", axis=self.axis, x=xs[0])
        at = self.axis % xs[0].ndim
        rest = {(x.dtype, x.ndim, x.shape[:at], x.shape[at + 1 :]) for x in xs}
        require(len(rest) == 1, "other axes and element types must agree", axis=self.axis)
        return xs[0].with_shape(*xs[0].shape[:at], sum(x.shape[at] for x in xs), *xs[0].shape[at + 1 :])

    def kernel(self, *xs: np.ndarray) -> np.ndarray:
        return np.concatenate(xs, self.axis)

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        at = self.axis % inputs[0].ndim
        ends = np.cumsum([x.shape[at] for x in inputs]).tolist()
        starts = [0, *ends[:-1]]
        return [_piece(douts[0], at, start, x) for start, x in zip(starts, inputs, strict=True)]

    def lower(self, b: Builder, *xs: str) -> str:
        return b.node("Concat", xs, axis=self.axis)


def _piece(dout: Value, axis: int, start: int, like: Value) -> Gradient:
    begin = tuple(start if k == axis else 0 for k in range(like.ndim))
    return lambda: Slice(begin, like.shape)(dout)


@primitive
class Slice(Primitive):
    """The block of `size` elements per axis that starts at `begin`."""

    begin: Shape = ()
    size: Shape = ()
    statics: ClassVar = ("begin", "size")

    def infer(self, x: TensorType) -> TensorType:
        fits = len(self.begin) == len(self.size) == x.ndim and all(
            b >= 0 and s > 0 and b + s <= n for b, s, n in zip(self.begin, self.size, x.shape, strict=True)
        )
        require(fits, "the block does not lie inside the tensor", x=x, begin=self.begin, size=self.size)
        return x.with_shape(*self.size)

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return x[tuple(slice(b, b + s) for b, s in zip(self.begin, self.size, strict=True))]

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        ends = zip(inputs[0].shape, self.begin, self.size, strict=True)
        return (Pad(tuple((b, n - b - s) for n, b, s in ends))(douts[0]),)

    def lower(self, b: Builder, x: str) -> str:
        ends = [start + size for start, size in zip(self.begin, self.size, strict=True)]
        return b.node("Slice", (x, b.const(list(self.begin)), b.const(ends)))


@primitive
class Pad(Primitive):
    """Zeros around a tensor: `paddings` gives (before, after) for each axis."""

    paddings: tuple[tuple[int, int], ...] = ()

    def infer(self, x: TensorType) -> TensorType:
        fits = len(self.paddings) == x.ndim and all(low >= 0 and high >= 0 for low, high in self.paddings)
        require(fits, "one pair of non-negative paddings per axis", x=x, paddings=self.paddings)
        return x.with_shape(*(low + n + high for n, (low, high) in zip(x.shape, self.paddings, strict=True)))

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return np.pad(x, self.paddings)

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (Slice(tuple(low for low, _ in self.paddings), inputs[0].shape)(douts[0]),)

    def lower(self, b: Builder, x: str) -> str:
        return b.node("Pad", (x, b.const([low for low, _ in self.paddings] + [high for _, high in self.paddings])))
