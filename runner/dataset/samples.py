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
from runner.dataset.element_types import TEXT, RowSource, as_value, converted, target_type
from runner.dataset.visits import Visits
from runner.errors import ConfigError
from runner.host import seed
from runner.types import TensorType

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
