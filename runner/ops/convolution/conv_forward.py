"""Conv2D in batch-last layout: a product for pointwise windows, a dilated convolution, or a product with columns."""

import math
from collections.abc import Callable
from functools import partial

from runner.core.lowering import LAST, TILED, Builder, Form
from runner.ops.convolution import winograd_lowering
from runner.ops.convolution.columns import (
    SHARED_BYTES,
    as_image,
    column_bytes,
    columns,
    corners,
    dilated,
    thinned,
    tiles,
)
from runner.ops.convolution.geometry import Convolution
from runner.ops.convolution.winograd_lowering import with_winograd
from runner.types import TensorType

FEW_CHANNELS, LARGE_FILTER = 16, 4


def forms(op: Convolution, x: TensorType) -> tuple[Form, ...]:
    """The forms for images of this type, the fastest first."""

    def form(lower: Callable[..., str]) -> Form:
        return Form(lower.__name__, partial(lower, op), (LAST,), (LAST,))

    windows = op.windows(x.shape)
    if op.is_pointwise(windows):
        return (form(pointwise),)
    if windows.strides[1] > 1:
        return (form(gathered),)
    # Small columns are gathered once, for the gradient of the filter too.
    shared = op.group == 1 and column_bytes(windows, x.shape, x.dtype.size) <= SHARED_BYTES
    best = (form(gathered), form(convolved)) if shared else (form(convolved), form(gathered))
    if tiling_pays_off(op, x):
        return *best, Form("tiled", partial(tiled, op), (LAST,), (TILED,))
    return with_winograd(best, winograd_lowering.forward, op, windows, x.shape)


def tiling_pays_off(op: Convolution, x: TensorType) -> bool:
    """Whether four neighbouring outputs at once are faster than one at a time: for few channels and large filters.

    A tile of a 5x5 filter takes 1.4 times the multiplications and a third of the columns, with four times the rows.
    """
    windows, few = op.windows(x.shape), op.group == 1 and op.out_channel <= FEW_CHANNELS
    fits = windows.strides == windows.dilations == (1, 1) and not any(n % 2 for n in windows.out)
    return few and fits and min(windows.kernel) >= LARGE_FILTER


def pointwise(op: Convolution, b: Builder, x: str, w: str) -> str:
    """One product: (K, C) times (C, pixels)."""
    shape = b.type(x).shape
    return _product(op, b, x, w, thinned(b, x, op.windows(shape), shape))


def gathered(op: Convolution, b: Builder, x: str, w: str) -> str:
    """One product: (K, C*KH*KW) times the columns."""
    shape = b.type(x).shape
    return _product(op, b, x, w, columns(b, x, op.windows(shape), shape))


def tiled(op: Convolution, b: Builder, x: str, w: str) -> str:
    """One product for the four corners of every tile: (4K, columns of a tile) times the columns of the tiles."""
    shape = b.type(x).shape
    windows = tiles(op.windows(shape))
    taps, tile_taps = math.prod(op.kernel_size), math.prod(windows.kernel)
    placed = b.node("MatMul", (b.reshape(w, (op.out_channel * shape[1], taps)), b.const(corners(op.kernel_size))))
    filters = b.reshape(placed, (4 * op.out_channel, shape[1] * tile_taps))
    result = b.node("MatMul", (filters, columns(b, x, windows, shape)))
    return b.reshape(result, (2, 2, op.out_channel, *windows.out, shape[0]))


def convolved(op: Convolution, b: Builder, x: str, w: str) -> str:
    """A dilated convolution of one image that contains the batch."""
    shape = b.type(x).shape
    windows = op.windows(shape)
    result = b.node("Conv", (as_image(b, x, shape), w), group=op.group, **dilated(windows, shape[0]))
    return b.reshape(result, (op.out_channel, *windows.out, shape[0]))


def _product(op: Convolution, b: Builder, x: str, w: str, rows: str) -> str:
    shape, outs = b.type(x).shape, op.out_channel // op.group
    windows, ins = op.windows(shape), b.type(w).size // op.out_channel
    if op.group == 1:
        left, right = b.reshape(w, (outs, ins)), rows
    else:
        pixels = math.prod(windows.out) * shape[0]
        left, right = b.reshape(w, (op.group, outs, ins)), b.reshape(rows, (op.group, ins, pixels))
    return b.reshape(b.node("MatMul", (left, right)), (op.out_channel, *windows.out, shape[0]))
