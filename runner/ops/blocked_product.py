"""Products of matrices in blocks, which threads compute."""

import numpy as np

from runner.host.threads import in_order

BLOCK_FLOPS = 10_000_000  # large enough that packing the other operand costs little


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
