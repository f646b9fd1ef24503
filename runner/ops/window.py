"""Where the windows of a convolution or a pooling lie, and how numpy reads and writes them.

The kernels work on arrays whose memory runs channel, row, column, batch: rows of a whole batch are copied at once and
a convolution is one matrix product. Values keep their shape (N, C, H, W); only the strides tell of that order, and
numpy's elementwise operators keep it. Measured: about four times faster than windows over NCHW memory.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from runner.ops.array import require

Pair = tuple[int, int]
Quad = tuple[int, int, int, int]
Slab = tuple[slice, np.ndarray]  # some columns of a matrix, and which they are
SLAB_BYTES = 1 << 19  # of columns, which are to stay in a cache of the second level (measured with LeNet and ResNet)
SLAB_COLUMNS = 1024  # at least: with fewer, a matrix product spends its time on rearranging the weights
PAD_MODES = ("same", "valid", "pad")


def pair(value: int | tuple[int, ...], what: str) -> Pair:
    """An int for both axes, or two of them (also the reference's (1, 1, h, w)); positive.

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
    """(N, C, H, W) as (C, H, W, N) in contiguous memory; free when the memory already runs that way."""
    return np.ascontiguousarray(x.transpose(1, 2, 3, 0))


def batch_first(x: np.ndarray) -> np.ndarray:
    """(C, H, W, N) seen as (N, C, H, W)."""
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
    def resolve(
        cls, size: Pair, kernel: Pair, strides: Pair, pad_mode: str, pad: Quad, dilations: Pair = (1, 1)
    ) -> "Windows":
        """Windows for a padding mode: `same` keeps ceil(size / stride), the odd row and column at bottom and right."""
        if pad_mode == "same":
            pad = (
                *_same(size[0], kernel[0], strides[0], dilations[0]),
                *_same(size[1], kernel[1], strides[1], dilations[1]),
            )
        made = cls(size, kernel, strides, pad if pad_mode != "valid" else (0, 0, 0, 0), dilations)
        require(
            min(made.out) >= 1, "the window is larger than the image", image=size, window=made.reach, pads=made.pads
        )
        return made

    @property
    def reach(self) -> Pair:
        """Extent of one window."""
        return self.dilations[0] * (self.kernel[0] - 1) + 1, self.dilations[1] * (self.kernel[1] - 1) + 1

    @property
    def padded(self) -> Pair:
        """Size of the padded image."""
        top, bottom, left, right = self.pads
        return self.size[0] + top + bottom, self.size[1] + left + right

    @property
    def out(self) -> Pair:
        """Number of windows down and across."""
        (h, w), (rh, rw), (sh, sw) = self.padded, self.reach, self.strides
        return (h - rh) // sh + 1, (w - rw) // sw + 1

    @property
    def tiles(self) -> bool:
        """Whether the windows lie side by side and cover the image."""
        return self.kernel == self.strides and self.padded == self.size and self.dilations == (1, 1) and self.covers

    @property
    def covers(self) -> bool:
        """Whether no row or column is left over at the end."""
        return all((p - r) % s == 0 for p, r, s in zip(self.padded, self.reach, self.strides, strict=True))

    @property
    def reverse(self) -> "Windows | None":
        """The windows over the result through which an element of the image is reached, the kernel turned around.

        None with a stride, or with a border that is wider than the windows reach.
        """
        (rh, rw), (top, bottom, left, right) = self.reach, self.pads
        pads = rh - 1 - top, rh - 1 - bottom, rw - 1 - left, rw - 1 - right
        if self.strides != (1, 1) or min(pads) < 0:
            return None
        return Windows(self.out, self.kernel, (1, 1), pads, self.dilations)

    def onnx(self) -> dict[str, Any]:
        """The geometry as ONNX attributes (its pads run top, left, bottom, right)."""
        top, bottom, left, right = self.pads
        return {"strides": self.strides, "pads": (top, left, bottom, right), "dilations": self.dilations}

    def pad(self, x: np.ndarray, fill: float = 0.0) -> np.ndarray:
        """(C, H, W, N) with its border."""
        top, bottom, left, right = self.pads
        if self.pads == (0, 0, 0, 0):
            return x
        return np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=fill)

    def taps(self, axis: int) -> list[slice]:
        """For each element of a window along an axis (0 down, 1 across): where all windows meet it."""
        stride, dilation, out = self.strides[axis], self.dilations[axis], self.out[axis]
        starts = range(0, self.kernel[axis] * dilation, dilation)
        return [slice(start, start + stride * (out - 1) + 1, stride) for start in starts]

    def view(self, padded: np.ndarray) -> np.ndarray:
        """All windows of a padded (C, H, W, N) as a view (C, KH, KW, OH, OW, N)."""
        (c, _, _, n), (sc, sh, sw, sn) = padded.shape, padded.strides
        (dh, dw), (th, tw) = self.dilations, self.strides
        return as_strided(padded, (c, *self.kernel, *self.out, n), (sc, sh * dh, sw * dw, sh * th, sw * tw, sn))

    def slabs(self, height: int, batch: int, itemsize: int) -> list[slice]:
        """The columns of a matrix (height, OH*OW*N) in parts of whole rows of windows.

        A slab fits in the cache, where a matrix product finds again what was copied; all columns of an image together
        are KH*KW times the image. Windows of one element need no copy, so they come in one slab.
        """
        (down, across), total = self.out, math.prod(self.out) * batch
        wide = across * batch
        rows = max(SLAB_BYTES // (height * wide * itemsize), -(-SLAB_COLUMNS // wide))
        step = total if self.kernel == (1, 1) else rows * wide
        return [slice(start, min(start + step, total)) for start in range(0, down * wide, step)]

    def rows(self, slab: slice, batch: int) -> slice:
        """The rows of windows that a slab holds."""
        wide = self.out[1] * batch
        return slice(slab.start // wide, slab.stop // wide)

    def columns(self, x: np.ndarray) -> Iterator[Slab]:
        """The windows of (C, H, W, N) as columns of a matrix (C*KH*KW, OH*OW*N), slab by slab."""
        view, batch = self.view(self.pad(x)), x.shape[-1]
        height = math.prod(view.shape[:3])
        for slab in self.slabs(height, batch, x.itemsize):
            yield slab, np.ascontiguousarray(view[:, :, :, self.rows(slab, batch)]).reshape(height, -1)

    def spread(self, columns: Iterable[Slab], image: np.ndarray) -> np.ndarray:
        """Adjoint of `columns`: add every window to where it was read; `image` (C, padded H, padded W, N) has zeros.

        Gives (C, H, W, N).
        """
        windows, (channels, _, _, batch) = self.view(image), image.shape
        for slab, made in columns:
            rows, parts = self.rows(slab, batch), made.reshape(channels, *self.kernel, -1, self.out[1], batch)
            for i, j in np.ndindex(*self.kernel):
                windows[:, i, j, rows] += parts[:, i, j]
        return self.crop(image)

    def spread_rows(self, x: np.ndarray, filters: np.ndarray, image: np.ndarray) -> np.ndarray:
        """As `spread`, for stride 1, of products that are not made yet: x (K, OH, OW, N), filters (KH, C, K*KW).

        x is gathered across, where the filters are turned around, so that only rows are left to be added up.
        """
        reach, batch = self.reach[1] - 1, x.shape[-1]
        across = Windows(self.out, (1, self.kernel[1]), (1, 1), (0, 0, reach, reach), self.dilations)
        height, channels, _ = filters.shape
        stacked = np.ascontiguousarray(filters).reshape(height * channels, -1)
        for slab, columns in across.columns(x):
            rows = across.rows(slab, batch)
            made = (stacked @ columns).reshape(height, channels, -1, self.padded[1], batch)
            for i in range(height):
                start = rows.start + i * self.dilations[0]
                image[:, start : start + made.shape[2]] += made[i]
        return self.crop(image)

    def correlate(self, x: np.ndarray, filters: np.ndarray) -> np.ndarray:
        """(C, H, W, N) with filters (G, K/G, C/G*KH*KW), one matrix for each group of channels: (K, OH, OW, N)."""
        group, batch = len(filters), x.shape[-1]
        made = np.empty((*filters.shape[:2], math.prod(self.out) * batch), x.dtype)
        for part, columns in self.columns(x):
            np.matmul(filters, columns.reshape(group, -1, columns.shape[1]), out=made[..., part])
        return made.reshape(-1, *self.out, batch)

    def crop(self, padded: np.ndarray) -> np.ndarray:
        """(C, H, W, N) without its border."""
        top, _, left, _ = self.pads
        return padded[:, top : top + self.size[0], left : left + self.size[1]]


def _same(size: int, kernel: int, stride: int, dilation: int) -> Pair:
    total = max((-(-size // stride) - 1) * stride + dilation * (kernel - 1) + 1 - size, 0)
    return total // 2, total - total // 2


def counts(windows: Windows, dtype: np.dtype) -> np.ndarray:
    """Number of elements in each window that are not padding: (OH, OW)."""
    ones = windows.view(windows.pad(np.ones((1, *windows.size, 1), dtype)))
    return np.asarray(ones.sum((0, 1, 2, 5), dtype=dtype))
