"""`Samples`: rows that are computed one by one when they are used, of any shapes, and the columns made of them.

Like every row of a pipeline, a sample is determined by its visit (`visits.py`) alone. Where the order of samples
depends on their values, such as after `filter`, it is computed once for each pass, in a `PassTable`. What operations
compute in this way is in `operations.py`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from threading import RLock
from typing import Any, Generic, TypeVar

import numpy as np

from runner import dtype as dt
from runner.dataset.visits import Visits
from runner.errors import ConfigError
from runner.host import seed
from runner.host.machine import require_memory
from runner.types import TensorType

# The element types that arrays of users have in a dataset, such as Float32 for Float64, and `RowSource`.
#
# A source of a column is an array in memory (or a `numpy.memmap`), or a `RowSource`, whose values are read when they
# are used, such as images decoded from their files. Both have `take`, `nbytes` and a length.

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


# Samples, and columns made of them.

T = TypeVar("T")
Sample = tuple[np.ndarray, ...]  # a value for each column
Shared = dict["Samples", list[Sample]]  # what the columns of one batch have computed

PASSES_KEPT = 4  # of a `PassTable`: threads that prepare batches ahead may be in the next pass already


class Samples(ABC):
    """`count` samples in every pass, with a value for each of `names`."""

    depth = 0  # of maps below: their random numbers differ

    def __init__(self, names: Sequence[str], count: int) -> None:
        self.names, self.count = tuple(names), count

    def __repr__(self) -> str:
        return type(self).__name__

    @abstractmethod
    def at(self, visit: int) -> Sample:
        """The values of one visit. Thread-safe."""

    @cached_property
    def first(self) -> Sample:
        """The first sample of the first pass, whose types stand for all."""
        return self.at(0)


class ListedSamples(Samples):
    """Samples in memory."""

    def __init__(self, names: Sequence[str], samples: Sequence[Sample]) -> None:
        super().__init__(names, len(samples))
        self._samples = samples

    def at(self, visit: int) -> Sample:
        """Copies of the values, since functions of the user receive them."""
        return tuple(value.copy() for value in self._samples[visit % self.count])


class SampleColumn(RowSource):
    """One column of samples. Its `type` is that of the first sample, as networks compute with it."""

    def __init__(self, samples: Samples, index: int) -> None:
        self.samples, self.index, self.name = samples, index, samples.names[index]

    def __len__(self) -> int:
        return self.samples.count

    @cached_property
    def type(self) -> TensorType:  # type: ignore[override]
        """Raises ConfigError for values that are not numbers."""
        value = self.first
        return TensorType(dt.of(target_type(self.name, value)), (len(self), *value.shape))

    @property
    def first(self) -> np.ndarray:
        """The value of the first sample."""
        return self.samples.first[self.index]

    def values(self, visits: Visits, shared: Shared) -> list[np.ndarray]:
        """The values of these visits, in the types that they were computed in."""
        if self.samples not in shared:
            numbers = visits.passes * self.samples.count + visits.rows
            shared[self.samples] = [self.samples.at(int(number)) for number in numbers]
        return [sample[self.index] for sample in shared[self.samples]]

    def fetch(self, visits: Visits, shared: Shared) -> np.ndarray:
        """The values of these visits as networks compute with them, [B, ...]."""
        return for_network(self.name, self.batch(visits, shared))

    def batch(self, visits: Visits, shared: Shared) -> np.ndarray:
        """The values of these visits as one array [B, ...]. Raises ConfigError for one unlike the first sample."""
        return stacked(self.name, self.values(visits, shared), visits.rows, self.first)

    def take(self, rows: np.ndarray, axis: int = 0) -> np.ndarray:
        return self.fetch(Visits.of(rows, len(self)), {})

    def contents(self) -> Iterator[bytes]:
        for row in range(len(self)):
            yield self.samples.at(row)[self.index].tobytes()


class PassTable(Generic[T]):
    """A value for each pass and seed, computed when it is first used."""

    def __init__(self, compute: Callable[[int], T]) -> None:
        self._compute, self._lock = compute, RLock()
        self._known: dict[tuple[int, int], T] = {}

    def __getitem__(self, number: int) -> T:
        with self._lock:
            key = seed.get_data_seed(), number
            if key not in self._known:
                while len(self._known) >= PASSES_KEPT:
                    del self._known[min(self._known, key=lambda known: (known[0] == key[0], known))]
                self._known[key] = self._compute(number)
            return self._known[key]


def for_network(name: str, values: np.ndarray) -> np.ndarray:
    """The values [N, ...] of a column in the types that networks compute with. Raises ConfigError as `narrowed`."""
    to = target_type(name, values)
    return values if to == values.dtype else converted(name, values, to, 0)


def stacked(
    name: str, values: Sequence[np.ndarray], numbers: Sequence[int] | np.ndarray | None = None, usual: Any = None
) -> np.ndarray:
    """The samples of a batch as one array [B, ...]. Raises ConfigError when shapes or element types differ.

    For the error, `numbers` are those of the samples, by default their places in the batch, and `usual` is what most of
    them are like, by default the first of the batch.
    """
    if not all(_fit(value, values[0]) for value in values):
        first = values[0] if usual is None else usual
        places = range(len(values)) if numbers is None else numbers
        number, value = next((n, x) for n, x in zip(places, values, strict=True) if not _fit(x, first))
        found, expected = (f"{array.dtype}{list(array.shape)}" for array in (value, first))
        repair = "samples of one shape and type: crop or convert them, or batch(..., pad_info={...})"
        rows = {"column": name, "sample": number, "found": found, "first_sample": expected}
        raise ConfigError("the samples of a column differ in shape or element type", **rows, repair=repair)
    return np.stack(values)


def _fit(value: np.ndarray, other: np.ndarray) -> bool:
    are_texts = value.dtype.kind in TEXT and other.dtype.kind in TEXT
    return value.shape == other.shape and (value.dtype == other.dtype or are_texts)


def as_sample(names: Sequence[str], made: Any, where: str) -> Sample:
    """What a function returned for one sample, as an array for each name. Raises ConfigError for another number."""
    values = made if isinstance(made, tuple) else (made,)
    if len(values) != len(names):
        rows = {"found": f"{len(values)} values", "allowed": f"{len(names)}: {', '.join(names)}", "function": where}
        repair = "output_columns with a name for each value that the function returns"
        raise ConfigError("a function returned another number of columns", **rows, repair=repair)
    return tuple(as_value(value) for value in values)
