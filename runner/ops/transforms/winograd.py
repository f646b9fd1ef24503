"""Winograd's minimal filtering F(m x m, 3x3): m*m results of a 3x3 correlation in (m+2)**2 multiplications.

A tile of (m+2)x(m+2) inputs and the filter are transformed, multiplied element by element (for many channels: one
matrix product per element), and transformed back: polynomials are evaluated at m + 1 points and at infinity,
multiplied, and interpolated. Saved multiplications: m = 2 takes 16 for 36, m = 4
takes 36 for 144.

All three operators of a convolution use the same three matrices (x and y are tiles, w a filter, all flattened):

    y  = outputs @ ((filters @ w) * (inputs @ x))            the convolution
    dx = outputs @ ((filters[:, ::-1] @ w) * (inputs @ dy))  the same with the flipped filter, over tiles of dy
    dw = filters.T @ sum((outputs.T @ dy) * (inputs @ x))    over all tiles; inputs @ x is that of the convolution

The points are measured ones. Errors grow with the spread of their powers: against Float64, for 128 channels, F(4x4)
with the usual points 0, 1, -1, 2, -2 is 2.0e-6 off (root of mean squares, relative), with the points below 0.9e-6;
F(2x2) 0.3e-6. All points are dyadic, so that `inputs` and `outputs` have no rounding error.
"""

from functools import lru_cache

import numpy as np

from runner.validation.rules import Frozen

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
