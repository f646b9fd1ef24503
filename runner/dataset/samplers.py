"""Samplers: which rows of a dataset are used, in which order. Source: `mindspore.dataset` r1.2.

A sampler determines the rows of a pass from the seed of the pipeline and the number of the pass alone, so a resumed run
continues with the same rows. A child sampler (`add_child`) selects first: the rows of its parent are positions in its.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any, TypeVar

import numpy as np

from runner.dataset.order import GOLDEN, LAST_SHIFT, ROUNDS, DerivedOrder, Order, Visits
from runner.dataset.samples import PassTable
from runner.errors import ConfigError
from runner.host import seed
from runner.validation.arguments import as_list, finite_number, flag, whole_number
from runner.validation.keywords import KeywordNames

ColumnValues = Callable[[str], np.ndarray]  # all rows of a column


class Sampler(KeywordNames):
    """Base class of samplers of your own: `__iter__` returns row numbers, and knows `dataset_size` and `num_samples`.

    It is called once for every pass. Numbers that it draws from a generator of its own are not those of an interrupted
    run after a resume; derive them from a seed and a count of calls where this matters.
    """

    def __init__(self, num_samples: int | None = None) -> None:
        self.num_samples = None if not num_samples else whole_number("num_samples", num_samples, 1)
        self.dataset_size = 0
        self.child_sampler: Sampler | None = None

    def __iter__(self) -> Iterator[int]:
        raise NotImplementedError(f"{type(self).__name__} does not define __iter__")

    def add_child(self, sampler: "Sampler | None") -> None:
        """Let another sampler select the rows first. Raises ConfigError when there is one already."""
        if self.child_sampler is not None and sampler is not None:
            raise ConfigError("a sampler has one child", argument="sampler", value=type(sampler).__name__)
        if sampler is not None and not isinstance(sampler, Sampler):
            raise ConfigError("not a sampler", argument="sampler", value=sampler, allowed="a subclass of Sampler")
        self.child_sampler = sampler

    def get_child(self) -> "Sampler | None":
        """The sampler that selects first."""
        return self.child_sampler

    def get_num_samples(self) -> int | None:
        """At most so many rows in a pass; None: no limit."""
        return self.num_samples

    def rows(self, count: int, generator: np.random.Generator, values: ColumnValues) -> np.ndarray:
        """The rows of a pass over `count` rows, int64. Raises ConfigError for numbers out of range."""
        inner = np.arange(count) if self.child_sampler is None else self.child_sampler.rows(count, generator, values)
        chosen = np.asarray(self.choose(len(inner), generator, values), np.int64)[: self.num_samples]
        wrong = (chosen < 0) | (chosen >= len(inner))
        if wrong.any():
            rows = {"sampler": type(self).__name__, "row": chosen[wrong][0], "allowed": f"0 to {len(inner) - 1}"}
            raise ConfigError("a sampler chose a row that the dataset does not have", **rows)
        return inner[chosen]

    def choose(self, count: int, generator: np.random.Generator, values: ColumnValues) -> Any:
        """Numbers of rows, below `count`: those of `__iter__`."""
        self.dataset_size = count
        limit = self.num_samples
        return [int(row) for _, row in zip(range(count if limit is None else limit), self, strict=False)]


class SequentialSampler(Sampler):
    """Rows in their order, from `start_index` on, at most `num_samples`."""

    def __init__(self, start_index: int | None = None, num_samples: int | None = None) -> None:
        super().__init__(num_samples)
        self.start_index = 0 if start_index is None else whole_number("start_index", start_index, 0)

    def choose(self, count: int, generator: np.random.Generator, values: ColumnValues) -> np.ndarray:
        return np.arange(self.start_index, count)


class RandomSampler(Sampler):
    """Rows drawn at random, each once, or with `replacement`."""

    def __init__(self, replacement: bool = False, num_samples: int | None = None) -> None:
        super().__init__(num_samples)
        flag({}, replacement=replacement)
        self.replacement = replacement

    def choose(self, count: int, generator: np.random.Generator, values: ColumnValues) -> np.ndarray:
        if self.replacement:
            return generator.integers(count, size=self.num_samples or count)
        return generator.permutation(count)


class SubsetSampler(Sampler):
    """The rows `indices`, in this order."""

    def __init__(self, indices: Sequence[int], num_samples: int | None = None) -> None:
        super().__init__(num_samples)
        self.indices = [whole_number("indices", index, 0) for index in as_list(indices)]

    def choose(self, count: int, generator: np.random.Generator, values: ColumnValues) -> np.ndarray:
        return np.array(self.indices, np.int64)


class SubsetRandomSampler(SubsetSampler):
    """The rows `indices`, in random order."""

    def choose(self, count: int, generator: np.random.Generator, values: ColumnValues) -> np.ndarray:
        """These rows, each once."""
        return generator.permutation(np.array(self.indices, np.int64))


class WeightedRandomSampler(Sampler):
    """Rows drawn at random with the probabilities `weights`, which need not have the sum 1; one for each row."""

    def __init__(self, weights: Sequence[float], num_samples: int | None = None, replacement: bool = True) -> None:
        super().__init__(num_samples)
        flag({}, replacement=replacement)
        self.weights = np.array([finite_number("weights", weight) for weight in as_list(weights)])
        self.replacement = replacement
        if self.weights.size == 0 or (self.weights < 0).any() or not self.weights.any():
            raise ConfigError("not probabilities", argument="weights", value=weights, allowed="numbers of at least 0")

    def choose(self, count: int, generator: np.random.Generator, values: ColumnValues) -> np.ndarray:
        """Raises ConfigError for another number of weights than rows, and for too few rows without replacement."""
        if len(self.weights) > count:
            raise ConfigError("more weights than rows", argument="weights", value=len(self.weights), rows=count)
        number = self.num_samples or len(self.weights)
        if not self.replacement and number > np.count_nonzero(self.weights):
            allowed = f"1 to {np.count_nonzero(self.weights)}, the rows with a weight above 0"
            raise ConfigError("too few rows without replacement", argument="num_samples", value=number, allowed=allowed)
        return generator.choice(len(self.weights), number, self.replacement, self.weights / self.weights.sum())


class DistributedSampler(Sampler):
    """The rows of one of `num_shards` shards: every `num_shards`-th of the rows, in an order that all shards share.

    All shards have the same number of rows: at the end the first rows occur again. `offset` is the shard of the first
    row; when it is given, every row occurs once.
    """

    def __init__(
        self, num_shards: int, shard_id: int, shuffle: bool = True, num_samples: int | None = None, offset: int = -1
    ) -> None:
        super().__init__(num_samples)
        flag({}, shuffle=shuffle)
        self.num_shards = whole_number("num_shards", num_shards, 1)
        self.shard_id = whole_number("shard_id", shard_id, 0, self.num_shards - 1)
        self.shuffle, self.offset = shuffle, whole_number("offset", offset, -1, self.num_shards)

    def choose(self, count: int, generator: np.random.Generator, values: ColumnValues) -> np.ndarray:
        order = generator.permutation(count) if self.shuffle else np.arange(count)
        if self.offset >= 0:
            first = (self.shard_id - self.offset) % self.num_shards
            return np.asarray(order[first :: self.num_shards])
        places = np.arange(-(-count // self.num_shards)) * self.num_shards + self.shard_id
        return np.asarray(order[places % count])


class PKSampler(Sampler):
    """`num_val` rows of each class of `class_column`, drawn with replacement; `shuffle` mixes the order of classes."""

    def __init__(
        self,
        num_val: int,
        num_class: int | None = None,
        shuffle: bool = False,
        class_column: str = "label",
        num_samples: int | None = None,
    ) -> None:
        super().__init__(num_samples)
        flag({}, shuffle=shuffle)
        if num_class is not None:
            raise ConfigError("the reference does not support num_class", argument="num_class", value=num_class)
        self.num_val, self.shuffle = whole_number("num_val", num_val, 1), shuffle
        self.class_column = class_column

    def choose(self, count: int, generator: np.random.Generator, values: ColumnValues) -> np.ndarray:
        if self.child_sampler is not None:
            raise ConfigError("PKSampler selects from all rows", argument="sampler", repair="no child sampler")
        labels = values(self.class_column).reshape(-1)
        classes = np.unique(labels)
        classes = generator.permutation(classes) if self.shuffle else classes
        drawn = [generator.choice(np.flatnonzero(labels == label), self.num_val) for label in classes]
        return np.concatenate(drawn)


class Sampled(DerivedOrder):
    """The items of an order that a sampler selects, in its order."""

    def __init__(self, inner: Order, sampler: Any, values: ColumnValues) -> None:
        super().__init__(inner)
        self.sampler = as_sampler(sampler)
        self._values = values
        self.number = inner.shuffles
        self.shuffles = inner.shuffles + 1
        self._rows = PassTable(self._choose)
        self.count = len(self._rows[0])
        if self.count == 0:
            raise ConfigError("a sampler that selects no row", argument="sampler", value=type(self.sampler).__name__)

    def _choose(self, epoch: int) -> np.ndarray:
        generator = seed.data_generator("sampler", self.number, epoch)
        return self.sampler.rows(self.inner.count, generator, self._values)

    def visits(self, epoch: int) -> np.ndarray:
        """Raises ConfigError when a pass has another number of rows than the first."""
        rows = self._rows[epoch]
        if len(rows) != self.count:
            found = {"sampler": type(self.sampler).__name__, "pass": epoch + 1, "found": len(rows)}
            raise ConfigError("the number of rows differs between passes", **found, expected=self.count)
        return self.inner.visits(epoch).take(rows, axis=0)


def as_sampler(given: Any) -> Sampler:
    """A sampler, or an iterable of row numbers as one. Raises ConfigError for anything else."""
    if isinstance(given, Sampler):
        return given
    if isinstance(given, str | bytes) or not hasattr(given, "__iter__"):
        rows = {"argument": "sampler", "value": given, "allowed": "a Sampler, or numbers of rows"}
        raise ConfigError("not a sampler", **rows)
    if isinstance(given, list | tuple | range | np.ndarray):
        return SubsetSampler(list(given))
    return IterableSampler(given)


def with_child(given: Any, child: Sampler | None) -> Sampler:
    """The sampler, with this child if it has none."""
    sampler = as_sampler(given)
    if child is not None and sampler.child_sampler is None:
        sampler.add_child(child)
    return sampler


def each_row_once(given: Any) -> Sampler:
    """The sampler; a DistributedSampler that would repeat rows as one that does not."""
    sampler = as_sampler(given)
    if isinstance(sampler, DistributedSampler) and sampler.offset < 0:
        sampler = copy(sampler)
        sampler.offset = 0
    return sampler


class IterableSampler(Sampler):
    """An object whose `__iter__` returns row numbers, such as a class of the user without a base class."""

    def __init__(self, rows: Any) -> None:
        super().__init__()
        self._rows = rows

    def choose(self, count: int, generator: np.random.Generator, values: ColumnValues) -> list[int]:
        return [int(row) for row in self._rows]


# The random numbers of one sample: as many as a transform needs, from one key.
#
# A key is derived from seed, position, pass and row (`runner/dataset/order.py`), so a sample's numbers depend neither
# on threads nor on batches, nor on where a run was resumed. They are those of SplitMix64 with the key as its seed.

T = TypeVar("T")

MASK = (1 << 64) - 1
PURPOSE = 0x44524157  # separates the numbers of direct calls from others that are derived from the seed
_GOLDEN, _LAST_SHIFT = int(GOLDEN), int(LAST_SHIFT)
_ROUNDS = [(int(shift), int(multiplier)) for shift, multiplier in ROUNDS]
_thread = threading.local()


class Draws:
    """A sequence of random numbers; not thread-safe, as it belongs to one sample."""

    def __init__(self, key: int) -> None:
        self._state = key & MASK

    @classmethod
    def of_samples(cls, visits: Visits, position: int) -> list["Draws"]:
        """One sequence for each of these visits, for the transform at this position."""
        return [cls(key) for key in visits.random(position, 1)[0].tolist()]

    def number(self) -> int:
        """An integer of 64 random bits."""
        self._state = mixed = (self._state + _GOLDEN) & MASK
        for shift, multiplier in _ROUNDS:
            mixed = ((mixed ^ (mixed >> shift)) * multiplier) & MASK
        return mixed ^ (mixed >> _LAST_SHIFT)

    def uniform(self, low: float = 0.0, high: float = 1.0) -> float:
        """A float from `low` to `high`, with 53 random bits."""
        return low + (high - low) * ((self.number() >> 11) * 2.0**-53)

    def integer(self, low: int, high: int) -> int:
        """An integer from `low` to `high`, both included."""
        return low + ((self.number() * (high - low + 1)) >> 64)

    def chance(self, probability: float) -> bool:
        """True with this probability; always for 1, never for 0."""
        return self.uniform() < probability

    def choice(self, values: Sequence[T]) -> T:
        """One of the values, each equally likely."""
        return values[self.integer(0, len(values) - 1)]

    def order(self, values: Sequence[T]) -> list[T]:
        """The values in a random order, all orders equally likely."""
        mixed = list(values)
        for last in range(len(mixed) - 1, 0, -1):
            other = self.integer(0, last)
            mixed[last], mixed[other] = mixed[other], mixed[last]
        return mixed

    def generator(self) -> np.random.Generator:
        """A generator of numpy, for whole arrays and for other distributions."""
        return np.random.Generator(np.random.Philox(key=[self.number(), self.number()]))

    def visit(self) -> Visits:
        """One visit of its own, for transforms of batches."""
        return Visits(np.array([self.number() >> 1], np.int64), np.zeros(1, np.int64))


@contextmanager
def draws_for_calls(draws: Draws) -> Iterator[None]:
    """Random transforms that are called directly inside of this context, in this thread, draw from `draws`.

    So a function of the user in a pipeline may call random transforms: their numbers are those of the sample.
    """
    before = getattr(_thread, "draws", None)
    _thread.draws = draws
    try:
        yield
    finally:
        _thread.draws = before


def draws_of_call() -> Draws:
    """The numbers for a transform that is called directly, on one sample.

    Those of the sample in a pipeline; elsewhere new ones for each call, which depend on the seed and on the number of
    such calls since it was set.
    """
    draws: Draws | None = getattr(_thread, "draws", None)
    if draws is not None:
        return draws
    words = np.random.SeedSequence([seed.get_data_seed(), PURPOSE, seed.next_call()])
    return Draws(int(words.generate_state(1, np.uint64)[0]))
