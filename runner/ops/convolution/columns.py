"""How ONNX operators read the windows of values in batch-last layout; `windows.py` is how numpy does.

In (C, H, W, N) the next column is N elements away, so a two-dimensional operator on (1, C, H, W*N) with dilations of
(d, d*N) treats each image of the batch as interleaved columns. A stride along the width cannot be expressed that way;
for it, and for products of windows, rows of a whole batch are gathered.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from runner import dtype as dt
from runner.core.lowering import Builder
from runner.ops.convolution.windows import Windows
from runner.types import Shape, TensorType

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
