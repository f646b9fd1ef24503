"""Geometry of the windows of convolutions and pools, and how numpy reads and writes them.

The kernels use arrays in the memory order channel, row, column, batch: rows of a whole batch are copied at once, and a
convolution is one matrix product. Values keep their shape (N, C, H, W) and only their strides have that order, which
numpy's elementwise operators preserve. Measured: about four times faster than windows over NCHW memory.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from runner import dtype as dt
from runner.core.lowering import Builder
from runner.host.threads import in_order
from runner.ops.array import require
from runner.ops.matrices import unpacked_product
from runner.types import Shape, TensorType

Pair = tuple[int, int]
Quad = tuple[int, int, int, int]
Block = tuple[slice, np.ndarray]  # a range of columns of a matrix, and their values, or what was computed from them
SLAB_BYTES = 1 << 19  # of columns, so that they stay in the L2 cache (measured with LeNet and ResNet)
SLAB_COLUMNS = 1024  # minimum: with fewer, packing the weights dominates the matrix product
POINT_COLUMNS = 8192  # the same for windows of one element
PAD_MODES = ("same", "valid", "pad")


def pair(value: int | tuple[int, ...], what: str) -> Pair:
    """An int for both axes, or two ints (also (1, 1, h, w), as in MindSpore); positive.

    Raises ShapeError with the name of the argument.
    """
    numbers = (value, value) if isinstance(value, int) else tuple(value)
    numbers = numbers[2:] if len(numbers) == 4 and numbers[:2] == (1, 1) else numbers
    fits = len(numbers) == 2 and all(isinstance(n, int) and n > 0 for n in numbers)
    require(fits, f"{what} must be a positive int, or two of them", given=value)
    return numbers[0], numbers[1]


def quad(value: int | tuple[int, ...], what: str) -> Quad:
    """An int for all sides, or (top, bottom, left, right); not negative. Raises ShapeError."""
    sides = (value,) * 4 if isinstance(value, int) else tuple(value)
    fits = len(sides) == 4 and all(isinstance(n, int) and n >= 0 for n in sides)
    require(fits, f"{what} must be an int of at least 0, or four of them", given=value)
    return sides[0], sides[1], sides[2], sides[3]


def batch_last(x: np.ndarray) -> np.ndarray:
    """(N, C, H, W) as contiguous (C, H, W, N); no copy if the memory already has that order."""
    return np.ascontiguousarray(x.transpose(1, 2, 3, 0))


def batch_first(x: np.ndarray) -> np.ndarray:
    """A view of (C, H, W, N) as (N, C, H, W)."""
    return x.transpose(3, 0, 1, 2)


@dataclass(frozen=True)
class Windows:
    """Windows of `kernel` size over an image of `size`; pads are (top, bottom, left, right)."""

    size: Pair
    kernel: Pair
    strides: Pair = (1, 1)
    pads: Quad = (0, 0, 0, 0)
    dilations: Pair = (1, 1)

    @classmethod
    @lru_cache(maxsize=4096)  # PyNative mode needs the same windows in every step
    def resolve(
        cls, size: Pair, kernel: Pair, strides: Pair, pad_mode: str, pad: Quad, dilations: Pair = (1, 1)
    ) -> "Windows":
        """Windows for a padding mode: `same` gives ceil(size / stride), an odd row or column at bottom and right."""
        if pad_mode == "same":
            pad = (
                *_same(size[0], kernel[0], strides[0], dilations[0]),
                *_same(size[1], kernel[1], strides[1], dilations[1]),
            )
        windows = cls(size, kernel, strides, pad if pad_mode != "valid" else (0, 0, 0, 0), dilations)
        rows = {"image": size, "window": windows.extent, "pads": windows.pads}
        require(min(windows.out) >= 1, "the window is larger than the image", **rows)
        return windows

    @cached_property
    def extent(self) -> Pair:
        """Extent of one window."""
        return self.dilations[0] * (self.kernel[0] - 1) + 1, self.dilations[1] * (self.kernel[1] - 1) + 1

    @cached_property
    def padded(self) -> Pair:
        """Size of the padded image."""
        top, bottom, left, right = self.pads
        return self.size[0] + top + bottom, self.size[1] + left + right

    @cached_property
    def out(self) -> Pair:
        """Number of windows along height and width."""
        (h, w), (rh, rw), (sh, sw) = self.padded, self.extent, self.strides
        return (h - rh) // sh + 1, (w - rw) // sw + 1

    @cached_property
    def tile_image(self) -> bool:
        """Whether the windows are disjoint and cover the image."""
        disjoint = self.kernel == self.strides and self.dilations == (1, 1)
        return disjoint and self.padded == self.size and self.covers_image

    @property
    def covers_image(self) -> bool:
        """Whether no row or column remains at the end."""
        return all((p - r) % s == 0 for p, r, s in zip(self.padded, self.extent, self.strides, strict=True))

    @cached_property
    def reverse(self) -> "Windows | None":
        """The windows of the output that contain an element of the image, for the flipped kernel.

        None with a stride, or with padding wider than the kernel allows.
        """
        (rh, rw), (top, bottom, left, right) = self.extent, self.pads
        pads = rh - 1 - top, rh - 1 - bottom, rw - 1 - left, rw - 1 - right
        if self.strides != (1, 1) or min(pads) < 0:
            return None
        return Windows(self.out, self.kernel, (1, 1), pads, self.dilations)

    def onnx(self) -> dict[str, Any]:
        """The geometry as ONNX attributes, whose pads are (top, left, bottom, right)."""
        top, bottom, left, right = self.pads
        return {"strides": self.strides, "pads": (top, left, bottom, right), "dilations": self.dilations}

    def pad(self, x: np.ndarray, fill: float = 0.0) -> np.ndarray:
        """(C, H, W, N) with padding."""
        top, bottom, left, right = self.pads
        if self.pads == (0, 0, 0, 0):
            return x
        return np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=fill)

    def offsets(self, axis: int) -> list[slice]:
        """For each element of a window along an axis (0 height, 1 width): its positions in all windows."""
        stride, dilation, out = self.strides[axis], self.dilations[axis], self.out[axis]
        starts = range(0, self.kernel[axis] * dilation, dilation)
        return [slice(start, start + stride * (out - 1) + 1, stride) for start in starts]

    def inside(self, axis: int, before: int = 0, after: int = 0) -> np.ndarray:
        """For each window along an axis: the number of its elements in the image, with so many of its padding."""
        starts = np.arange(self.out[axis]) * self.strides[axis] - self.pads[2 * axis]
        dilation, end = self.dilations[axis], self.size[axis] + after
        first = np.maximum(-((starts + before) // dilation), 0)
        last = np.minimum((end - 1 - starts) // dilation, self.kernel[axis] - 1)
        return np.asarray(np.maximum(last - first + 1, 0))

    def view(self, padded: np.ndarray) -> np.ndarray:
        """All windows of a padded (C, H, W, N) as a view (C, KH, KW, OH, OW, N)."""
        (c, _, _, n), (sc, sh, sw, sn) = padded.shape, padded.strides
        (dh, dw), (th, tw) = self.dilations, self.strides
        return as_strided(padded, (c, *self.kernel, *self.out, n), (sc, sh * dh, sw * dw, sh * th, sw * tw, sn))

    def blocks(self, height: int, batch: int, itemsize: int) -> list[slice]:
        """The columns of a matrix (height, OH*OW*N) in blocks of whole rows of windows.

        A block fits in the cache, where the matrix product reads what was just copied; all columns of an image are
        KH*KW times as large as the image. Windows of one element need no copy, so their blocks are for threads alone.
        """
        (down, across), total = self.out, math.prod(self.out) * batch
        row_length, least = across * batch, POINT_COLUMNS if self.kernel == (1, 1) else SLAB_COLUMNS
        step = max(SLAB_BYTES // (height * row_length * itemsize), -(-least // row_length)) * row_length
        return [slice(start, min(start + step, total)) for start in range(0, down * row_length, step)]

    def rows(self, block: slice, batch: int) -> slice:
        """The rows of windows in a block."""
        row_length = self.out[1] * batch
        return slice(block.start // row_length, block.stop // row_length)

    def im2col(self, x: np.ndarray, compute: Callable[[slice, np.ndarray], np.ndarray], depth: int) -> Iterator[Block]:
        """The windows of (C, H, W, N) as columns of a matrix (C*KH*KW, OH*OW*N): `compute` of each block, in order.

        `compute` receives a block and its columns, in any thread; it does `2 * depth` operations with every element.
        """
        view, batch = self.view(self.pad(x)), x.shape[-1]
        height = math.prod(view.shape[:3])

        def computed(block: slice) -> Block:
            return block, compute(block, view[:, :, :, self.rows(block, batch)].reshape(height, -1))

        flops = 2 * depth * view.size
        return in_order(computed, self.blocks(height, batch, x.itemsize), flops)

    def col2im(self, columns: Iterable[Block], image: np.ndarray) -> np.ndarray:
        """Adjoint of `im2col`: add every window to its place in `image` (C, padded H, padded W, N), which holds zeros.

        Returns (C, H, W, N).
        """
        windows, (channels, _, _, batch) = self.view(image), image.shape
        for block, values in columns:
            rows, parts = self.rows(block, batch), values.reshape(channels, *self.kernel, -1, self.out[1], batch)
            for i, j in np.ndindex(*self.kernel):
                windows[:, i, j, rows] += parts[:, i, j]
        return self.crop(image)

    def col2im_rows(self, x: np.ndarray, filters: np.ndarray, image: np.ndarray) -> np.ndarray:
        """As `col2im`, for stride 1, of the products of x (K, OH, OW, N) and filters (KH, C, K*KW).

        x is gathered along the width, where the filters are flipped, so that only rows remain to be added.
        """
        extent, batch = self.extent[1] - 1, x.shape[-1]
        across = Windows(self.out, (1, self.kernel[1]), (1, 1), (0, 0, extent, extent), self.dilations)
        height, channels, _ = filters.shape
        stacked = np.ascontiguousarray(filters).reshape(height * channels, -1)

        def multiply(_: slice, columns: np.ndarray) -> np.ndarray:
            return unpacked_product(stacked, columns, np.empty((len(stacked), columns.shape[1]), x.dtype))

        for block, values in across.im2col(x, multiply, len(stacked)):
            rows = across.rows(block, batch)
            product = values.reshape(height, channels, -1, self.padded[1], batch)
            for i in range(height):
                start = rows.start + i * self.dilations[0]
                image[:, start : start + product.shape[2]] += product[i]
        return self.crop(image)

    def correlate(self, x: np.ndarray, filters: np.ndarray) -> np.ndarray:
        """Cross-correlate (C, H, W, N) with filters (G, K/G, C/G*KH*KW), one matrix per group, to (K, OH, OW, N)."""
        group, batch = len(filters), x.shape[-1]
        result = np.empty((*filters.shape[:2], math.prod(self.out) * batch), x.dtype)

        def multiply(part: slice, columns: np.ndarray) -> np.ndarray:
            if group == 1:
                return unpacked_product(filters[0], columns, result[0, :, part])
            return np.matmul(filters, columns.reshape(group, -1, columns.shape[1]), out=result[..., part])

        for _ in self.im2col(x, multiply, filters.shape[1]):  # each writes into the result
            pass
        return result.reshape(-1, *self.out, batch)

    def crop(self, padded: np.ndarray) -> np.ndarray:
        """(C, H, W, N) without padding."""
        top, _, left, _ = self.pads
        return padded[:, top : top + self.size[0], left : left + self.size[1]]


def _same(size: int, kernel: int, stride: int, dilation: int) -> Pair:
    total = max((-(-size // stride) - 1) * stride + dilation * (kernel - 1) + 1 - size, 0)
    return total // 2, total - total // 2


def counts(windows: Windows, dtype: np.dtype, pads: Quad = (0, 0, 0, 0)) -> np.ndarray:
    """Number of elements of each window in the image, or in the image with some padding: (OH, OW)."""
    rows, columns = (windows.inside(axis, *pads[2 * axis : 2 * axis + 2]) for axis in (0, 1))
    return np.asarray(np.multiply.outer(rows, columns), dtype)


# How ONNX operators read the windows of values in batch-last layout.
#
# In (C, H, W, N) the next column is N elements away, so a two-dimensional operator on (1, C, H, W*N) with dilations of
# (d, d*N) treats each image of the batch as interleaved columns. A stride along the width cannot be expressed that way;
# for it, and for products of windows, rows of a whole batch are gathered.

ROW_BYTES = 32  # shorter rows of a batch are not faster
SHARED_BYTES = 4 << 20  # columns up to this size stay in the caches until the gradient of the filter reads them again
WHOLE_BYTES = 256 << 20  # larger columns are not computed: offset by offset takes a quarter longer, but little memory


def suits_batch_last(x: TensorType) -> bool:
    """Whether batch-last layout is faster for this batch; onnxruntime convolves only floats."""
    return x.dtype is dt.float32 and x.shape[0] * x.dtype.size >= ROW_BYTES


def as_rows(b: Builder, x: str, channels: int) -> str:
    """(C, ...) as a matrix (C, product of the other axes)."""
    return b.reshape(x, (channels, b.type(x).size // channels))


def as_image(b: Builder, x: str, shape: Shape) -> str:
    """The value (N, C, H, W), batch last, as one image (1, C, H, W*N)."""
    batch, channels, height, width = shape
    return b.reshape(x, (1, channels, height, width * batch))


def dilated(windows: Windows, batch: int) -> dict[str, Any]:
    """The geometry of windows over (1, C, H, W*N) as ONNX attributes; their stride along the width must be 1."""
    top, bottom, left, right = windows.pads
    down, across = windows.dilations
    pads = top, left * batch, bottom, right * batch
    return {"strides": (windows.strides[0], 1), "pads": pads, "dilations": (down, across * batch)}


def padded(b: Builder, x: str, windows: Windows, shape: Shape) -> str:
    """(C, H, W, N) with the padding of its windows, as (C, pixels, N)."""
    batch, channels, height, width = shape
    top, bottom, left, right = windows.pads
    pixels = windows.padded[0] * windows.padded[1]
    if any(windows.pads):
        x = b.reshape(x, (channels, height, width, batch))
        x = b.node("Pad", (x, b.const([0, top, left, 0, 0, bottom, right, 0])))
    return b.reshape(x, (channels, pixels, batch))


def columns(b: Builder, x: str, windows: Windows, shape: Shape) -> str:
    """All windows of the value (N, C, H, W), batch last, as a matrix (C*KH*KW, OH*OW*N)."""
    table = b.const(positions(windows).reshape(-1))
    gathered = b.node("Gather", (padded(b, x, windows, shape), table), axis=1)
    kernel, out = windows.kernel[0] * windows.kernel[1], windows.out[0] * windows.out[1]
    return b.reshape(gathered, (shape[1] * kernel, out * shape[0]))


def tiles(windows: Windows, size: int = 2) -> Windows:
    """Windows that each cover size x size neighbouring windows; the last ones may reach beyond them, into padding."""
    (height, width), (top, bottom, left, right) = windows.kernel, windows.pads
    down, across = (-n % size for n in windows.out)
    kernel, pads = (height + size - 1, width + size - 1), (top, bottom + down, left, right + across)
    return replace(windows, kernel=kernel, strides=(size, size), pads=pads)


def corners(kernel: tuple[int, int]) -> np.ndarray:
    """Positions of the filter in the window of a tile, for each corner: (4, KH*KW, (KH+1)*(KW+1)) of 0 and 1."""
    height, width = kernel
    mask = np.zeros((2, 2, height, width, height + 1, width + 1), np.float32)
    for down, across, row, column in np.ndindex(2, 2, height, width):
        mask[down, across, row, column, row + down, column + across] = 1.0
    return mask.reshape(4, height * width, -1)


def column_bytes(windows: Windows, shape: Shape, itemsize: int) -> int:
    """Bytes of `columns`."""
    batch, channels = shape[:2]
    return batch * channels * itemsize * windows.kernel[0] * windows.kernel[1] * windows.out[0] * windows.out[1]


def positions(windows: Windows) -> np.ndarray:
    """Index of the pixel in the padded image of each element of each window: (KH*KW, OH*OW)."""
    height, width = windows.padded
    pixels = np.arange(height * width, dtype=np.int32).reshape(1, height, width, 1)
    offsets = windows.kernel[0] * windows.kernel[1]
    return np.ascontiguousarray(windows.view(pixels)).reshape(offsets, -1)


def thinned(b: Builder, x: str, windows: Windows, shape: Shape) -> str:
    """The pixels of (C, H, W, N) under windows of one element, as (C, OH*OW*N)."""
    batch, channels, height, width = shape
    out, (down, across) = windows.out, windows.strides
    if windows.strides != (1, 1):
        x = b.reshape(x, (channels, height, width, batch))
        ends = [(out[0] - 1) * down + 1, (out[1] - 1) * across + 1]
        x = b.node("Slice", (x, b.const([0, 0]), b.const(ends), b.const([1, 2]), b.const([down, across])))
    return b.reshape(x, (channels, out[0] * out[1] * batch))


def at_offset(b: Builder, image: str, windows: Windows, offset: tuple[int, int]) -> str:
    """The pixels of a padded (C, H, W, N) under one element of every window: (C, OH, OW, N)."""
    starts = [t * d for t, d in zip(offset, windows.dilations, strict=True)]
    ends = [s + (n - 1) * step + 1 for s, n, step in zip(starts, windows.out, windows.strides, strict=True)]
    return b.node("Slice", (image, b.const(starts), b.const(ends), b.const([1, 2]), b.const(list(windows.strides))))


def cropped(b: Builder, x: str, shape: Shape, size: tuple[int, int]) -> str:
    """The upper left (C, H, W, N) of (C, *size, N)."""
    batch, channels, height, width = shape
    x = b.reshape(x, (channels, *size, batch))
    if size == (height, width):
        return x
    return b.node("Slice", (x, b.const([0, 0]), b.const([height, width]), b.const([1, 2])))
