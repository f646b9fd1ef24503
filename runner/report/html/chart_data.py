"""What is known of a chart besides its picture: values for the script of the page, and a description in words."""

import itertools
import json
from collections.abc import Sequence

import numpy as np

from runner.report.html.series import Points, downsample

DIGITS = 5
MAX_DESCRIBED = 6  # lines

Named = tuple[str, Points]


def thinned(points: Points, columns: int) -> Points:
    """The points of a curve, or the lowest and highest of each column if there are more than two for each."""
    if len(points) <= 2 * columns:
        return points
    array = np.array(points, np.float64)
    return downsample(array[:, 0], array[:, 1], columns)


def encoded(lines: Sequence[Named], labels: Sequence[str] | None = None) -> str:
    """Lines as JSON for chart.js: name, x, y and, for single points, a label of each.

    Equidistant x are their first value and their distance.

    >>> encoded([("loss", [(1, 0.5), (2, 0.25), (3, 0.2)])])
    '[["loss",[1,1],[0.5,0.25,0.2]]]'
    """
    rows = [[name, _places([x for x, _ in points]), [_short(y) for _, y in points]] for name, points in lines]
    if labels is not None:
        rows = [[*row, list(labels)] for row in rows]
    return json.dumps(rows, separators=(",", ":"), ensure_ascii=False)


def described(title: str, x_name: str, lines: Sequence[Named]) -> str:
    """The text that a screen reader has instead of the picture.

    >>> described("Loss", "step", [("loss", [(1, 0.5), (9, 0.25)])])
    'Loss. loss: from 0.5 at step 1 to 0.25 at step 9, lowest 0.25, highest 0.5.'
    """
    named = [(name, points) for name, points in lines if name and points]
    sentences = [f"{title}."]
    for name, points in named[:MAX_DESCRIBED]:
        (first, begin), (last, end) = points[0], points[-1]
        values = [y for _, y in points]
        course = f"from {begin:.4g} at {x_name} {first:g} to {end:.4g} at {x_name} {last:g}"
        sentences.append(f"{name}: {course}, lowest {min(values):.4g}, highest {max(values):.4g}.")
    if len(named) > MAX_DESCRIBED:
        sentences.append(f"And {len(named) - MAX_DESCRIBED} more lines.")
    return " ".join(sentences)


def _places(xs: Sequence[float]) -> list[float]:
    whole = [int(x) if float(x).is_integer() else _short(x) for x in xs]
    if len(whole) > 2 and all(b - a == whole[1] - whole[0] for a, b in itertools.pairwise(whole)):
        return [whole[0], whole[1] - whole[0]]
    return list(whole)


def _short(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
