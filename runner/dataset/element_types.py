"""The element types that arrays of users have in a dataset, such as Float32 for Float64, and `RowSource`.

A source of a column is an array in memory (or a `numpy.memmap`), or a `RowSource`, whose values are read when they are
used, such as images decoded from their files. Both have `take`, `nbytes` and a length.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np

from runner import dtype as dt
from runner.errors import ConfigError
from runner.host.machine import require_memory
from runner.types import TensorType

NARROW = {("f", 8): np.dtype(np.float32), ("i", 8): np.dtype(np.int32)}
CHARACTERS = "?bBhHiIlLqQefd"  # of numpy's types that tensors have
TEXT = "SU"  # kinds of numpy's types of text
BYTES = 1 << 24  # converted at a time: a file that is mapped into memory is never read as a whole in its own type


class OutOfRange(ConfigError):
    """A number that the type that networks compute with does not have."""


def narrowed(column: str, values: np.ndarray) -> np.ndarray:
    """The values of a column [N, ...] in the types that networks compute with; what has such a type is not copied.

    Float64 becomes Float32 and Int64 becomes Int32. Raises OutOfRange for a number that does not fit, with its column
    and row; ConfigError for text, objects and other types that tensors do not have, and when memory is not enough.
    """
    to = target_type(column, values)
    if to == values.dtype:
        return values
    require_memory(values.size * to.itemsize, column=column, values=f"{dt.of(to)}{list(values.shape)}")
    result = np.empty(values.shape, to)
    step = max(1, BYTES * len(values) // max(1, values.nbytes))
    for start in range(0, len(values), step):
        result[start : start + step] = converted(column, values[start : start + step], to, start)
    return result


def as_value(made: object) -> np.ndarray:
    """An array; text is bytes in UTF-8, as MindSpore's tensors have it.

    >>> as_value("two words").item()
    b'two words'
    """
    array = np.asarray(made)
    return np.char.encode(array, "utf-8") if array.dtype.kind == "U" else array


def target_type(column: str, values: np.ndarray) -> np.dtype:
    """The type that these values get. Raises ConfigError, with the name of the column, for one that tensors lack."""
    if values.dtype.char in CHARACTERS:
        return NARROW.get((values.dtype.kind, values.dtype.itemsize), values.dtype.newbyteorder("="))
    found = f"{values.dtype}, such as {values.flat[0]!r:.60}" if values.size else str(values.dtype)
    rows = {"column": column, "found": found, "allowed": ", ".join(kind.name for kind in dt.ALL)}
    raise ConfigError("a column has values that are not numbers", **rows, repair="text as numbers of classes or tokens")


def converted(column: str, values: np.ndarray, to: np.dtype, first: int) -> np.ndarray:
    """Rows of a column, the first of which has number `first`, in another type. Raises OutOfRange for a number that
    does not fit."""
    with np.errstate(over="ignore"):
        result = values.astype(to)
    wrong = np.isinf(result) & np.isfinite(values) if to.kind == "f" else result != values
    if wrong.any():
        place = np.unravel_index(int(wrong.argmax()), values.shape)
        limits = np.finfo(to) if to.kind == "f" else np.iinfo(to)
        rows = {"column": column, "row": first + int(place[0]), "value": values[place]}
        allowed = f"{limits.min} to {limits.max}, the numbers of {dt.of(to)}"
        raise OutOfRange("a number does not fit its element type", **rows, allowed=allowed)
    return result


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
