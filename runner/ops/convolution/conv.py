"""Convolution and its two gradients.

Convolution is bilinear, so each of the three operators is the derivative of the other two; in numpy all three are one
matrix product with the columns of the windows (im2col). Attributes and operand order are those of MindSpore.

Each operator has its lowering (`lower`), and others for values in batch-last layout, (C, H, W, N) in memory, which
`lowerings` offers with the fastest first: products of matrices, convolutions of one image with the batch, tiles.
Winograd's transforms are in `winograd.py`, for numpy and for ONNX.
"""

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import InitVar, replace
from functools import lru_cache, partial, reduce
from typing import Any, ClassVar, TypeVar

import numpy as np

from runner.core.lowering import FUSED, LAST, TILED, Builder, Lowering
from runner.core.operators import Gradient, Primitive, family, primitive
from runner.core.parts import Axes, PartRule, Parts, each_sample
from runner.core.precision import OperandPrecision
from runner.core.values import Value
from runner.host.threads import in_order
from runner.ops.array import Pad, Reshape, Transpose, require, require_nchw
from runner.ops.convolution.pool import Pooling
from runner.ops.convolution.windows import (
    PAD_MODES,
    SHARED_BYTES,
    WHOLE_BYTES,
    Pair,
    Quad,
    Windows,
    as_image,
    as_rows,
    at_offset,
    batch_first,
    batch_last,
    column_bytes,
    columns,
    corners,
    cropped,
    dilated,
    padded,
    pair,
    quad,
    suits_batch_last,
    thinned,
    tiles,
)
from runner.ops.convolution.winograd import (
    FILTER_CHANNELS,
    TiledConvolution,
    lower_filter_gradient,
    lower_forward,
    lower_input_gradient,
    tiled_convolution,
    with_winograd,
)
from runner.ops.indexing.slices import StridedSliceGrad
from runner.ops.matrices import blocked_product, unpacked_sum
from runner.types import Shape, TensorType
from runner.validation.rules import Frozen

Sibling = TypeVar("Sibling", bound="Convolution")
FEW_CHANNELS, LARGE_FILTER = 16, 4  # for which tiles pay off
FLIPPED_CHANNELS = range(8, 257)  # for which the flipped filter is faster than ConvTranspose (BENCHMARKS.md)


