"""Numbers in the files of a run, and metrics that are arrays, such as a confusion matrix: nested lists of numbers."""

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeGuard

import numpy as np

from runner.validation.rules import LARGEST_FLOAT32

MAX_AXES = 8
SMALL = 1e-3  # of losses and metrics: what is less has no four digits behind the point


class ArrayElement(NamedTuple):
    """An element of two arrays: its place, such as `[2, 0]`, and its two values."""

    place: str
    a: float
    b: float


def is_number(value: object) -> bool:
    """Whether it is a number in the range of Float32, in which runner computes, and not a bool."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST_FLOAT32


def is_count(value: object) -> TypeGuard[int]:
    """Whether it is a whole number from 0 on that fits into an int64, and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62


def metric_text(value: float) -> str:
    """A loss or metric as every table of runs shows it.

    >>> metric_text(0.98333), metric_text(4.2e-05), metric_text(0.0), metric_text(12)
    ('0.9833', '4.2e-05', '0.0000', '12')
    """
    if isinstance(value, int):
        return str(value)
    return f"{value:.1e}" if 0 < abs(value) < SMALL else f"{value:.4f}"


def array_of(value: object) -> np.ndarray | None:
    """Nested lists of equal lengths as a Float64 array; None for anything else, also for a single number.

    >>> array_of([[3, 0], [1, 2]]).shape, array_of([[3, 0], [1]]), array_of(0.5), array_of([])
    ((2, 2), None, None, None)
    """
    shape: list[int] = []
    inner = value
    while isinstance(inner, list) and inner and len(shape) < MAX_AXES:
        shape.append(len(inner))
        inner = inner[0]
    if not shape or not _has_shape(value, tuple(shape)):
        return None
    return np.asarray(value, np.float64)


def size_text(value: Any) -> str:
    """The size of an array in words.

    >>> size_text([[3, 0, 1], [1, 2, 0]])
    '2x3 numbers'
    """
    return f"{'x'.join(map(str, np.shape(value)))} numbers"


def cells(a: np.ndarray, b: np.ndarray, differs: np.ndarray) -> Iterator[ArrayElement]:
    """The elements of two arrays of equal shape where `differs` holds, in order."""
    for index in np.argwhere(differs).tolist():
        place = tuple(index)
        yield ArrayElement(str(index), a[place].item(), b[place].item())


def _has_shape(value: object, shape: tuple[int, ...]) -> bool:
    if not shape:
        return is_number(value)
    return isinstance(value, list) and len(value) == shape[0] and all(_has_shape(one, shape[1:]) for one in value)
