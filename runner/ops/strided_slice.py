"""Strided slices, and their adjoint."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from runner.core.lowering import Builder
from runner.core.primitive import Gradient, Primitive, family, primitive
from runner.core.value import Value
from runner.ops.array import require
from runner.types import Shape, TensorType

__all__ = ["StridedSlice", "StridedSliceGrad"]


@family
class Strided(Primitive):
    """Base: from `begin` up to `end` (not included) in steps of `strides`, which are positive.

    Negative begins and ends count from the end of the axis; axes without a begin are taken whole. Bit k of a mask is
    for axis k: `begin_mask` and `end_mask` ignore the bound, `shrink_axis_mask` takes only `begin` and removes the
    axis. The other two masks of the reference must be 0.
    """

    computes: ClassVar = False

    begin_mask: int = 0
    end_mask: int = 0
    ellipsis_mask: int = 0
    new_axis_mask: int = 0
    shrink_axis_mask: int = 0
    begin: Shape = ()
    end: Shape = ()
    strides: Shape = ()
    statics: ClassVar = ("begin", "end", "strides")

    def __post_init__(self) -> None:
        masks = {"ellipsis_mask": self.ellipsis_mask, "new_axis_mask": self.new_axis_mask}
        for name, mask in masks.items():
            require(mask == 0, f"{name} is not supported", given=mask, allowed=0)

    def ranges(self, shape: Shape) -> tuple[range, ...]:
        """The positions along each axis. Raises ShapeError when there are none."""
        named = len(self.begin) == len(self.end) == len(self.strides) <= len(shape)
        rows = {"begin": self.begin, "end": self.end, "strides": self.strides}
        require(named, "begin, end and strides must name the same leading axes", shape=shape, **rows)
        require(all(s >= 1 for s in self.strides), "strides must be positive", strides=self.strides)
        given = zip(range(len(shape)), self.begin, self.end, self.strides, shape, strict=False)
        taken = [self._range(*numbers) for numbers in given]
        require(all(taken), "the slice is empty", shape=shape, **rows)
        return *taken, *map(range, shape[len(taken) :])

    def _range(self, axis: int, begin: int, end: int, stride: int, length: int) -> range:
        bit = 1 << axis
        if self.shrink_axis_mask & bit:
            return range(length)[begin : begin + 1 or None]
        low = None if self.begin_mask & bit else begin
        high = None if self.end_mask & bit else end
        return range(length)[low:high:stride]

    def block(self, x: TensorType) -> TensorType:
        """Type of the slice of x."""
        removed = {k for k in range(len(self.begin)) if self.shrink_axis_mask >> k & 1}
        return x.with_shape(*(len(r) for k, r in enumerate(self.ranges(x.shape)) if k not in removed))

    def index(self, shape: Shape) -> tuple[slice, ...]:
        """The slice as an index of numpy."""
        return tuple(slice(r.start, r.stop, r.step) for r in self.ranges(shape))


@primitive
class StridedSlice(Strided):
    """A slice of x with a stride for each axis."""

    def infer(self, x: TensorType) -> TensorType:
        return self.block(x)

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return x[self.index(x.shape)].reshape(self.block(TensorType.of(x)).shape)

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (StridedSliceGrad(**self.attributes(), x_shape=inputs[0].shape)(douts[0]),)

    def lower(self, b: Builder, x: str) -> str:
        taken = self.ranges(b.type(x).shape)
        starts, stops, steps = ([getattr(r, name) for r in taken] for name in ("start", "stop", "step"))
        axes = list(range(len(taken)))
        block = b.node("Slice", (x, b.const(starts), b.const(stops), b.const(axes), b.const(steps)))
        return b.reshape(block, self.block(b.type(x)).shape)


@primitive
class StridedSliceGrad(Strided):
    """Adjoint of StridedSlice: the elements of dout at their positions in zeros of `x_shape`."""

    x_shape: Shape = ()

    def infer(self, dout: TensorType) -> TensorType:
        x = dout.with_shape(*self.x_shape)
        expected = self.block(x)
        require(dout == expected, "the shape of dout does not match the attributes", dout=dout, expected=expected)
        return x

    def kernel(self, dout: np.ndarray) -> np.ndarray:
        result, taken = np.zeros(self.x_shape, dout.dtype), self.ranges(self.x_shape)
        result[self.index(self.x_shape)] = dout.reshape([len(r) for r in taken])
        return result

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        same = {name: value for name, value in self.attributes().items() if name != "x_shape"}
        return (StridedSlice(**same)(douts[0]),)

    def lower(self, b: Builder, dout: str) -> str:
        taken = self.ranges(self.x_shape)
        if any(r.step > 1 for r in taken):
            # Each element gets an axis of its own, which is padded with zeros to the length of a step.
            separated = b.reshape(dout, [k for r in taken for k in (len(r), 1)])
            gaps = [k for r in taken for k in (0, r.step - 1)]
            filled = b.node("Pad", (separated, b.const([0] * len(gaps) + gaps)))
            dout = b.reshape(filled, [len(r) * r.step for r in taken])
        else:
            dout = b.reshape(dout, [len(r) for r in taken])
        ends = [n - r.start - len(r) * r.step for r, n in zip(taken, self.x_shape, strict=True)]
        # The zeros after the last element may be outside: negative padding removes them.
        return b.node("Pad", (dout, b.const([r.start for r in taken] + ends)))
