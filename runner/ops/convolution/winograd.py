"""Transforms that save multiplications: numbers for kernels in numpy and for lowerings alike."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache, reduce

import numpy as np

from runner.host.threads import compute_parts, in_order, slices
from runner.ops.convolution.columns import tiles
from runner.ops.convolution.windows import Windows
from runner.ops.matrices import blocked_product
from runner.types import Shape
from runner.validation.rules import Frozen

# Winograd's minimal filtering F(m x m, 3x3): m*m results of a 3x3 correlation in (m+2)**2 multiplications.

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


# numpy kernels of 3x3 convolutions and both gradients by Winograd's minimal filtering.
#
# Tiles of the image are gathered and transformed, multiplied with the transformed filters, one matrix product over the
# channels for each element of a tile, and transformed back. Many tiles come in slabs that fit the caches, which threads
# compute; with few tiles, which have many channels, threads divide each of the stages instead.

CHANNELS = 32  # from which the saved multiplications take longer than the transforms
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
    if not (fits and _ALLOWED.get() and min(filters[:2]) >= CHANNELS):
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
