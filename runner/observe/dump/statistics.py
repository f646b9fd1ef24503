"""`statistic.csv`: a row of statistics for each dumped tensor (spec section 3.10).

The columns have the meaning that they have in the reference, which differs from their names: Negative and Positive
Zero Count are the elements below and above zero, infinities included; Zero Count are the zeros of either sign. Max, Min
and Avg include infinities and are NaN if any element is NaN (or if the tensor is empty).
"""

import math
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np

from runner import dtype as dt
from runner.host.console import csv_text
from runner.observe.dump.file_names import AsyncName
from runner.observe.dump.writer import blocks
from runner.types import Shape

FILE = "statistic.csv"
COLUMNS = (
    *("Op Type", "Op Name", "Task ID", "Stream ID", "Timestamp", "IO", "Slot", "Data Size", "Data Type", "Shape"),
    *("Max Value", "Min Value", "Avg Value", "Count", "Negative Zero Count", "Positive Zero Count", "NaN Count"),
    *("Negative Inf Count", "Positive Inf Count", "Zero Count"),
)
BLOCK = 1 << 18  # elements that are processed at once
# numpy is 10 times slower with float16, and the maximum of booleans must be a number.
_WORKING_TYPES: dict[np.dtype, np.dtype] = {
    np.dtype(np.float16): np.dtype(np.float32),
    np.dtype(np.bool_): np.dtype(np.uint8),
}


class Statistics(NamedTuple):
    """Statistics of one tensor. `max` and `min` have its dtype, or are 0 or 1 for Bool; the sum is in float64."""

    max: np.generic | float
    min: np.generic | float
    sum: float
    elements: int
    below_zero: int
    above_zero: int
    nan: int
    negative_inf: int
    positive_inf: int
    zero: int

    @property
    def average(self) -> float:
        """The mean; NaN for an empty tensor."""
        return self.sum / self.elements if self.elements else math.nan

    @property
    def cells(self) -> tuple[object, ...]:
        """The values of the columns from "Max Value" on."""
        return self.max, self.min, self.average, *self[3:]


EMPTY = Statistics(math.nan, math.nan, 0.0, 0, 0, 0, 0, 0, 0, 0)


def statistics(array: np.ndarray) -> Statistics:
    """The statistics of a tensor of any shape and memory order."""
    return reduce(_merge, (_of_block(block) for block in blocks(array, "K", BLOCK) if block.size), EMPTY)


def row(operator: AsyncName, side: str, slot: int, shape: Shape, array: np.ndarray) -> tuple[object, ...]:
    """The row of one tensor: input or output (`side`) number `slot`; `shape` is the one in its file."""
    dtype = dt.of(array.dtype)
    return (
        *(*operator, side, slot, array.nbytes, dtype),
        *(f"({','.join(map(str, shape))})", *statistics(array).cells),
    )


def table(rows: Iterable[Sequence[object]]) -> bytes:
    """The content of the file."""
    return csv_text([COLUMNS, *rows]).encode()


def _merge(a: Statistics, b: Statistics) -> Statistics:
    if a is EMPTY:
        return b
    # The fields after the sum are counts. np.maximum propagates NaN, unlike `max`.
    counts = [x + y for x, y in zip(a[3:], b[3:], strict=True)]
    return Statistics(np.maximum(a.max, b.max), np.minimum(a.min, b.min), a.sum + b.sum, *counts)


def _of_block(array: np.ndarray) -> Statistics:
    block = array.astype(_WORKING_TYPES[array.dtype]) if array.dtype in _WORKING_TYPES else array
    # A sum of infinities of both signs is NaN, which must not cause a warning.
    with np.errstate(invalid="ignore", over="ignore"):
        largest, smallest, total = block.max(), block.min(), float(block.sum(dtype=np.float64))
    below, zero = int(np.count_nonzero(block < 0)), int(np.count_nonzero(block == 0))
    nan, negative, positive = (0, 0, 0) if np.isfinite(largest) and np.isfinite(smallest) else _not_finite(block)
    above = block.size - below - zero - nan
    scalar = block.dtype.type if array.dtype == np.bool_ else array.dtype.type
    return Statistics(scalar(largest), scalar(smallest), total, block.size, below, above, nan, negative, positive, zero)


def _not_finite(block: np.ndarray) -> tuple[int, int, int]:
    nan, infinite = np.isnan(block), np.isinf(block)
    positive = int(np.count_nonzero(infinite & (block > 0)))
    return int(np.count_nonzero(nan)), int(np.count_nonzero(infinite)) - positive, positive
