"""Winograd's minimal filtering for 3x3 convolutions and both their gradients: fewer multiplications.

The matrices of the transforms; kernels in numpy, which take them where they are faster; and lowerings, which
convolutions offer as further lowerings.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import replace
from functools import lru_cache, partial, reduce

import numpy as np

from runner.core.lowering import FUSED, Builder, Lowering
from runner.host.threads import compute_parts, in_order, slices
from runner.ops.convolution.windows import SHARED_BYTES, WHOLE_BYTES, Windows, column_bytes, columns, cropped, tiles
from runner.ops.matrices import blocked_product
from runner.types import Shape
from runner.validation.rules import Frozen

# The transforms F(m x m, 3x3): m*m results of a 3x3 correlation in (m+2)**2 multiplications.

FILTER = 3  # rows and columns of the filters
POINTS = {2: (0.0, 1.0, -1.0), 4: (0.0, 0.625, -0.625, 1.5, -1.5)}  # by results per row; infinity is one more


class Winograd(Frozen):
    """The matrices of F(m x m, 3x3) in Float32, for flattened tiles. With a = m + 2:

    `inputs` (a*a, a*a) transforms tiles, `filters` (a*a, 9) filters, `outputs` (m*m, a*a) products into results.
    """

    tile: int
    inputs: np.ndarray
    filters: np.ndarray
    outputs: np.ndarray

    @property
    def window(self) -> int:
        """Rows and columns of an input tile; neighbouring tiles share two of them."""
        return self.tile + FILTER - 1


@lru_cache
def winograd(tile: int) -> Winograd:
    """The matrices for tiles of tile x tile results: 2 or 4. Raises KeyError for another number."""
    matrices = (np.kron(matrix, matrix).astype(np.float32) for matrix in one_dimensional(POINTS[tile]))
    inputs, filters, outputs = matrices
    return Winograd(tile, inputs, filters, outputs)


def one_dimensional(points: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The matrices of F(m, 3) in Float64 for m + 1 points: inputs (a, a), filters (a, 3), outputs (m, a), a = m + 2.

    A filter is evaluated at each point and divided by the distances to the other points (Lagrange); a row of `inputs`
    has the coefficients of the polynomial with the other points as roots. The last row is the point at infinity.
    """
    finite = np.array(points)
    others = [np.delete(finite, place) for place in range(len(finite))]
    inputs = np.zeros((len(finite) + 1,) * 2)
    for row, roots in enumerate(others):
        inputs[row, :-1] = np.poly(roots)[::-1]
    inputs[-1] = np.poly(finite)[::-1]
    distances = np.array([np.prod(point - rest) for point, rest in zip(finite, others, strict=True)])
    filters = _evaluation(finite, FILTER) / np.append(distances, 1.0)[:, None]
    return inputs, filters, _evaluation(finite, len(points) - 1).T


def _evaluation(points: np.ndarray, terms: int) -> np.ndarray:
    """Powers of each point, and the highest term for infinity: (points + 1, terms)."""
    return np.vstack([np.vander(points, terms, increasing=True), np.eye(terms)[-1]])


# Kernels in numpy.
#
# Tiles of the image are gathered and transformed, multiplied with the transformed filters, one matrix product over the
# channels for each element of a tile, and transformed back. Many tiles come in blocks that fit the caches, which
# threads compute; with few tiles, which have many channels, threads divide each of the stages instead.

KERNEL_CHANNELS = 32  # from which the saved multiplications take longer than the transforms
COLUMNS = 64  # tiles times batch; with fewer, most of the time goes to reading the filters
SAVING = 2  # direct products have at least so many times the multiplications: small images fill their tiles badly
PART_FLOPS = 10_000_000  # of a stack of products
SLAB_COLUMNS = 256  # tiles times batch whose transforms stay in the cache

_ALLOWED: ContextVar[bool] = ContextVar("winograd", default=True)


@contextmanager
def winograd_kernels(allowed: bool) -> Iterator[None]:
    """Context in which kernels may use Winograd's transforms, or not (`session.winograd`)."""
    token = _ALLOWED.set(allowed)
    try:
        yield
    finally:
        _ALLOWED.reset(token)