@family
class Convolution(Primitive):
    """Base of the three operators: attributes and window geometry."""

    precision: ClassVar = OperandPrecision.HALF
    needs_elements: ClassVar = True
    convolves: ClassVar = True

    out_channel: int
    kernel_size: Pair
    mode: int = 1
    pad_mode: str = "valid"
    pad: Quad = (0, 0, 0, 0)
    stride: Pair = (1, 1)
    dilation: Pair = (1, 1)
    group: int = 1
    data_format: InitVar[str] = "NCHW"

    def __post_init__(self, data_format: str) -> None:
        require_nchw(data_format)
        require(self.pad_mode in PAD_MODES, "unknown pad_mode", given=self.pad_mode, allowed=", ".join(PAD_MODES))
        require(self.mode == 1, "only cross-correlation (mode 1) exists", mode=self.mode)
        require(
            self.group >= 1 and self.out_channel % self.group == 0, "group must divide out_channel", group=self.group
        )
        pairs = {"kernel_size": self.kernel_size, "stride": self.stride, "dilation": self.dilation}
        for name, value in pairs.items():
            object.__setattr__(self, name, pair(value, name))
        object.__setattr__(self, "pad", quad(self.pad, "pad"))
        fits = self.pad_mode == "pad" or not any(self.pad)
        require(fits, "pad needs pad_mode='pad'", pad=self.pad, pad_mode=self.pad_mode)

    def windows(self, image: Shape) -> Windows:
        """The windows in images of shape (N, C, H, W)."""
        return Windows.resolve(
            (image[2], image[3]), self.kernel_size, self.stride, self.pad_mode, self.pad, self.dilation
        )

    def tiled(self, windows: Windows | None, filters: Shape, x: np.ndarray) -> TiledConvolution | None:
        """The numpy kernels of windows in x (N, ...) for filters of a shape that take fewer multiplications, if any."""
        if self.group > 1 or windows is None or x.dtype != np.float32:
            return None
        return tiled_convolution(windows, filters, len(x))

    def common_attributes(self) -> dict[str, Any]:
        """The attributes of all three operators."""
        names = ("out_channel", "kernel_size", "mode", "pad_mode", "pad", "stride", "dilation", "group")
        return {name: getattr(self, name) for name in names}

    def listed(self, inputs: Sequence[TensorType]) -> dict[str, Any]:
        wide = {"stride": (1, 1, *self.stride), "dilation": (1, 1, *self.dilation)}
        pads = self.windows(self.image(inputs)).pads
        return self.attributes() | wide | {"pad_list": pads, "groups": self.group, "format": "NCHW"}

    def image(self, inputs: Sequence[TensorType]) -> Shape:
        """The shape (N, C, H, W) of the images over which the windows move, for these operands."""
        raise NotImplementedError

    def sibling(self, kind: type[Sibling], **more: Shape) -> Sibling:
        """Another of the three operators, with the common attributes and its own."""
        operator: Sibling = _sibling(self, kind, **more)  # type: ignore[arg-type]  # mypy needs a hash of the values
        return operator

    def is_pointwise(self, windows: Windows) -> bool:
        """Whether each window is one pixel, so that im2col is not needed."""
        return windows.kernel == (1, 1) and not any(windows.pads) and self.group == 1

    def grouped(self, a: np.ndarray) -> np.ndarray:
        """Split the first axis by group, and flatten the rest: (G, rows, columns)."""
        return a.reshape(self.group, a.shape[0] // self.group, -1)

    def tiling_pays_off(self, x: TensorType) -> bool:
        """Whether four neighbouring outputs at once are faster than one at a time: for few channels and large filters.

        A tile of a 5x5 filter takes 1.4 times the multiplications and a third of the columns, with four times the rows.
        """
        windows, few = self.windows(x.shape), self.group == 1 and self.out_channel <= FEW_CHANNELS
        fits = windows.strides == windows.dilations == (1, 1) and not any(n % 2 for n in windows.out)
        return few and fits and min(windows.kernel) >= LARGE_FILTER


@lru_cache(maxsize=4096)
def _sibling(op: Convolution, kind: Any, **more: Any) -> Any:
    # Cached: PyNative mode calls this in every step, and validating the attributes takes as long as a small kernel.
    return kind(**op.common_attributes(), **more)


def multiply_adds(result: TensorType, filters: TensorType) -> int:
    """Operations of a convolution: two for each element of a filter, at each element of the result."""
    return 2 * result.size * math.prod(filters.shape[1:])


@primitive
class Conv2D(Convolution):
    """Cross-correlate x (N, C, H, W) with w (K, C/group, KH, KW)."""

    def image(self, inputs: Sequence[TensorType]) -> Shape:
        return inputs[0].shape

    def infer(self, x: TensorType, w: TensorType) -> TensorType:
        fits = x.ndim == w.ndim == 4 and x.dtype is w.dtype and x.dtype.is_float
        require(fits, "needs floats (N, C, H, W) and (K, C/group, KH, KW)", x=x, w=w)
        channels = f"{w} has {w.shape[1]} x group {self.group}"
        require(x.shape[1] == w.shape[1] * self.group, "channels of x against w", x=f"{x} has {x.shape[1]}", w=channels)
        expected = (self.out_channel, w.shape[1], *self.kernel_size)
        require(w.shape == expected, "the shape of w does not match the attributes", w=w, expected=expected)
        return x.with_shape(x.shape[0], self.out_channel, *self.windows(x.shape).out)

    def kernel(self, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        windows = self.windows(x.shape)
        if tiled := self.tiled(windows, w.shape, x):
            return batch_first(tiled.correlate(batch_last(x), w))
        return batch_first(windows.correlate(batch_last(x), self.grouped(w)))

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return multiply_adds(outputs[0], inputs[1])

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        (x, w), (dout,) = inputs, douts
        return (
            lambda: self.sibling(Conv2DBackpropInput, input_size=x.shape)(dout, w),
            lambda: self.sibling(Conv2DBackpropFilter, filter_size=w.shape)(dout, x),
        )

    def lower(self, b: Builder, x: str, w: str) -> str:
        return b.node("Conv", (x, w), group=self.group, **self.windows(b.type(x).shape).onnx())

    def part(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> PartRule | None:
        return each_sample(self, axes, (0, None), (0,))

    def lowerings(self, x: TensorType, w: TensorType) -> Sequence[Lowering]:
        batch_last_lowerings = self._batch_last_lowerings(x) if suits_batch_last(x) else ()
        return *batch_last_lowerings, Lowering("plain", self.lower, penalty=x.size)

    def _batch_last_lowerings(self, x: TensorType) -> tuple[Lowering, ...]:
        def lowering(name: str, lower: Callable[..., str]) -> Lowering:
            return Lowering(name, lower, (LAST,), (LAST,))

        windows = self.windows(x.shape)
        if self.is_pointwise(windows):
            return (lowering("pointwise", self._lower_pointwise),)
        gathered, convolved = lowering("gathered", self._lower_gathered), lowering("convolved", self._lower_convolved)
        if windows.strides[1] > 1:
            return (gathered,)
        # Small columns are gathered once, for the gradient of the filter too.
        shared = self.group == 1 and column_bytes(windows, x.shape, x.dtype.size) <= SHARED_BYTES
        best = (gathered, convolved) if shared else (convolved, gathered)
        if self.tiling_pays_off(x):
            return *best, Lowering("tiled", self._lower_tiled, (LAST,), (TILED,))
        if self.group > 1:
            return best
        return with_winograd(best, lower_forward, self.out_channel, windows, x.shape)

    def _lower_pointwise(self, b: Builder, x: str, w: str) -> str:
        """One product: (K, C) times (C, pixels)."""
        shape = b.type(x).shape
        return self._product(b, x, w, thinned(b, x, self.windows(shape), shape))

    def _lower_gathered(self, b: Builder, x: str, w: str) -> str:
        """One product: (K, C*KH*KW) times the columns."""
        shape = b.type(x).shape
        return self._product(b, x, w, columns(b, x, self.windows(shape), shape))

    def _lower_tiled(self, b: Builder, x: str, w: str) -> str:
        """One product for the four corners of every tile: (4K, columns of a tile) times the columns of the tiles."""
        shape = b.type(x).shape
        windows = tiles(self.windows(shape))
        offsets, tile_offsets = math.prod(self.kernel_size), math.prod(windows.kernel)
        placed = b.node(
            "MatMul", (b.reshape(w, (self.out_channel * shape[1], offsets)), b.const(corners(self.kernel_size)))
        )
        filters = b.reshape(placed, (4 * self.out_channel, shape[1] * tile_offsets))
        result = b.node("MatMul", (filters, columns(b, x, windows, shape)))
        return b.reshape(result, (2, 2, self.out_channel, *windows.out, shape[0]))

    def _lower_convolved(self, b: Builder, x: str, w: str) -> str:
        """A dilated convolution of one image that contains the batch."""
        shape = b.type(x).shape
        windows = self.windows(shape)
        result = b.node("Conv", (as_image(b, x, shape), w), group=self.group, **dilated(windows, shape[0]))
        return b.reshape(result, (self.out_channel, *windows.out, shape[0]))

    def _product(self, b: Builder, x: str, w: str, rows: str) -> str:
        shape, outs = b.type(x).shape, self.out_channel // self.group
        windows, ins = self.windows(shape), b.type(w).size // self.out_channel
        if self.group == 1:
            left, right = b.reshape(w, (outs, ins)), rows
        else:
            pixels = math.prod(windows.out) * shape[0]
            left, right = b.reshape(w, (self.group, outs, ins)), b.reshape(rows, (self.group, ins, pixels))
        return b.reshape(b.node("MatMul", (left, right)), (self.out_channel, *windows.out, shape[0]))


@primitive
class Conv2DBackpropInput(Convolution):
    """Gradient of Conv2D with respect to x: (dout, w) to `input_size`, which a stride makes ambiguous."""

    input_size: Shape = ()
    statics: ClassVar = ("input_size",)
    operand_names: ClassVar = ("out_backprop", "filter")

    def image(self, inputs: Sequence[TensorType]) -> Shape:
        return self.input_size

    def infer(self, dout: TensorType, w: TensorType) -> TensorType:
        expected = self.sibling(Conv2D).infer(dout.with_shape(*self.input_size), w)
        require(dout == expected, "the type of dout does not match the attributes", dout=dout, expected=expected)
        return dout.with_shape(*self.input_size)

    def kernel(self, dout: np.ndarray, w: np.ndarray) -> np.ndarray:
        windows, channels = self.windows(self.input_size), self.input_size[1]
        reverse = windows.reverse
        if tiled := self.tiled(reverse, w.shape, dout):
            return batch_first(tiled.correlate(batch_last(dout), w, flipped=True))
        # im2col needs a column per element of the image; col2im needs one per element of the result, but is slower.
        if reverse and len(w) * math.prod(windows.size) <= channels * math.prod(windows.out):
            flipped = w.reshape(self.group, -1, *w.shape[1:])[..., ::-1, ::-1].swapaxes(1, 2)
            filters = flipped.reshape(self.group, channels // self.group, -1)
            return batch_first(reverse.correlate(batch_last(dout), filters))
        douts, filters = self.grouped(batch_last(dout)), self.grouped(w).swapaxes(1, 2)
        if self.is_pointwise(windows) and self.stride == (1, 1):
            columns = blocked_product(filters[0], douts[0])  # of one group
            return batch_first(columns.reshape(channels, *windows.size, len(dout)))
        image = np.zeros((channels, *windows.padded, len(dout)), dout.dtype)
        if reverse and self.group == 1:
            rows = w[..., ::-1].transpose(2, 1, 0, 3).reshape(self.kernel_size[0], channels, -1)
            return batch_first(windows.col2im_rows(batch_last(dout), rows, image))
        blocks = windows.blocks(channels * math.prod(self.kernel_size), len(dout), dout.itemsize)
        parts = in_order(lambda block: (block, filters @ douts[..., block]), blocks, 2 * w.size * douts.shape[-1])
        return batch_first(windows.col2im(parts, image))

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return multiply_adds(inputs[0], inputs[1])

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        (dout, w), (g,) = inputs, douts
        return (
            lambda: self.sibling(Conv2D)(g, w),
            lambda: self.sibling(Conv2DBackpropFilter, filter_size=w.shape)(dout, g),
        )

    def lower(self, b: Builder, dout: str, w: str) -> str:
        windows = self.windows(self.input_size)
        # output_padding restores the rows and columns that the stride did not reach.
        missing = [(p - r) % s for p, r, s in zip(windows.padded, windows.extent, windows.strides, strict=True)]
        return b.node("ConvTranspose", (dout, w), output_padding=missing, group=self.group, **windows.onnx())

    def part(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> PartRule | None:
        size = self.input_size[0] // parts.count, *self.input_size[1:]
        return each_sample(self.sibling(Conv2DBackpropInput, input_size=size), axes, (0, None), (0,))

    def lowerings(self, dout: TensorType, w: TensorType) -> Sequence[Lowering]:
        batch_last_lowerings = self._batch_last_lowerings() if suits_batch_last(dout) else ()
        return *batch_last_lowerings, Lowering("plain", self.lower, penalty=dout.size)

    def _batch_last_lowerings(self) -> tuple[Lowering, ...]:
        """With a stride along the width, every input pixel belongs to a phase (its remainder by the stride), and the
        pixels of a phase are an ordinary convolution of dout with a part of the filter: no multiplications by inserted
        zeros."""

        def lowering(name: str, lower: Callable[..., str]) -> Lowering:
            return Lowering(name, lower, (LAST,), (LAST,))

        windows = self.windows(self.input_size)
        reverse = windows.reverse
        if self.is_pointwise(windows):
            return (lowering("pointwise", self._lower_pointwise),)
        if windows.strides[1] > 1:
            return (lowering("woven", self._lower_woven),) if self.group == 1 and _has_plain_phases(windows) else ()
        transposed = lowering("transposed", self._lower_transposed)
        if self.group > 1 or reverse is None:
            return (transposed,)
        both = lowering("turned", partial(self._lower_turned, reverse)), transposed
        best = both if self.input_size[1] in FLIPPED_CHANNELS else both[::-1]
        return with_winograd(best, lower_input_gradient, self.out_channel, reverse, self.input_size)

    def _lower_pointwise(self, b: Builder, dout: str, w: str) -> str:
        """One product: (C, K) times (K, pixels), with zeros between the pixels of a stride."""
        windows, (batch, channels) = self.windows(self.input_size), self.input_size[:2]
        rows = b.reshape(w, (self.out_channel, channels)), as_rows(b, dout, self.out_channel)
        result, (down, across) = b.node("Gemm", rows, transA=1), windows.strides
        if windows.strides != (1, 1):
            result = b.reshape(result, (channels, windows.out[0], 1, windows.out[1], 1, batch))
            result = b.node("Pad", (result, b.const([0] * 8 + [down - 1, 0, across - 1, 0])))
        return cropped(b, result, self.input_size, (windows.out[0] * down, windows.out[1] * across))

    def _lower_transposed(self, b: Builder, dout: str, w: str) -> str:
        """A dilated transposed convolution of one image that contains the batch."""
        windows, (batch, *image) = self.windows(self.input_size), self.input_size
        missing = (windows.padded[0] - windows.extent[0]) % windows.strides[0], 0
        given = as_image(b, dout, b.type(dout).shape)
        geometry = dilated(windows, batch)
        result = b.node("ConvTranspose", (given, w), output_padding=missing, group=self.group, **geometry)
        return b.reshape(result, (*image, batch))

    def _lower_turned(self, reverse: Windows, b: Builder, dout: str, w: str) -> str:
        """A dilated convolution of dout with the flipped filter, over the windows `reverse`.

        Flipping by a product with a permutation matrix is three times faster than by a Slice.
        """
        (batch, *image), offsets = self.input_size, self.kernel_size[0] * self.kernel_size[1]
        reversal = b.const(np.ascontiguousarray(np.eye(offsets, dtype=np.float32)[::-1]))
        flipped = b.node("MatMul", (b.reshape(w, (self.out_channel * image[0], offsets)), reversal))
        swapped = b.node("Transpose", (b.reshape(flipped, (self.out_channel, image[0], offsets)),), perm=(1, 0, 2))
        swapped = b.reshape(swapped, (image[0], self.out_channel, *self.kernel_size))
        given = as_image(b, dout, b.type(dout).shape)
        result = b.node("Conv", (given, swapped), group=1, **dilated(reverse, batch))
        return b.reshape(result, (*image, batch))

    def _lower_woven(self, b: Builder, dout: str, w: str) -> str:
        """One small convolution per phase, with interleaved results."""
        windows, (batch, channels, height, width) = self.windows(self.input_size), self.input_size
        down, across = windows.strides
        size = -(-height // down), -(-width // across)
        given, swapped = as_image(b, dout, b.type(dout).shape), b.node("Transpose", (w,), perm=(1, 0, 2, 3))
        rows = []
        for upper in _phases(windows, 0):
            filters = b.node("Gather", (swapped, b.const(list(upper.offsets))), axis=2)
            row = []
            for left in _phases(windows, 1):
                part = b.node("Gather", (filters, b.const(list(left.offsets))), axis=3)
                pads = upper.before, left.before * batch, upper.after, left.after * batch
                result = b.node("Conv", (given, part), group=1, pads=pads, dilations=(1, batch), strides=(1, 1))
                row.append(b.reshape(result, (channels, size[0], 1, size[1], 1, batch)))
            rows.append(b.node("Concat", row, axis=4))
        whole = b.node("Concat", rows, axis=2)
        return cropped(b, whole, self.input_size, (size[0] * down, size[1] * across))


class Phase(Frozen):
    """The rows (or columns) of an input with the same remainder by the stride.

    `offsets` are the elements of the filter that reach them, in the order of the convolution; `before` and `after` the
    padding of dout with zeros.
    """

    offsets: tuple[int, ...]
    before: int
    after: int


def _has_plain_phases(windows: Windows) -> bool:
    """Whether every phase is an ordinary convolution: no dilation, no filter below its stride, no negative padding."""
    both = [*_phases(windows, 0), *_phases(windows, 1)]
    return windows.dilations == (1, 1) and all(p.offsets and min(p.before, p.after) >= 0 for p in both)


def _phases(windows: Windows, axis: int) -> list[Phase]:
    """Row i of the padded input is stride*m + p; filter rows p, p + stride, ... apply to output rows m, m - 1, ..."""
    stride, kernel, before = windows.strides[axis], windows.kernel[axis], windows.pads[2 * axis]
    rows = -(-windows.size[axis] // stride)
    phases = []
    for remainder in range(stride):
        moved, first = divmod(remainder + before, stride)
        offsets = tuple(range(first, kernel, stride))[::-1]
        zeros = len(offsets) - 1 - moved
        phases.append(Phase(offsets, zeros, rows - windows.out[axis] - zeros + len(offsets) - 1))
    return phases


@primitive
class Conv2DBackpropFilter(Convolution):
    """Gradient of Conv2D with respect to w: (dout, x) to `filter_size`."""

    filter_size: Shape = ()
    statics: ClassVar = ("filter_size",)
    operand_names: ClassVar = ("out_backprop", "input")

    def image(self, inputs: Sequence[TensorType]) -> Shape:
        return inputs[1].shape

    def infer(self, dout: TensorType, x: TensorType) -> TensorType:
        expected = self.sibling(Conv2D).infer(x, x.with_shape(*self.filter_size))
        require(dout == expected, "the type of dout does not match the attributes", dout=dout, expected=expected)
        return x.with_shape(*self.filter_size)

    def kernel(self, dout: np.ndarray, x: np.ndarray) -> np.ndarray:
        windows = self.windows(x.shape)
        if tiled := self.tiled(windows, self.filter_size, x):
            return tiled.filter_gradient(batch_last(dout), batch_last(x))
        douts = self.grouped(batch_last(dout))

        def multiply(part: slice, columns: np.ndarray) -> np.ndarray:
            return transposed_product(douts[..., part], self.grouped(columns))

        parts = windows.im2col(batch_last(x), multiply, douts.shape[1])
        gradient = reduce(np.add, (values for _, values in parts))
        return np.ascontiguousarray(gradient).reshape(self.filter_size)  # the order of what it updates

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return multiply_adds(inputs[0], outputs[0])

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        (dout, x), (g,) = inputs, douts
        return (
            lambda: self.sibling(Conv2D)(x, g),
            lambda: self.sibling(Conv2DBackpropInput, input_size=x.shape)(dout, g),
        )

    def lower(self, b: Builder, dout: str, x: str) -> str:
        """Also a convolution, with batch and channel swapped, and stride and dilation swapped."""
        windows, (n, c, h, w), group = self.windows(b.type(x).shape), b.type(x).shape, self.group
        if group > 1:
            split = b.node("Transpose", (b.reshape(x, (n, group, c // group, h, w)),), perm=(2, 1, 0, 3, 4))
            images = b.reshape(split, (c // group, group * n, h, w))
        else:
            images = b.node("Transpose", (x,), perm=(1, 0, 2, 3))
        swapped = {**windows.onnx(), "strides": windows.dilations, "dilations": windows.strides}
        result = b.node("Conv", (images, b.node("Transpose", (dout,), perm=(1, 0, 2, 3))), group=group, **swapped)
        if not windows.covers_image:
            result = b.node("Slice", (result, b.const([0, 0]), b.const(list(self.kernel_size)), b.const([2, 3])))
        return b.node("Transpose", (result,), perm=(1, 0, 2, 3))

    def part(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> PartRule | None:
        return each_sample(self, axes, (0, 0), (None,))

    def lowerings(self, dout: TensorType, x: TensorType) -> Sequence[Lowering]:
        batch_last_lowerings = self._batch_last_lowerings(x) if suits_batch_last(x) else ()
        return *batch_last_lowerings, Lowering("plain", self.lower, penalty=4 * x.size)

    def _batch_last_lowerings(self, x: TensorType) -> tuple[Lowering, ...]:
        def lowering(name: str, lower: Callable[..., str]) -> Lowering:
            return Lowering(name, lower, (LAST, LAST))

        windows = self.windows(x.shape)
        if self.is_pointwise(windows):
            return (lowering("pointwise", self._lower_pointwise),)
        if self.group > 1:
            return (lowering("grouped", self._lower_grouped),)
        gathered, by_taps = lowering("gathered", self._lower_gathered), lowering("by_taps", self._lower_by_taps)
        whole = column_bytes(windows, x.shape, x.dtype.size) <= WHOLE_BYTES
        direct = (gathered, by_taps) if whole else (by_taps, gathered)
        best = with_winograd(direct, lower_filter_gradient, self.out_channel, windows, x.shape, FILTER_CHANNELS)
        if not self.tiling_pays_off(x):
            return best
        # If dout is available in both layouts, its tiles fit the columns that the convolution has gathered.
        return *(replace(other, penalty=1) for other in best), Lowering("tiled", self._lower_tiled, (TILED, LAST))

    def _lower_pointwise(self, b: Builder, dout: str, x: str) -> str:
        """(K, pixels) times (pixels, C)."""
        shape = b.type(x).shape
        rows = as_rows(b, dout, self.out_channel), thinned(b, x, self.windows(shape), shape)
        return b.reshape(b.node("Gemm", rows, transB=1), (self.out_channel, shape[1], 1, 1))

    def _lower_gathered(self, b: Builder, dout: str, x: str) -> str:
        """(K, pixels) times the transposed columns."""
        shape = b.type(x).shape
        rows = as_rows(b, dout, self.out_channel), columns(b, x, self.windows(shape), shape)
        return b.reshape(b.node("Gemm", rows, transB=1), (self.out_channel, shape[1], *self.kernel_size))

    def _lower_tiled(self, b: Builder, dout: str, x: str) -> str:
        """(4K, tiles) times the transposed columns of the tiles, then the sum of the corners' parts of the filter."""
        shape = b.type(x).shape
        windows = tiles(self.windows(shape))
        rows = b.reshape(dout, (4 * self.out_channel, math.prod(windows.out) * shape[0]))
        result = b.node("Gemm", (rows, columns(b, x, windows, shape)), transB=1)
        parts = b.reshape(result, (4, self.out_channel * shape[1], math.prod(windows.kernel)))
        back = b.const(np.ascontiguousarray(corners(self.kernel_size).swapaxes(1, 2)))
        summed = b.node("ReduceSum", (b.node("MatMul", (parts, back)), b.const([0])), keepdims=0)
        return b.reshape(summed, (self.out_channel, shape[1], *self.kernel_size))

    def _lower_grouped(self, b: Builder, dout: str, x: str) -> str:
        """As `_lower_gathered`, for each group."""
        shape, pixels = b.type(x).shape, b.type(dout).size // self.out_channel
        rows = as_rows(b, dout, self.out_channel), columns(b, x, self.windows(shape), shape)
        outs, ins = self.out_channel // self.group, shape[1] // self.group
        left = b.reshape(rows[0], (self.group, outs, pixels))
        right = b.reshape(rows[1], (self.group, ins * self.kernel_size[0] * self.kernel_size[1], pixels))
        result = b.node("FusedMatMul", (left, right), FUSED, transB=1)
        return b.reshape(result, (self.out_channel, ins, *self.kernel_size))

    def _lower_by_taps(self, b: Builder, dout: str, x: str) -> str:
        """One product per element of the filter, without memory for all columns."""
        shape = b.type(x).shape
        windows, rows = self.windows(shape), as_rows(b, dout, self.out_channel)
        image = b.reshape(padded(b, x, windows, shape), (shape[1], *windows.padded, shape[0]))
        pixels, parts = b.type(dout).size // self.out_channel, []
        for offset in np.ndindex(*windows.kernel):
            under_offset = b.reshape(at_offset(b, image, windows, offset), (shape[1], pixels))
            parts.append(b.reshape(b.node("Gemm", (rows, under_offset), transB=1), (self.out_channel, shape[1], 1)))
        return b.reshape(b.node("Concat", parts, axis=2), (self.out_channel, shape[1], *self.kernel_size))


def transposed_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a (G, M, P) times the transposed of b (G, N, P), as (G, M, N)."""
    if len(a) == 1:
        return unpacked_sum(a[0], b[0])[None]
    return np.stack([unpacked_sum(*pair) for pair in zip(a, b, strict=True)])


# Convolutions and pools over three axes, composed of those of images.
#
# Each slice of a kernel along the depth is a convolution of images, in which depth and batch are one axis; a pool is
# one over height and width, and then one along the depth.


def convolve(x: Value, weight: Value, planes: Conv2D, depth: Windows) -> Value:
    """x (N, C, D, H, W) with filters (K, C/group, KD, KH, KW).

    `planes` convolves images; `depth` are the windows along the depth, those of an image of this height and width 1.
    """
    head, tail, _, _ = depth.pads
    padded = Pad(((0, 0), (0, 0), (head, tail), (0, 0), (0, 0)))(x) if head or tail else x
    parts = [planes(as_images(padded[:, :, offset]), weight[:, :, k]) for k, offset in enumerate(depth.offsets(0))]
    return as_volumes(reduce(operator.add, parts), x.shape[0])


def convolve_back(x: Value, weight: Value, planes: Conv2DBackpropInput, depth: Windows) -> Value:
    """The adjoint of `convolve`: x (N, K, D', H', W') to the volumes that have these windows.

    `planes` is the adjoint of the convolution of images, with the size of its result.
    """
    images, batch = as_images(x), x.shape[0]
    _, channels, *size = planes.input_size
    shape, parts = (batch, channels, depth.padded[0], *size), list[Value]()
    for k, offset in enumerate(depth.offsets(0)):
        part = as_volumes(planes(images, weight[:, :, k]), batch)
        begin, end, strides = (0, 0, offset.start), (batch, channels, offset.stop), (1, 1, offset.step)
        parts.append(StridedSliceGrad(begin=begin, end=end, strides=strides, x_shape=shape)(part))
    head = depth.pads[0]
    return reduce(operator.add, parts)[:, :, head : head + depth.size[0]]


def pool_volumes(x: Value, planes: Pooling, depth: Pooling) -> Value:
    """x (N, C, D, H, W) pooled by `planes`, and then by `depth`, whose windows have width 1.

    The first maximum of the first maxima of the planes is the first one in row-major order.
    """
    pooled = as_volumes(planes(as_images(x)), x.shape[0])
    batch, channels, length, *size = pooled.shape
    flat = depth(Reshape((batch, channels, length, size[0] * size[1]))(pooled))
    return Reshape((batch, channels, flat.shape[2], *size))(flat)


def as_images(x: Value) -> Value:
    """(N, C, D, H, W) as (N * D, C, H, W)."""
    batch, channels, depth, *size = x.shape
    return Reshape((batch * depth, channels, *size))(Transpose((0, 2, 1, 3, 4))(x))


def as_volumes(images: Value, batch: int) -> Value:
    """(N * D, C, H, W) as (N, C, D, H, W)."""
    count, *rest = images.shape
    return Transpose((0, 2, 1, 3, 4))(Reshape((batch, count // batch, *rest))(images))
