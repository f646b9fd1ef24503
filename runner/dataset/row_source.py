"""`RowSource`: the values of a column that are read when they are used, such as images decoded from their files.

An array in memory (or a `numpy.memmap`) is the other kind of source; both have `take`, `nbytes` and a length.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np

from runner.types import TensorType


class RowSource(ABC):
    """Rows of one type. A row has the same values whenever it is read; several threads read at the same time.

    `type` is that of all rows, [N, ...].
    """

    def __init__(self, kind: TensorType) -> None:
        self.type = kind

    def __len__(self) -> int:
        return self.type.shape[0]

    @property
    def nbytes(self) -> int:
        """Bytes of all rows when they are in memory."""
        return self.type.nbytes

    @abstractmethod
    def take(self, rows: np.ndarray, axis: int = 0) -> np.ndarray:
        """These rows, [len(rows), ...] in new memory; `axis` is always 0, as in the call for an array."""

    @abstractmethod
    def contents(self) -> Iterator[bytes]:
        """What determines the values, in pieces, for a fingerprint: the bytes of each file."""


def source_type(source: np.ndarray | RowSource) -> TensorType:
    """The type of all rows, [N, ...]."""
    return source.type if isinstance(source, RowSource) else TensorType.of(source)
