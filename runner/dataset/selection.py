"""Arguments that all datasets have: which rows are used, in which order, and by how many threads."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from runner.dataset.column import Column, WideRows
from runner.dataset.element_types import TEXT, OutOfRange, as_value, narrowed
from runner.dataset.order import Order, Part, Sharded, Shuffled, SourceOrder, Visits
from runner.dataset.prefetch import worker_count
from runner.dataset.samplers import Sampled
from runner.dataset.samples import ListedSamples, SampleColumn
from runner.errors import ConfigError, known_names
from runner.validation.arguments import flag, whole_number


class RowSelection:
    """The checked arguments; created before any data is read.

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


def exact_column(name: str, values: np.ndarray) -> Column:
    """A column of an array: networks compute with narrowed element types, scripts see those of the array.

    Unsigned class numbers of the reference's image datasets are such a type. Text, and numbers that networks cannot
    compute with, raise ConfigError where a network uses them. Raises ConfigError for other values.
    """
    if values.dtype.kind in TEXT:
        return listed_column(name, list(as_value(values)))
    try:
        for_networks = narrowed(name, values)
    except OutOfRange:
        return Column(name, WideRows(name, values), original=values)
    return Column(name, for_networks, original=None if for_networks is values else values)


def listed_column(name: str, values: Sequence[np.ndarray]) -> Column:
    """A column of arrays of any shapes, or of text."""
    return Column(name, SampleColumn(ListedSamples([name], [(np.asarray(value),) for value in values]), 0))


def labels_column(name: str, numbers: np.ndarray) -> Column:
    """Class numbers: Int32 for networks, UInt32 for scripts, as in the reference."""
    return Column(name, numbers.astype(np.int32), original=numbers.astype(np.uint32))


def _all_rows(columns: Mapping[str, Column], name: str) -> np.ndarray:
    """All rows of a column, for a sampler that needs them. Raises ConfigError for an unknown column."""
    if name not in columns:
        raise ConfigError("no such column", argument="class_column", value=name, **known_names(name, list(columns)))
    source = columns[name].source
    return columns[name].fetch(Visits.of(np.arange(len(source)), len(source)))
