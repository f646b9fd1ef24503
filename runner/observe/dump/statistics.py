"""`statistic.csv`: a line of numbers for each dumped tensor (spec section 3.10).

The reference's columns and what it puts into them, which is not always what their names say: Negative and Positive
Zero Count are the elements below and above zero, infinities included; Zero Count are the zeros of either sign. Max, Min
and Avg are NaN as soon as one element is (and of an empty tensor), and infinities take part in them.
"""

import csv
import io
import math
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np

from runner import dtype as dt
from runner.observe.dump.file_names import AsyncName
from runner.observe.dump.writer import blocks
from runner.types import Shape

FILE = "statistic.csv"
COLUMNS = (
    *("Op Type", "Op Name", "Task ID", "Stream ID", "Timestamp", "IO", "Slot", "Data Size", "Data Type", "Shape"),
    *("Max Value", "Min Value", "Avg Value", "Count", "Negative Zero Count", "Positive Zero Count", "NaN Count"),
    *("Negative Inf Count", "Positive Inf Count", "Zero Count"),
)
BLOCK = 1 << 18  # elements that are looked at together
_QUICK: dict[np.dtype, np.dtype] = {np.dtype(np.float16): np.dtype(np.float32), np.dtype(np.bool_): np.dtype(np.uint8)}


class Statistics(NamedTuple):
    """Numbers of one tensor. `max` and `min` have its own type, those of Bool are 0 and 1; the sum is in float64."""

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
        """NaN for an empty tensor."""
        return self.sum / self.elements if self.elements else math.nan

    @property
    def cells(self) -> tuple[object, ...]:
        """In the order of the columns."""
        return self.max, self.min, self.average, *self[3:]


NOTHING = Statistics(math.nan, math.nan, 0.0, 0, 0, 0, 0, 0, 0, 0)


def statistics(array: np.ndarray) -> Statistics:
    """The numbers of a tensor of any shape and order in memory."""
    return reduce(_together, (_of_block(block) for block in blocks(array, "K", BLOCK) if block.size), NOTHING)


def row(operator: AsyncName, side: str, slot: int, shape: Shape, array: np.ndarray) -> tuple[object, ...]:
    """The cells of one tensor, which is operand or result (`side`) number `slot`; `shape` is as its file says."""
    kind = dt.of(array.dtype)
    return (
        *(operator.op_type, operator.op_name, operator.task_id, operator.stream_id, operator.timestamp, side, slot),
        *(array.nbytes, kind, f"({','.join(map(str, shape))})", *statistics(array).cells),
    )


def table(rows: Iterable[Sequence[object]]) -> bytes:
    """The whole file."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([COLUMNS, *rows])
    return text.getvalue().encode()


def _together(a: Statistics, b: Statistics) -> Statistics:
    if a is NOTHING:
        return b
    # The numbers behind the sum are counts. np.maximum keeps a NaN, which `max` may lose.
    counts = [x + y for x, y in zip(a[3:], b[3:], strict=True)]
    return Statistics(np.maximum(a.max, b.max), np.minimum(a.min, b.min), a.sum + b.sum, *counts)


def _of_block(given: np.ndarray) -> Statistics:
    # numpy is 10 times slower with halves, and the largest Bool is to be a number.
    block = given.astype(_QUICK[given.dtype]) if given.dtype in _QUICK else given
    # A sum of infinities of both signs is NaN, and that is no reason for a warning.
    with np.errstate(invalid="ignore", over="ignore"):
        largest, smallest, total = block.max(), block.min(), float(block.sum(dtype=np.float64))
    below, zero = int(np.count_nonzero(block < 0)), int(np.count_nonzero(block == 0))
    nan, negative, positive = (0, 0, 0) if np.isfinite(largest) and np.isfinite(smallest) else _not_finite(block)
    above = block.size - below - zero - nan
    kind = block.dtype.type if given.dtype == np.bool_ else given.dtype.type
    return Statistics(kind(largest), kind(smallest), total, block.size, below, above, nan, negative, positive, zero)


def _not_finite(block: np.ndarray) -> tuple[int, int, int]:
    nan, infinite = np.isnan(block), np.isinf(block)
    positive = int(np.count_nonzero(infinite & (block > 0)))
    return int(np.count_nonzero(nan)), int(np.count_nonzero(infinite)) - positive, positive
