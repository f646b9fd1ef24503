"""Conv2DBackpropInput in batch-last layout: a product for pointwise windows, a convolution with the flipped filter,
or a transposed convolution.

With a stride along the width, every input pixel belongs to a phase (its remainder by the stride), and the pixels of a
phase are an ordinary convolution of dout with a part of the filter: no multiplications by inserted zeros.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from runner.core.lowering import LAST, Builder, Form
from runner.ops.convolution import winograd_lowering
from runner.ops.convolution.columns import as_image, as_rows, cropped, dilated
from runner.ops.convolution.geometry import Convolution
from runner.ops.convolution.windows import Windows
from runner.ops.convolution.winograd_lowering import with_winograd
from runner.types import Shape
from runner.validation.rules import Frozen

FLIPPED_CHANNELS = range(8, 257)  # for which the flipped filter is faster than ConvTranspose (BENCHMARKS.md)


class Phase(Frozen):
    """The rows (or columns) of an input with the same remainder by the stride.

    `taps` are the elements of the filter that reach them, in the order of the convolution; `before` and `after` the
    padding of dout with zeros.
    """

    taps: tuple[int, ...]
    before: int
    after: int


def forms(op: Convolution, input_size: Shape) -> tuple[Form, ...]:
    """The forms for gradients of inputs (N, C, H, W), the fastest first."""

    def form(lower: Callable[..., str], *through: Windows) -> Form:
        return Form(lower.__name__, partial(lower, op, input_size, *through), (LAST,), (LAST,))

    windows = op.windows(input_size)
    reverse = windows.reverse
    if op.is_pointwise(windows):
        return (form(pointwise),)
    if windows.strides[1] > 1:
        return (form(woven),) if op.group == 1 and _has_plain_phases(windows) else ()
    if op.group > 1 or reverse is None:
        return (form(transposed),)
    both = form(turned, reverse), form(transposed)
    best = both if input_size[1] in FLIPPED_CHANNELS else both[::-1]
    return with_winograd(best, winograd_lowering.input_gradient, op, reverse, input_size)


def pointwise(op: Convolution, input_size: Shape, b: Builder, dout: str, w: str) -> str:
    """One product: (C, K) times (K, pixels), with zeros between the pixels of a stride."""
    windows, (batch, channels) = op.windows(input_size), input_size[:2]
    rows = b.reshape(w, (op.out_channel, channels)), as_rows(b, dout, op.out_channel)
    result, (down, across) = b.node("Gemm", rows, transA=1), windows.strides
    if windows.strides != (1, 1):
        result = b.reshape(result, (channels, windows.out[0], 1, windows.out[1], 1, batch))
        result = b.node("Pad", (result, b.const([0] * 8 + [down - 1, 0, across - 1, 0])))
    return cropped(b, result, input_size, (windows.out[0] * down, windows.out[1] * across))


def transposed(op: Convolution, input_size: Shape, b: Builder, dout: str, w: str) -> str:
    """A dilated transposed convolution of one image that contains the batch."""
    windows, (batch, *image) = op.windows(input_size), input_size
    missing = (windows.padded[0] - windows.extent[0]) % windows.strides[0], 0
    given = as_image(b, dout, b.type(dout).shape)
    geometry = dilated(windows, batch)
    result = b.node("ConvTranspose", (given, w), output_padding=missing, group=op.group, **geometry)
    return b.reshape(result, (*image, batch))


def turned(op: Convolution, input_size: Shape, reverse: Windows, b: Builder, dout: str, w: str) -> str:
    """A dilated convolution of dout with the flipped filter, over the windows `reverse`.

    Flipping by a product with a permutation matrix is three times faster than by a Slice.
    """
    (batch, *image), taps = input_size, op.kernel_size[0] * op.kernel_size[1]
    reversal = b.const(np.ascontiguousarray(np.eye(taps, dtype=np.float32)[::-1]))
    flipped = b.node("MatMul", (b.reshape(w, (op.out_channel * image[0], taps)), reversal))
    swapped = b.node("Transpose", (b.reshape(flipped, (op.out_channel, image[0], taps)),), perm=(1, 0, 2))
    swapped = b.reshape(swapped, (image[0], op.out_channel, *op.kernel_size))
    given = as_image(b, dout, b.type(dout).shape)
    result = b.node("Conv", (given, swapped), group=1, **dilated(reverse, batch))
    return b.reshape(result, (*image, batch))


def woven(op: Convolution, input_size: Shape, b: Builder, dout: str, w: str) -> str:
    """One small convolution per phase, with interleaved results."""
    windows, (batch, channels, height, width) = op.windows(input_size), input_size
    down, across = windows.strides
    size = -(-height // down), -(-width // across)
    given, swapped = as_image(b, dout, b.type(dout).shape), b.node("Transpose", (w,), perm=(1, 0, 2, 3))
    rows = []
    for upper in _phases(windows, 0):
        filters = b.node("Gather", (swapped, b.const(list(upper.taps))), axis=2)
        row = []
        for left in _phases(windows, 1):
            part = b.node("Gather", (filters, b.const(list(left.taps))), axis=3)
            pads = upper.before, left.before * batch, upper.after, left.after * batch
            result = b.node("Conv", (given, part), group=1, pads=pads, dilations=(1, batch), strides=(1, 1))
            row.append(b.reshape(result, (channels, size[0], 1, size[1], 1, batch)))
        rows.append(b.node("Concat", row, axis=4))
    whole = b.node("Concat", rows, axis=2)
    return cropped(b, whole, input_size, (size[0] * down, size[1] * across))


def _has_plain_phases(windows: Windows) -> bool:
    """Whether every phase is an ordinary convolution: no dilation, no filter below its stride, no negative padding."""
    both = [*_phases(windows, 0), *_phases(windows, 1)]
    return windows.dilations == (1, 1) and all(p.taps and min(p.before, p.after) >= 0 for p in both)


def _phases(windows: Windows, axis: int) -> list[Phase]:
    """Row i of the padded input is stride*m + p; filter rows p, p + stride, ... apply to output rows m, m - 1, ..."""
    stride, kernel, before = windows.strides[axis], windows.kernel[axis], windows.pads[2 * axis]
    rows = -(-windows.size[axis] // stride)
    phases = []
    for remainder in range(stride):
        moved, first = divmod(remainder + before, stride)
        taps = tuple(range(first, kernel, stride))[::-1]
        zeros = len(taps) - 1 - moved
        phases.append(Phase(taps, zeros, rows - windows.out[axis] - zeros + len(taps) - 1))
    return phases