class TiledConvolution(Frozen):
    """The convolution of 3x3 `windows`, in tiles of which `matrices` are the transforms.

    Arrays of values are batch last, (C, H, W, N). a*a is the number of elements of a tile.
    """

    windows: Windows
    matrices: Winograd

    @property
    def tiles(self) -> Windows:
        """The windows of whole tiles."""
        return tiles(self.windows, self.matrices.tile)

    def correlate(self, x: np.ndarray, w: np.ndarray, flipped: bool = False) -> np.ndarray:
        """Cross-correlate x (C, H, W, N) with w (K, C, 3, 3) to (K, OH, OW, N), or x (K, ...) to (C, ...) `flipped`."""
        (down, across), m, batch = self.tiles.out, self.matrices.tile, x.shape[-1]
        filters = self._filters(w, flipped)
        outs = filters.shape[1]
        result = np.empty((outs, down, m, across, m, batch), x.dtype)

        def compute(rows: slice) -> None:
            products = _products(filters, self._inputs(x, rows))
            made = blocked_product(self.matrices.outputs, products.reshape(len(products), -1))
            result[:, rows] = made.reshape(m, m, outs, -1, across, batch).transpose(2, 3, 0, 4, 1, 5)

        compute_parts(compute, self._slabs(batch), 2 * filters.size * down * across * batch)
        height, width = self.windows.out
        return np.ascontiguousarray(result.reshape(outs, down * m, across * m, batch)[:, :height, :width])

    def filter_gradient(self, dout: np.ndarray, x: np.ndarray) -> np.ndarray:
        """The gradient of w, (K, C, 3, 3), for dout (K, OH, OW, N) and x (C, H, W, N)."""
        (down, across), m, (outs, height, width, batch) = self.tiles.out, self.matrices.tile, dout.shape
        if (height, width) != (down * m, across * m):
            dout = np.pad(dout, ((0, 0), (0, down * m - height), (0, across * m - width), (0, 0)))
        parts = dout.reshape(outs, down, m, across, m, batch)

        def compute(rows: slice) -> np.ndarray:
            gathered = parts[:, rows].transpose(0, 2, 4, 1, 3, 5).reshape(outs, m * m, -1)
            douts = _transformed(self.matrices.outputs.T, gathered)
            return _products(douts, self._inputs(x, rows).swapaxes(1, 2))

        flops = 2 * outs * len(x) * self.matrices.window**2 * down * across * batch
        total: np.ndarray = reduce(np.add, in_order(compute, self._slabs(batch), flops))
        gradient = blocked_product(self.matrices.filters.T, total.reshape(len(total), -1))
        return np.ascontiguousarray(gradient.T).reshape(outs, len(x), FILTER, FILTER)

    def _filters(self, w: np.ndarray, flipped: bool) -> np.ndarray:
        """The transformed filters, (a*a, K, C), or flipped (a*a, C, K)."""
        matrix = self.matrices.filters
        rows = blocked_product(matrix[:, ::-1] if flipped else matrix, w.reshape(-1, FILTER**2).T)
        filters = rows.reshape(-1, *w.shape[:2])
        return filters.swapaxes(1, 2) if flipped else filters

    def _inputs(self, x: np.ndarray, rows: slice) -> np.ndarray:
        """The transformed tiles of x (C, H, W, N) in some rows of tiles, as (a*a, C, tiles*N)."""
        whole, (top, _, left, _), m = self.tiles, self.windows.pads, self.matrices.tile
        first, height, width = rows.start * m - top, (rows.stop - rows.start) * m + FILTER - 1, whole.padded[1]
        start, stop = max(first, 0), min(first + height, x.shape[1])
        padded = np.zeros((len(x), height, width, x.shape[-1]), x.dtype)
        padded[:, start - first : stop - first, left : left + x.shape[2]] = x[:, start:stop]
        view = Windows((height, width), whole.kernel, whole.strides).view(padded)
        return _transformed(self.matrices.inputs, view.reshape(len(x), self.matrices.window**2, -1))

    def _slabs(self, batch: int) -> list[slice]:
        """The rows of tiles in parts."""
        down, across = self.tiles.out
        step = max(1, SLAB_COLUMNS // (across * batch))
        return [slice(start, min(start + step, down)) for start in range(0, down, step)]


@lru_cache(maxsize=4096)
def _tile(windows: Windows, batch: int) -> int | None:
    """The size of tiles with the fewest multiplications, None if direct products are faster."""
    limit, sizes = math.prod(windows.out) * FILTER**2 // SAVING, []
    for size in POINTS:
        cut = tiles(windows, size)
        elements, count = math.prod((*cut.kernel, *cut.out)), math.prod(cut.out)
        if elements <= limit and count * batch >= COLUMNS:
            sizes.append((elements, size))
    return min(sizes)[1] if sizes else None


def tiled_convolution(windows: Windows, filters: Shape, batch: int) -> TiledConvolution | None:
    """The convolution of a batch with filters (K, C, KH, KW) in tiles, where this is allowed and faster."""
    fits = windows.kernel == (FILTER, FILTER) and windows.strides == windows.dilations == (1, 1)
    if not (fits and _ALLOWED.get() and min(filters[:2]) >= KERNEL_CHANNELS):
        return None
    tile = _tile(windows, batch)
    return TiledConvolution(windows, winograd(tile)) if tile else None


def _transformed(matrix: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """A matrix (R, S) times parts (C, S, columns), as (R, C, columns)."""
    result = np.empty((len(parts), len(matrix), parts.shape[2]), parts.dtype)
    flops = 2 * len(matrix) * parts.size

    def multiply(part: slice) -> np.ndarray:
        return np.matmul(matrix, parts[part], out=result[part])

    compute_parts(multiply, _blocks(len(parts), flops), flops)
    return result.swapaxes(0, 1)


def _products(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The products of two stacks of matrices, (T, M, K) and (T, K, N)."""
    result = np.empty((*a.shape[:2], b.shape[2]), a.dtype)
    flops = 2 * a.size * b.shape[2]

    def multiply(part: slice) -> np.ndarray:
        return np.matmul(a[part], b[part], out=result[part])

    compute_parts(multiply, _blocks(len(a), flops), flops)
    return result


def _blocks(count: int, flops: int) -> list[slice]:
    """Parts of `count` equal things, each of some million operations."""
    return slices(count, max(1, count * PART_FLOPS // max(flops, 1)))


# Lowerings in batch-last layout.
#
# Tiles are gathered, and the rest are matrix products: the transform of the tiles, one product over the channels for
# each element of a tile, and the transform of the results. FusedMatMul reads the transformed tiles of a channel where
# they are (`transBatchB`), so nothing is transposed in between. The forward pass and the gradient of the filter need
# the same transformed tiles; only small ones are kept for it, since they take more than twice the memory of images.

OFFERED_CHANNELS = 16  # with fewer, the transforms take longer than what they save
FORM_CHANNELS, FILTER_CHANNELS = (
    64,
    32,
)  # from which a lowering is faster than direct ones: images; gradients of filters
ITEMSIZE = 4  # of Float32; no other type is batch last


def with_winograd(
    direct: Sequence[Lowering],
    lower: Callable[..., str],
    outs: int,
    windows: Windows,
    input_size: Shape,
    channels: int = FORM_CHANNELS,
) -> tuple[Lowering, ...]:
    """The direct lowerings of an operator and those of Winograd with tiles of these windows, the fastest first.

    `outs` is the number of filters, `input_size` that of Conv2D, (N, C, H, W); `channels` the number from which the
    lowerings are faster. They have the layouts of the first direct lowering; `lower` receives the matrices and the
    windows before the builder.
    """
    fast, other = list[Lowering](), list[Lowering]()
    wide = min(outs, input_size[1]) >= channels
    for tile in _sizes(outs, windows, input_size):
        transformed = partial(lower, winograd(tile), windows)
        lowering = replace(direct[0], name=f"winograd{tile}x{tile}", lower=transformed, penalty=0, winograd=True)
        long = math.prod(tiles(windows, tile).out) * input_size[0] >= COLUMNS
        (fast if wide and long else other).append(lowering)
    return *fast, *direct, *other


def lower_forward(matrices: Winograd, windows: Windows, b: Builder, x: str, w: str) -> str:
    """Conv2D."""
    factors = _lower_filters(b, w, matrices.filters), _lower_inputs(b, x, windows, matrices)
    product = b.node("FusedMatMul", factors, FUSED, transBatchB=1)
    return _lower_results(b, product, (b.type(x).shape[0], b.type(w).shape[0], *windows.out), matrices)


def lower_input_gradient(matrices: Winograd, reverse: Windows, b: Builder, dout: str, w: str) -> str:
    """Conv2DBackpropInput: a convolution of dout over the windows `reverse`, with flipped filters."""
    flipped = np.ascontiguousarray(matrices.filters[:, ::-1])
    factors = _lower_filters(b, w, flipped), _lower_inputs(b, dout, reverse, matrices)
    product = b.node("FusedMatMul", factors, FUSED, transA=1, transBatchB=1)
    return _lower_results(b, product, (b.type(dout).shape[0], b.type(w).shape[1], *reverse.out), matrices)


def lower_filter_gradient(matrices: Winograd, windows: Windows, b: Builder, dout: str, x: str) -> str:
    """Conv2DBackpropFilter: the products sum over all tiles."""
    shape, outs = b.type(x).shape, b.type(dout).shape[1]
    shared = column_bytes(tiles(windows, matrices.tile), shape, ITEMSIZE) <= SHARED_BYTES
    with nullcontext() if shared else b.unshared():
        inputs = _lower_inputs(b, x, windows, matrices)
    factors = _lower_gradients(b, dout, windows, matrices), inputs
    product = b.node("FusedMatMul", factors, FUSED, transB=1, transBatchB=1)
    rows = b.reshape(product, (matrices.window**2, outs * shape[1]))
    result = b.node("Gemm", (rows, b.const(matrices.filters)), transA=1)
    return b.reshape(result, (outs, shape[1], FILTER, FILTER))


def _sizes(outs: int, windows: Windows, input_size: Shape) -> list[int]:
    """The sizes of tiles that save enough multiplications, the one with the fewest first."""
    fits = windows.kernel == (FILTER, FILTER) and windows.strides == windows.dilations == (1, 1)
    batch, channels = input_size[:2]
    if not fits or min(outs, channels) < OFFERED_CHANNELS:
        return []
    elements = {tile: math.prod((*(cut := tiles(windows, tile)).kernel, *cut.out)) for tile in POINTS}
    largest = WHOLE_BYTES // (ITEMSIZE * batch * max(outs, channels))
    limit = min(math.prod(windows.out) * FILTER**2 // SAVING, largest)
    return sorted((tile for tile in POINTS if elements[tile] <= limit), key=lambda tile: (elements[tile], tile))


def _lower_filters(b: Builder, w: str, matrix: np.ndarray) -> str:
    """The transformed filters: (a*a, K, C), where a*a is the number of elements of a tile."""
    outs, ins = b.type(w).shape[:2]
    rows = b.reshape(w, (outs * ins, FILTER**2))
    return b.reshape(b.node("FusedMatMul", (b.const(matrix), rows), FUSED, transB=1), (len(matrix), outs, ins))


def _lower_inputs(b: Builder, x: str, windows: Windows, matrices: Winograd) -> str:
    """The transformed tiles of (N, C, H, W), batch last: (C, a*a, tiles*N)."""
    shape, cut = b.type(x).shape, tiles(windows, matrices.tile)
    parts = shape[1], matrices.window**2, math.prod(cut.out) * shape[0]
    return b.node("MatMul", (b.const(matrices.inputs), b.reshape(columns(b, x, cut, shape), parts)))


def _lower_gradients(b: Builder, dout: str, windows: Windows, matrices: Winograd) -> str:
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


def _lower_results(b: Builder, products: str, shape: Shape, matrices: Winograd) -> str:
    """Products (a*a, K, tiles*N) as results of `shape`, (N, K, H, W), batch last."""
    (batch, channels, height, width), m = shape, matrices.tile
    down, across = -(-height // m), -(-width // m)
    rows = b.reshape(products, (matrices.window**2, channels * down * across * batch))
    parts = b.reshape(b.node("MatMul", (b.const(matrices.outputs), rows)), (m, m, channels, down, across, batch))
    return cropped(b, b.node("Transpose", (parts,), perm=(2, 3, 0, 4, 1, 5)), shape, (down * m, across * m))
