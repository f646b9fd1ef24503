"""Conv2DBackpropFilter in batch-last layout: a product of dout with pixels or columns, or one per tap of the filter."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from runner.core.lowering import FUSED, LAST, TILED, Builder, Form
from runner.ops.convolution import winograd_lowering
from runner.ops.convolution.columns import (
    WHOLE_BYTES,
    as_rows,
    column_bytes,
    columns,
    corners,
    padded,
    tapped,
    thinned,
    tiles,
)
from runner.ops.convolution.conv_forward import tiling_pays_off
from runner.ops.convolution.geometry import Convolution
from runner.ops.convolution.winograd_lowering import FILTER_CHANNELS, with_winograd
from runner.types import TensorType


def forms(op: Convolution, x: TensorType) -> tuple[Form, ...]:
    """The forms for images of this type, the fastest first."""

    def form(lower: Callable[..., str]) -> Form:
        return Form(lower.__name__, partial(lower, op), (LAST, LAST))

    windows = op.windows(x.shape)
    if op.is_pointwise(windows):
        return (form(pointwise),)
    if op.group > 1:
        return (form(grouped),)
    whole = column_bytes(windows, x.shape, x.dtype.size) <= WHOLE_BYTES
    direct = (form(gathered), form(by_taps)) if whole else (form(by_taps), form(gathered))
    best = with_winograd(direct, winograd_lowering.filter_gradient, op, windows, x.shape, FILTER_CHANNELS)
    if not tiling_pays_off(op, x):
        return best
    # If dout is available in both layouts, its tiles fit the columns that the convolution has gathered.
    return *(replace(other, penalty=1) for other in best), Form("tiled", partial(tiled, op), (TILED, LAST))


def pointwise(op: Convolution, b: Builder, dout: str, x: str) -> str:
    """(K, pixels) times (pixels, C)."""
    shape = b.type(x).shape
    rows = as_rows(b, dout, op.out_channel), thinned(b, x, op.windows(shape), shape)
    return b.reshape(b.node("Gemm", rows, transB=1), (op.out_channel, shape[1], 1, 1))


def gathered(op: Convolution, b: Builder, dout: str, x: str) -> str:
    """(K, pixels) times the transposed columns."""
    shape = b.type(x).shape
    rows = as_rows(b, dout, op.out_channel), columns(b, x, op.windows(shape), shape)
    return b.reshape(b.node("Gemm", rows, transB=1), (op.out_channel, shape[1], *op.kernel_size))


def tiled(op: Convolution, b: Builder, dout: str, x: str) -> str:
    """(4K, tiles) times the transposed columns of the tiles, then the sum of the corners' parts of the filter."""
    shape = b.type(x).shape
    windows = tiles(op.windows(shape))
    rows = b.reshape(dout, (4 * op.out_channel, math.prod(windows.out) * shape[0]))
    result = b.node("Gemm", (rows, columns(b, x, windows, shape)), transB=1)
    parts = b.reshape(result, (4, op.out_channel * shape[1], math.prod(windows.kernel)))
    back = b.const(np.ascontiguousarray(corners(op.kernel_size).swapaxes(1, 2)))
    summed = b.node("ReduceSum", (b.node("MatMul", (parts, back)), b.const([0])), keepdims=0)
    return b.reshape(summed, (op.out_channel, shape[1], *op.kernel_size))


def grouped(op: Convolution, b: Builder, dout: str, x: str) -> str:
    """As `gathered`, for each group."""
    shape, pixels = b.type(x).shape, b.type(dout).size // op.out_channel
    rows = as_rows(b, dout, op.out_channel), columns(b, x, op.windows(shape), shape)
    outs, ins = op.out_channel // op.group, shape[1] // op.group
    left = b.reshape(rows[0], (op.group, outs, pixels))
    right = b.reshape(rows[1], (op.group, ins * op.kernel_size[0] * op.kernel_size[1], pixels))
    result = b.node("FusedMatMul", (left, right), FUSED, transB=1)
    return b.reshape(result, (op.out_channel, ins, *op.kernel_size))


def by_taps(op: Convolution, b: Builder, dout: str, x: str) -> str:
    """One product per element of the filter, without memory for all columns."""
    shape = b.type(x).shape
    windows, rows = op.windows(shape), as_rows(b, dout, op.out_channel)
    image = b.reshape(padded(b, x, windows, shape), (shape[1], *windows.padded, shape[0]))
    pixels, parts = b.type(dout).size // op.out_channel, []
    for tap in np.ndindex(*windows.kernel):
        under_tap = b.reshape(tapped(b, image, windows, tap), (shape[1], pixels))
        parts.append(b.reshape(b.node("Gemm", (rows, under_tap), transB=1), (op.out_channel, shape[1], 1)))
    return b.reshape(b.node("Concat", parts, axis=2), (op.out_channel, shape[1], *op.kernel_size))
