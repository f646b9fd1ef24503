"""Products of matrices in parts: blocks, which threads compute, and small ones, which are not packed."""

from functools import reduce

import numpy as np

from runner.host.threads import in_order

BLOCK_FLOPS = 10_000_000  # large enough that packing the other operand costs little
UNPACKED = 1_000_000  # rows * inner * columns up to which OpenBLAS reads matrices where they are
LEAST_COLUMNS, LEAST_TERMS = 256, 1024  # of a part; shorter ones take longer than packing


def blocked_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(M, K) times (K, N); large products in blocks of rows or columns of the result."""
    (rows, inner), columns = a.shape, b.shape[1]
    flops = 2 * rows * inner * columns
    longer = max(rows, columns)
    size = max(64, -(-longer * BLOCK_FLOPS // max(flops, 1)))
    if size >= longer:
        return np.asarray(a @ b)
    result = np.empty((rows, columns), np.result_type(a, b))
    blocks = [slice(start, start + size) for start in range(0, longer, size)]
    if rows >= columns:
        parts = in_order(lambda block: np.matmul(a[block], b, out=result[block]), blocks, flops)
    else:
        parts = in_order(lambda block: np.matmul(a, b[:, block], out=result[:, block]), blocks, flops)
    for _ in parts:  # each writes into the result
        pass
    return result


def unpacked_product(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> np.ndarray:
    """(M, K) times (K, N) into `out`; for small (M, K) in parts of the columns that OpenBLAS does not copy first.

    Measured with 6 rows: 66 GFLOP/s instead of 33, with 16 rows 87 instead of 78.
    """
    for part in _unpacked_parts(a.size, b.shape[1], LEAST_COLUMNS):
        np.matmul(a, b[:, part], out=out[:, part])
    return out


def unpacked_sum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(M, P) times the transposed of (N, P), as (M, N); for small (M, N) as a sum over parts that are not copied first.

    The matrix with more rows is the left operand, for which OpenBLAS is up to twice as fast.
    """
    if len(a) < len(b):
        return unpacked_sum(b, a).T
    if a.size * len(b) <= UNPACKED:
        return np.asarray(a @ b.T)
    parts = _unpacked_parts(len(a) * len(b), a.shape[1], LEAST_TERMS)
    return np.asarray(reduce(np.add, [a[:, part] @ b[:, part].T for part in parts]))


def _unpacked_parts(size: int, length: int, least: int) -> list[slice]:
    """The parts of the third axis of a product whose other two have `size` elements together."""
    most = UNPACKED // max(size, 1)
    if most < least or length <= most:
        return [slice(None)]
    step = -(-length // -(-length // most))  # equal ones
    return [slice(start, min(start + step, length)) for start in range(0, length, step)]
