"""Arguments that all datasets have: which rows are used, in which order, and by how many threads."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from runner.dataset.column import Column
from runner.dataset.order import Order, Sharded, Shuffled, SourceOrder
from runner.dataset.prefetch import worker_count
from runner.errors import ConfigError
from runner.validation.arguments import flag, whole_number


@dataclass(frozen=True)
class RowSelection:
    """The checked arguments; created before any data is read."""

    num_samples: int | None
    workers: int | None
    shuffle: bool
    num_shards: int
    shard_id: int

    @classmethod
    def of(
        cls,
        num_samples: int | None,
        num_parallel_workers: int | None,
        shuffle: bool | None,
        num_shards: int | None,
        shard_id: int | None,
    ) -> "RowSelection":
        """Check the arguments. Raises ConfigError for values out of range, and for one of the shard arguments alone."""
        if (num_shards is None) != (shard_id is None):
            given = f"num_shards={num_shards}, shard_id={shard_id}"
            raise ConfigError(
                "one of num_shards and shard_id is missing",
                argument="shard_id",
                value=given,
                allowed="both or none",
            )
        flag({}, shuffle=shuffle is not None and shuffle)
        shards = 1 if num_shards is None else whole_number("num_shards", num_shards, 1)
        return cls(
            None if num_samples is None else whole_number("num_samples", num_samples, 1),
            worker_count(num_parallel_workers),
            bool(shuffle),
            shards,
            0 if shard_id is None else whole_number("shard_id", shard_id, 0, shards - 1),
        )

    def apply(self, data: Mapping[str, np.ndarray]) -> tuple[list[Column], Order, int | None]:
        """The arguments of `Dataset` for these columns. Raises ConfigError when the shard would have no rows."""
        columns = [Column(name, values[: self.num_samples]) for name, values in data.items()]
        return columns, self._order(len(columns[0].source)), self.workers

    def _order(self, rows: int) -> Order:
        if self.num_shards > rows:
            raise ConfigError(
                "more shards than rows", argument="num_shards", value=self.num_shards, allowed=f"1 to {rows}"
            )
        order: Order = SourceOrder(rows)
        if self.shuffle:
            order = Shuffled(order, rows)
        return order if self.num_shards == 1 else Sharded(order, self.num_shards, self.shard_id)
