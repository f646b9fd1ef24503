"""Which rows of a source a dataset has, in which order: samplers, and the arguments that all datasets have.

`RowSelection` checks `num_samples`, `shuffle`, `num_shards`, `sampler` and the number of threads, and makes the order.
Source: `mindspore.dataset` r1.2.

A sampler determines the rows of a pass from the seed of the pipeline and the number of the pass alone, so a resumed run
continues with the same rows. A child sampler (`add_child`) selects first: the rows of its parent are positions in its.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any

import numpy as np

from runner.dataset.column import Column, exact_column
from runner.dataset.order import DerivedOrder, Order, Part, Sharded, Shuffled, SourceOrder
from runner.dataset.prefetch import worker_count
from runner.dataset.samples import PassTable
from runner.dataset.visits import Visits
from runner.errors import ConfigError, known_names
from runner.host import seed
from runner.validation.arguments import as_list, finite_number, flag, whole_number
from runner.validation.rules import KeywordNames

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
            raise ConfigError("MindSpore does not support num_class", argument="num_class", value=num_class)
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


class RowSelection:
    """The checked arguments of a dataset; created before any data is read.

    `num_samples` limits the rows of each shard, and of a sampler; the attribute is the number of rows to read for it.
    Raises ConfigError for values out of range, and for one of the shard arguments alone.
    """

    def __init__(
        self,
        num_samples: int | None,
        num_parallel_workers: int | None,
        shuffle: bool | None,
        num_shards: int | None,
        shard_id: int | None,
        sampler: Any = None,
    ) -> None:
        if sampler is not None and (shuffle is not None or num_shards is not None):
            rows = {"value": type(sampler).__name__, "allowed": "a sampler, or shuffle and num_shards"}
            raise ConfigError("a sampler determines order and shard itself", argument="sampler", **rows)
        self.sampler = [sampler] if type(sampler) is int else sampler  # the number of one row
        if (num_shards is None) != (shard_id is None):
            rows = {"value": f"num_shards={num_shards}, shard_id={shard_id}", "allowed": "both or none"}
            raise ConfigError("one of num_shards and shard_id is missing", argument="shard_id", **rows)
        flag({}, shuffle=shuffle is not None and shuffle)
        self.shuffle = bool(shuffle)
        self.num_shards = 1 if num_shards is None else whole_number("num_shards", num_shards, 1)
        self.limit = None if num_samples is None else whole_number("num_samples", num_samples, 1)
        self.num_samples = None if self.limit is None or sampler is not None else self.limit * self.num_shards
        self.workers = worker_count(num_parallel_workers)
        self.shard_id = 0 if shard_id is None else whole_number("shard_id", shard_id, 0, self.num_shards - 1)

    def apply(self, data: Mapping[str, np.ndarray | Column]) -> tuple[list[Column], Order, int | None]:
        """The arguments of `Dataset` for these columns. Raises ConfigError when the shard would have no rows."""
        columns = [self._column(name, values) for name, values in data.items()]
        order: Order = SourceOrder(rows := len(columns[0].source))
        if self.sampler is not None:
            known = dict(zip(data, columns, strict=True))
            order = Sampled(order, self.sampler, partial(_all_rows, known))
            return columns, order if self.limit is None else Part(order, 0, self.limit), self.workers
        return columns, self.shard(Shuffled(order, rows) if self.shuffle else order), self.workers

    def _column(self, name: str, values: np.ndarray | Column) -> Column:
        return values if isinstance(values, Column) else exact_column(name, values[: self.num_samples])

    def shard(self, order: Order) -> Order:
        """The shard of an order of rows. Raises ConfigError when it would have no rows."""
        if self.num_shards > order.count:
            rows = {"value": self.num_shards, "allowed": f"1 to {order.count}"}
            raise ConfigError("more shards than rows", argument="num_shards", **rows)
        return order if self.num_shards == 1 else Sharded(order, self.num_shards, self.shard_id)


def _all_rows(columns: Mapping[str, Column], name: str) -> np.ndarray:
    """All rows of a column, for a sampler that needs them. Raises ConfigError for an unknown column."""
    if name not in columns:
        raise ConfigError("no such column", argument="class_column", value=name, **known_names(name, list(columns)))
    source = columns[name].source
    return columns[name].fetch(Visits.of(np.arange(len(source)), len(source)))
