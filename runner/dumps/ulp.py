"""Distances of floating numbers, counted in numbers."""

import numpy as np


def ulps(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """How many steps between neighbouring numbers lie between finite elements of one floating type; -0 is 0.

    The result is unsigned and as wide as the type.

    >>> ulps(np.float32([1, -1e-45]), np.float32([1 + 2**-23, 1e-45])).tolist()
    [1, 2]
    """
    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    sign = unsigned.type(1 << (8 * a.dtype.itemsize - 1))
    bits, other = a.view(unsigned), b.view(unsigned)
    x, y = bits & ~sign, other & ~sign  # distances from zero
    steps: np.ndarray = np.where((bits ^ other) & sign, x + y, np.maximum(x, y) - np.minimum(x, y))
    return steps
