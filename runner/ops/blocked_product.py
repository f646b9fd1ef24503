"""Products of matrices in parts: blocks, which threads compute, and small ones, which are not packed."""

import numpy as np

from runner.host.threads import compute_parts, slices

BLOCK_FLOPS = 250_000_000  # large enough that packing the other operand costs little
UNPACKED = 1_000_000  # rows * inner * columns up to which OpenBLAS reads matrices where they are
LEAST_COLUMNS, LEAST_TERMS = 256, 1024  # of a part; shorter ones take longer than packing


def blocked_product(a: np.ndarray, b: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """(M, K) times (K, N), into `out` if it is given; large products in blocks of rows or columns of the result."""
    (rows, inner), columns = a.shape, b.shape[1]
    flops = 2 * rows * inner * columns
    longer = max(rows, columns)
    size = max(64, -(-longer // max(flops // BLOCK_FLOPS, 1)))
    if size >= longer:
        return np.matmul(a, b, out=out)
    result = np.empty((rows, columns), np.result_type(a, b)) if out is None else out
    blocks = slices(longer, size)
    if rows >= columns:
        compute_parts(lambda block: np.matmul(a[block], b, out=result[block]), blocks, flops)
    else:
        compute_parts(lambda block: np.matmul(a, b[:, block], out=result[:, block]), blocks, flops)
    return result


def unpacked_product(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> np.ndarray:
    """(M, K) times (K, N) into `out`; for small (M, K) in parts of the columns that OpenBLAS does not copy first.

    Measured with 6 rows: 66 GFLOP/s instead of 33, with 16 rows 87 instead of 78. One call computes all equal parts, so
    that threads seldom meet at the interpreter's lock.
    """
    step, equal = _unpacked_step(a.size, b.shape[1], LEAST_COLUMNS)
    if step >= b.shape[1]:
        return blocked_product(a, b, out)
    np.matmul(a, _stacked(b[:, :equal], step), out=_stacked(out[:, :equal], step))
    if equal < b.shape[1]:
        np.matmul(a, b[:, equal:], out=out[:, equal:])
    return out


def unpacked_sum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(M, P) times the transposed of (N, P), as (M, N); for small (M, N) as a sum over parts that are not copied first.

    The matrix with more rows is the left operand, for which OpenBLAS is up to twice as fast.
    """
    if len(a) < len(b):
        return unpacked_sum(b, a).T
    step, equal = _unpacked_step(len(a) * len(b), a.shape[1], LEAST_TERMS)
    if step >= a.shape[1]:
        return blocked_product(a, b.T)
    total = np.add.reduce(_stacked(a[:, :equal], step) @ _stacked(b[:, :equal], step).swapaxes(1, 2))
    return np.asarray(total if equal == a.shape[1] else total + a[:, equal:] @ b[:, equal:].T)


def _unpacked_step(size: int, length: int, least: int) -> tuple[int, int]:
    """How long the parts of the third axis of a product are whose other two have `size` elements, and their sum.

    What is left of the axis is shorter than a part.
    """
    most = UNPACKED // max(size, 1)
    if most < least or length <= most:
        return max(length, 1), length
    step = -(-length // -(-length // most))
    return step, length - length % step


def _stacked(x: np.ndarray, step: int) -> np.ndarray:
    """A view of (M, N) as the parts (N / step, M, step)."""
    return x.reshape(len(x), x.shape[1] // step, step).swapaxes(0, 1)
