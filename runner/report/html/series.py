"""Curves: downsampling that keeps peaks, running means, and means over seeds."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

Points = list[tuple[float, float]]


class Spread(NamedTuple):
    """Statistics of several curves at their common steps: (n,) steps, means, sample standard deviations (ddof 1)."""

    steps: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray


def downsample(xs: np.ndarray, ys: np.ndarray, columns: int) -> Points:
    """Reduce a curve to its minimum and maximum in each of `columns` columns of pixels, in their order.

    `xs` (n,) is ascending. The result covers the same pixels as the line through all points, so peaks are kept. Columns
    with at most two points keep all of them, and the first and last point of the curve are kept.
    """
    if not len(xs):
        return []
    width = float(xs[-1] - xs[0]) or 1.0
    column = np.minimum(((xs - xs[0]) * (columns / width)).astype(np.int64), columns - 1)
    starts = np.flatnonzero(np.diff(column, prepend=-1))
    kept = {0, len(xs) - 1}
    for start, stop in zip(starts, [*starts[1:], len(xs)], strict=True):
        part = ys[start:stop]
        kept |= {*range(start, stop)} if len(part) <= 2 else {int(start + part.argmin()), int(start + part.argmax())}
    return [(float(xs[k]), float(ys[k])) for k in sorted(kept)]


def curve(xs: np.ndarray, ys: np.ndarray) -> Points:
    """All points of a curve, (n,) each."""
    return list(zip(xs.astype(np.float64).tolist(), ys.astype(np.float64).tolist(), strict=True))


def running_mean(ys: np.ndarray, window: int) -> np.ndarray:
    """The mean of the last `window` values at each position, of fewer at the beginning. (n,) to (n,)

    >>> running_mean(np.array([1.0, 3.0, 5.0]), 2).tolist()
    [1.0, 2.0, 4.0]
    """
    sums = np.cumsum(np.concatenate([[0.0], ys]))
    stops = np.arange(1, len(ys) + 1)
    starts = np.maximum(stops - window, 0)
    means: np.ndarray = (sums[stops] - sums[starts]) / (stops - starts)
    return means


def spread(curves: Sequence[tuple[np.ndarray, np.ndarray]]) -> Spread:
    """Mean and deviation of at least two curves, each (steps, values)."""
    common = curves[0][0]
    for steps, _ in curves[1:]:
        common = np.intersect1d(common, steps)
    values = np.stack([ys[np.searchsorted(xs, common)] for xs, ys in curves])
    return Spread(common, values.mean(axis=0), values.std(axis=0, ddof=1))
