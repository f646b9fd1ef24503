"""Curves: fewer points that hide nothing, running means, and means over seeds."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

Points = list[tuple[float, float]]


class Spread(NamedTuple):
    """Of several curves at the steps that all of them have: (n,) steps, means, and deviations (of a sample, n - 1)."""

    steps: np.ndarray
    mean: np.ndarray
    deviation: np.ndarray


def thinned(xs: np.ndarray, ys: np.ndarray, columns: int) -> Points:
    """At most two points for each of so many columns of pixels: the lowest and the highest, in their order.

    `xs` (n,) is ascending. What a column spans is what a line through all of its points would cover, so peaks stay.
    Where there are no more than two points in every column, all of them stay.
    """
    if not len(xs):
        return []
    width = float(xs[-1] - xs[0]) or 1.0
    column = np.minimum(((xs - xs[0]) * (columns / width)).astype(np.int64), columns - 1)
    starts = np.flatnonzero(np.diff(column, prepend=-1))
    kept: list[int] = []
    for start, stop in zip(starts, [*starts[1:], len(xs)], strict=True):
        part = ys[start:stop]
        kept += (
            sorted({int(start + part.argmin()), int(start + part.argmax())}) if stop - start > 2 else range(start, stop)
        )
    ends = {0, len(xs) - 1}.difference(kept)
    return [(float(xs[k]), float(ys[k])) for k in sorted(ends.union(kept))]


def running_mean(ys: np.ndarray, window: int) -> np.ndarray:
    """The mean of the newest `window` values at each place, of fewer at the beginning. (n,) to (n,)

    >>> running_mean(np.array([1.0, 3.0, 5.0]), 2).tolist()
    [1.0, 2.0, 4.0]
    """
    sums = np.cumsum(np.concatenate([[0.0], ys]))
    stops = np.arange(1, len(ys) + 1)
    starts = np.maximum(stops - window, 0)
    means: np.ndarray = (sums[stops] - sums[starts]) / (stops - starts)
    return means


def spread(curves: Sequence[tuple[np.ndarray, np.ndarray]]) -> Spread:
    """Of at least two curves, each (steps, values)."""
    common = curves[0][0]
    for steps, _ in curves[1:]:
        common = np.intersect1d(common, steps)
    values = np.stack([ys[np.searchsorted(xs, common)] for xs, ys in curves])
    return Spread(common, values.mean(axis=0), values.std(axis=0, ddof=1))
