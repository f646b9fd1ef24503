"""Some rows of an array that may be larger than the memory (`numpy.memmap`)."""

from collections.abc import Iterator

import numpy as np

from runner import dtype as dt
from runner.dataset.row_source import RowSource
from runner.types import TensorType

PIECE_BYTES = 1 << 24  # read at a time


class SelectedRows(RowSource):
    """The rows with these numbers, read when they are used."""

    def __init__(self, values: np.ndarray, rows: np.ndarray) -> None:
        super().__init__(TensorType(dt.of(values.dtype), (len(rows), *values.shape[1:])))
        self.values, self.rows = values, rows

    def take(self, rows: np.ndarray, axis: int = 0) -> np.ndarray:
        """The values of these rows."""
        taken: np.ndarray = self.values.take(self.rows[rows], axis=0)
        return taken

    def contents(self) -> Iterator[bytes]:
        """The values in pieces."""
        return (piece.tobytes() for piece in pieces(self))


def pieces(values: np.ndarray | RowSource) -> Iterator[np.ndarray]:
    """All rows in order, in pieces of about PIECE_BYTES."""
    step = max(1, PIECE_BYTES * len(values) // max(1, values.nbytes))
    for start in range(0, len(values), step):
        if isinstance(values, RowSource):
            yield values.take(np.arange(start, min(start + step, len(values))))
        else:
            yield values[start : start + step]


def value_range(values: np.ndarray | RowSource) -> tuple[int, int]:
    """The least and the greatest of integers."""
    ranges = [(int(piece.min()), int(piece.max())) for piece in pieces(values)]
    return min(least for least, _ in ranges), max(most for _, most in ranges)
