"""Rows with values that networks cannot compute with, such as large Int64 numbers; scripts read them all the same."""

from collections.abc import Iterator

import numpy as np

from runner import dtype as dt
from runner.dataset.element_types import converted, target_type
from runner.dataset.row_source import RowSource
from runner.types import TensorType


class WideRows(RowSource):
    """Rows of an array [N, ...]; they are converted when a network uses them."""

    def __init__(self, name: str, values: np.ndarray) -> None:
        super().__init__(TensorType(dt.of(target_type(name, values)), values.shape))
        self._name, self._values = name, values

    def take(self, rows: np.ndarray, axis: int = 0) -> np.ndarray:
        """Raises ConfigError, with the number of the row, for a number that does not fit."""
        to = self.type.dtype.numpy
        made = [converted(self._name, self._values[row : row + 1], to, int(row)) for row in rows]
        return np.concatenate(made) if made else np.empty((0, *self.type.shape[1:]), to)

    def contents(self) -> Iterator[bytes]:
        """The bytes of each row."""
        return (row.tobytes() for row in self._values)
