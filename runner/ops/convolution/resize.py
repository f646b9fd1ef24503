"""Images of another size: bilinear interpolation and nearest neighbours, with the positions of MindSpore.

Without `align_corners` row i of the result is at row i * (rows / new rows) of the image, as in MindSpore: the
corners, not the centres of pixels, are at whole numbers. With it first and last rows coincide.
"""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from runner import dtype as dt
from runner.core.lowering import Builder
from runner.core.operators import Gradient, Primitive, family, primitive
from runner.core.parts import Axes, PartRule, Parts, each_sample
from runner.core.values import Tensor, Value
from runner.ops.array import Cast, Reshape, Transpose, require
from runner.ops.indexing.gather import UnsortedSegmentSum
from runner.ops.reduce import ReduceSum
from runner.types import Shape, TensorType

RESIZED = dt.float32, dt.int32, dt.int8, dt.uint8  # what onnxruntime's own operator takes


@family
class Resizing(Primitive):
    """Base: images (N, C, H, W) to `size`, new height and width."""

    needs_elements: ClassVar = True

    size: Shape
    align_corners: bool = False

    def __post_init__(self) -> None:
        sizes = tuple(self.size) if isinstance(self.size, list | tuple) else ()
        fits = len(sizes) == 2 and all(type(n) is int and n >= 1 for n in sizes)
        require(fits, "size must be two positive ints, new height and width", given=self.size)
        object.__setattr__(self, "size", sizes)

    def infer(self, x: TensorType) -> TensorType:
        require(x.ndim == 4, "needs images (N, C, H, W)", x=x)
        return x.with_shape(*x.shape[:2], *self.size)

    def part(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> PartRule | None:
        return each_sample(self, axes, (0,), (0,))

    def positions(self, shape: Shape, axis: int) -> np.ndarray:
        """Where the rows (axis 2) or columns (3) of the result are in the image. In Float32, as in MindSpore."""
        length, out = shape[axis], self.size[axis - 2]
        aligned = self.align_corners and out > 1
        scale = np.float32(length - 1) / np.float32(out - 1) if aligned else np.float32(length) / np.float32(out)
        return np.arange(out, dtype=np.float32) * scale


def sum_rows(x: Value, axis: int, places: np.ndarray, length: int) -> Value:
    """Each slice of x along an axis, added to the one of its place among `length` zeros: the adjoint of a gather."""
    front = (axis, *(k for k in range(x.ndim) if k != axis))
    back = tuple(front.index(k) for k in range(x.ndim))
    return Transpose(back)(UnsortedSegmentSum(length)(Transpose(front)(x), Tensor(places)))


@primitive
class ResizeNearestNeighbor(Resizing):
    """The pixel whose place is next below, with `align_corners` the nearest one."""

    computes: ClassVar = False

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return x.take(self.places(x.shape, 2), 2).take(self.places(x.shape, 3), 3)

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        shape, total = inputs[0].shape, douts[0]
        if times := self._times(shape):
            blocks = Reshape((*shape[:3], times[0], shape[3], times[1]))(total)
            return (ReduceSum(axis=(3, 5))(blocks),)
        for axis in (3, 2):
            total = sum_rows(total, axis, self.places(shape, axis), shape[axis])
        return (total,)

    def lower(self, b: Builder, x: str) -> str:
        shape, times = b.type(x).shape, self._times(b.type(x).shape)
        if times and b.type(x).dtype in RESIZED:
            rules = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor", "mode": "nearest"}
            return b.node("Resize", (x, "", b.const(np.array((1, 1, *times), np.float32))), **rules)
        for axis in (2, 3):
            x = b.node("Gather", (x, b.const(self.places(shape, axis))), axis=axis)
        return x

    def places(self, shape: Shape, axis: int) -> np.ndarray:
        """The row (axis 2) or column (3) of the image for each of the result."""
        found = np.floor(self.positions(shape, axis) + np.float32(0.5 * self.align_corners))
        return np.minimum(found.astype(np.int64), shape[axis] - 1)

    def _times(self, shape: Shape) -> tuple[int, ...]:
        """How often each row and column is repeated, or () where they differ."""
        found = tuple(size // length for size, length in zip(self.size, shape[2:], strict=True))
        repeated = (np.arange(n).repeat(times) for n, times in zip(shape[2:], found, strict=True))
        same = all(np.array_equal(self.places(shape, axis), row) for axis, row in zip((2, 3), repeated, strict=True))
        return found if same else ()


@primitive
class ResizeBilinear(Resizing):
    """Interpolated linearly along the width, then along the height. The result of Float16 is Float32, as in r1.2."""

    flops_each: ClassVar = 6

    def infer(self, x: TensorType) -> TensorType:
        require(x.ndim == 4 and x.dtype.is_float, "needs floats (N, C, H, W)", x=x)
        return super().infer(x).with_dtype(dt.float32 if x.dtype is dt.float16 else x.dtype)

    def kernel(self, x: np.ndarray) -> np.ndarray:
        for axis in (3, 2):
            low, high, share = self._between(x.shape, axis)
            before, after = x.take(low, axis), x.take(high, axis)
            x = before + (after - before) * share.astype(x.dtype)
        return x

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        shape, total = inputs[0].shape, douts[0]
        for axis in (2, 3):
            low, high, share = self._between(shape, axis)
            after = total * Tensor(share.astype(total.dtype.numpy))
            total = sum_rows(total - after, axis, low, shape[axis]) + sum_rows(after, axis, high, shape[axis])
        return (Cast(inputs[0].dtype)(total),)

    def lower(self, b: Builder, x: str) -> str:
        if b.type(x).dtype is dt.float16:
            x = b.node("Cast", (x,), to=dt.float32)
        shape, dtype = b.type(x).shape, b.type(x).dtype.numpy
        for axis in (3, 2):
            low, high, share = self._between(shape, axis)
            before, after = (b.node("Gather", (x, b.const(places)), axis=axis) for places in (low, high))
            step = b.node("Mul", (b.node("Sub", (after, before)), b.const(share.astype(dtype))))
            x = b.node("Add", (before, step))
        return x

    def _between(self, shape: Shape, axis: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The slices before and after each slice of the result, and the share of the one after, to multiply with."""
        positions, last = self.positions(shape, axis), shape[axis] - 1
        low = np.floor(positions)
        share = (positions - low).reshape(-1, 1) if axis == 2 else positions - low
        places = [np.minimum(found.astype(np.int64), last) for found in (low, np.ceil(positions))]
        return places[0], places[1], share
