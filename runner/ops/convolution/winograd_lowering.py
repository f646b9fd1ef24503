"""Winograd forms of Conv2D and both its gradients for 3x3 filters, in batch-last layout: fewer multiplications.

Tiles are gathered, and the rest are matrix products: the transform of the tiles, one product over the channels for
each element of a tile, and the transform of the results. FusedMatMul reads the transformed tiles of a channel where
they are (`transBatchB`), so nothing is transposed in between. The forward pass and the gradient of the filter need the
same transformed tiles; only small ones are kept for it, since they take more than twice the memory of the images.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import numpy as np

from runner.core.lowering import FUSED, Builder, Form
from runner.ops.convolution.columns import SHARED_BYTES, WHOLE_BYTES, column_bytes, columns, cropped, tiles
from runner.ops.convolution.geometry import Convolution
from runner.ops.convolution.windows import Windows
from runner.ops.convolution.winograd import FILTER, POINTS, Winograd, winograd
from runner.types import Shape

OFFERED_CHANNELS = 16  # with fewer, the transforms take longer than what they save
SAVING = 2  # direct forms need at least so many times the multiplications; for 5x5 results, in four tiles, only 1.6
CHANNELS, FILTER_CHANNELS = 64, 32  # from which a form is faster than direct ones: images; gradients of filters
ITEMSIZE = 4  # of Float32; no other type is batch last
COLUMNS = 64  # tiles times batch from which it is; with fewer, most of the time goes to reading the filter


def with_winograd(
    direct: Sequence[Form],
    lower: Callable[..., str],
    op: Convolution,
    windows: Windows,
    input_size: Shape,
    channels: int = CHANNELS,
) -> tuple[Form, ...]:
    """The direct forms of an operator and those of Winograd with tiles of these windows, the fastest first.

    `input_size` is that of Conv2D, (N, C, H, W); `channels` the number from which the forms are faster. They have the
    layouts of the first direct form; `lower` receives the matrices and the windows before the builder.
    """
    fast, other = list[Form](), list[Form]()
    wide = min(op.out_channel, input_size[1]) >= channels
    for tile in _sizes(op, windows, input_size):
        lowering = partial(lower, winograd(tile), windows)
        form = replace(direct[0], name=f"winograd{tile}x{tile}", lower=lowering, penalty=0, winograd=True)
        long = math.prod(tiles(windows, tile).out) * input_size[0] >= COLUMNS
        (fast if wide and long else other).append(form)
    return *fast, *direct, *other


def forward(matrices: Winograd, windows: Windows, b: Builder, x: str, w: str) -> str:
    """Conv2D."""
    factors = _filters(b, w, matrices.filters), _inputs(b, x, windows, matrices)
    product = b.node("FusedMatMul", factors, FUSED, transBatchB=1)
    return _results(b, product, (b.type(x).shape[0], b.type(w).shape[0], *windows.out), matrices)


def input_gradient(matrices: Winograd, reverse: Windows, b: Builder, dout: str, w: str) -> str:
    """Conv2DBackpropInput: a convolution of dout over the windows `reverse`, with flipped filters."""
    flipped = np.ascontiguousarray(matrices.filters[:, ::-1])
    factors = _filters(b, w, flipped), _inputs(b, dout, reverse, matrices)
    product = b.node("FusedMatMul", factors, FUSED, transA=1, transBatchB=1)
    return _results(b, product, (b.type(dout).shape[0], b.type(w).shape[1], *reverse.out), matrices)


def filter_gradient(matrices: Winograd, windows: Windows, b: Builder, dout: str, x: str) -> str:
    """Conv2DBackpropFilter: the products sum over all tiles."""
    shape, outs = b.type(x).shape, b.type(dout).shape[1]
    shared = column_bytes(tiles(windows, matrices.tile), shape, ITEMSIZE) <= SHARED_BYTES
    with nullcontext() if shared else b.unshared():
        inputs = _inputs(b, x, windows, matrices)
    factors = _gradients(b, dout, windows, matrices), inputs
    product = b.node("FusedMatMul", factors, FUSED, transB=1, transBatchB=1)
    rows = b.reshape(product, (matrices.window**2, outs * shape[1]))
    result = b.node("Gemm", (rows, b.const(matrices.filters)), transA=1)
    return b.reshape(result, (outs, shape[1], FILTER, FILTER))


def _sizes(op: Convolution, windows: Windows, input_size: Shape) -> list[int]:
    """The sizes of tiles that save enough multiplications, the one with the fewest first."""
    fits = windows.kernel == (FILTER, FILTER) and windows.strides == windows.dilations == (1, 1) and op.group == 1
    batch, channels = input_size[:2]
    if not fits or min(op.out_channel, channels) < OFFERED_CHANNELS:
        return []
    elements = {tile: math.prod((*(cut := tiles(windows, tile)).kernel, *cut.out)) for tile in POINTS}
    largest = WHOLE_BYTES // (ITEMSIZE * batch * max(op.out_channel, channels))
    limit = min(math.prod(windows.out) * FILTER**2 // SAVING, largest)
    return sorted((tile for tile in POINTS if elements[tile] <= limit), key=lambda tile: (elements[tile], tile))


def _filters(b: Builder, w: str, matrix: np.ndarray) -> str:
    """The transformed filters: (a*a, K, C), where a*a is the number of elements of a tile."""
    outs, ins = b.type(w).shape[:2]
    rows = b.reshape(w, (outs * ins, FILTER**2))
    return b.reshape(b.node("FusedMatMul", (b.const(matrix), rows), FUSED, transB=1), (len(matrix), outs, ins))


def _inputs(b: Builder, x: str, windows: Windows, matrices: Winograd) -> str:
    """The transformed tiles of (N, C, H, W), batch last: (C, a*a, tiles*N)."""
    shape, cut = b.type(x).shape, tiles(windows, matrices.tile)
    parts = shape[1], matrices.window**2, math.prod(cut.out) * shape[0]
    return b.node("MatMul", (b.const(matrices.inputs), b.reshape(columns(b, x, cut, shape), parts)))


def _gradients(b: Builder, dout: str, windows: Windows, matrices: Winograd) -> str:
    """The transformed gradients of the results, whose tiles are disjoint: (a*a, K, tiles*N)."""
    (batch, channels, height, width), m = b.type(dout).shape, matrices.tile
    down, across = tiles(windows, m).out
    if (height, width) != (down * m, across * m):
        ends = [0] * 5 + [down * m - height, across * m - width, 0]
        dout = b.node("Pad", (b.reshape(dout, (channels, height, width, batch)), b.const(ends)))
    parts = b.reshape(dout, (channels, down, m, across, m, batch))
    rows = b.reshape(b.node("Transpose", (parts,), perm=(2, 4, 0, 1, 3, 5)), (m * m, channels * down * across * batch))
    product = b.node("MatMul", (b.const(np.ascontiguousarray(matrices.outputs.T)), rows))
    return b.reshape(product, (matrices.window**2, channels, down * across * batch))


def _results(b: Builder, products: str, shape: Shape, matrices: Winograd) -> str:
    """Products (a*a, K, tiles*N) as results of `shape`, (N, K, H, W), batch last."""
    (batch, channels, height, width), m = shape, matrices.tile
    down, across = -(-height // m), -(-width // m)
    rows = b.reshape(products, (matrices.window**2, channels * down * across * batch))
    parts = b.reshape(b.node("MatMul", (b.const(matrices.outputs), rows)), (m, m, channels, down, across, batch))
    return cropped(b, b.node("Transpose", (parts,), perm=(2, 3, 0, 4, 1, 5)), shape, (down * m, across * m))
