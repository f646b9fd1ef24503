"""Strided slices, and their adjoint."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from runner.core.lowering import Builder
from runner.core.operators import Gradient, Primitive, family, primitive
from runner.core.values import Value, as_values
from runner.ops.array import ExpandDims, require
from runner.types import Shape, TensorType

__all__ = ["StridedSlice", "StridedSliceGrad"]


@family
class Strided(Primitive):
    """Base: from `begin` up to `end` (not included) in steps of `strides`, which are positive.

    Negative begins and ends count from the end of the axis; axes without a begin are taken whole. Bit k of a mask is
    for axis k: `begin_mask` and `end_mask` ignore the bound, `shrink_axis_mask` takes only `begin` and removes the
    axis. A call replaces the other two masks by these: `ellipsis_mask` takes whole axes, as many as are left,
    `new_axis_mask` adds an axis of length 1.
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
        require(self.ellipsis_mask.bit_count() <= 1, "only one ellipsis is possible", ellipsis_mask=self.ellipsis_mask)

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

    def __call__(self, *operands: Any) -> Any:
        if not self.ellipsis_mask | self.new_axis_mask:
            return super().__call__(*operands)
        op, (x, *_) = self._with_statics(operands) if len(operands) > 1 else (self, operands)
        plain, new_axes = op.without_axes(as_values((x,))[0].ndim)
        result = plain(x)
        for axis in new_axes:
            result = ExpandDims(axis)(result)
        return result

    def without_axes(self, ndim: int) -> tuple["StridedSlice", list[int]]:
        """The slice without the two masks, for an operand with `ndim` axes, and where its result gets new axes."""
        bounds: list[tuple[int, int, int]] = []
        masks = {"begin_mask": 0, "end_mask": 0, "shrink_axis_mask": 0}
        new_axes, length = list[int](), 0
        named = sum(not (self.ellipsis_mask | self.new_axis_mask) >> k & 1 for k in range(len(self.begin)))
        for k, bound in enumerate(zip(self.begin, self.end, self.strides, strict=True)):
            if self.ellipsis_mask >> k & 1:
                masks = {
                    m: v | (2 ** (ndim - named) - 1 << len(bounds)) * (m != "shrink_axis_mask")
                    for m, v in masks.items()
                }
                bounds += [(0, 0, 1)] * (ndim - named)
                length += ndim - named
            elif self.new_axis_mask >> k & 1:
                new_axes.append(length)
                length += 1
            else:
                masks = {m: v | (getattr(self, m) >> k & 1) << len(bounds) for m, v in masks.items()}
                bounds.append(bound)
                length += not self.shrink_axis_mask >> k & 1
        begin, end, strides = zip(*bounds, strict=True) if bounds else ((), (), ())
        return StridedSlice(**masks, begin=begin, end=end, strides=strides), new_axes

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
