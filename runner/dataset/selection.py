"""Arguments that all datasets have: which rows are used, in which order, and by how many threads."""

from collections.abc import Mapping

import numpy as np

from runner.dataset.column import Column
from runner.dataset.order import Order, Sharded, Shuffled, SourceOrder
from runner.dataset.prefetch import worker_count
from runner.errors import ConfigError
from runner.validation.arguments import flag, whole_number


class RowSelection:
    """The checked arguments; created before any data is read.

    Raises ConfigError for values out of range, and for one of the shard arguments alone.
    """

    def __init__(
        self,
        num_samples: int | None,
        num_parallel_workers: int | None,
        shuffle: bool | None,
        num_shards: int | None,
        shard_id: int | None,
    ) -> None:
        if (num_shards is None) != (shard_id is None):
            rows = {"value": f"num_shards={num_shards}, shard_id={shard_id}", "allowed": "both or none"}
            raise ConfigError("one of num_shards and shard_id is missing", argument="shard_id", **rows)
        flag({}, shuffle=shuffle is not None and shuffle)
        self.shuffle = bool(shuffle)
        self.num_shards = 1 if num_shards is None else whole_number("num_shards", num_shards, 1)
        self.num_samples = None if num_samples is None else whole_number("num_samples", num_samples, 1)
        self.workers = worker_count(num_parallel_workers)
        self.shard_id = 0 if shard_id is None else whole_number("shard_id", shard_id, 0, self.num_shards - 1)

    def apply(self, data: Mapping[str, np.ndarray]) -> tuple[list[Column], Order, int | None]:
        """The arguments of `Dataset` for these columns. Raises ConfigError when the shard would have no rows."""
        columns = [Column(name, values[: self.num_samples]) for name, values in data.items()]
        order: Order = SourceOrder(rows := len(columns[0].source))
        return columns, self.shard(Shuffled(order, rows) if self.shuffle else order), self.workers

    def shard(self, order: Order) -> Order:
        """The shard of an order of rows. Raises ConfigError when it would have no rows."""
        if self.num_shards > order.count:
            rows = {"value": self.num_shards, "allowed": f"1 to {order.count}"}
            raise ConfigError("more shards than rows", argument="num_shards", **rows)
        return order if self.num_shards == 1 else Sharded(order, self.num_shards, self.shard_id)
