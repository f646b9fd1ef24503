"""The order of a dataset, apart from its values: which source rows come when, as numbers.

Every node answers `visits(epoch)` (row and pass in one number: `runner/dataset/visits.py`) from its arguments, the
run's seed and the epoch alone, so any position of any epoch can be visited at any time: that is all that an exact
resume, an index table on the device or a change of the number of workers needs. A node counts as its epochs the passes
over itself; `Repeated` gives its input several per own epoch.

Source: the semantics of shuffle, repeat and batch in `mindspore.dataset` r1.2.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from runner.errors import ConfigError
from runner.host import seed

NO_VISIT = -1  # fills the places that a short last batch leaves empty


class Order(ABC):
    """`count` items per epoch: single rows before batching, whole batches after it."""

    count: int
    shuffles: int  # how many shuffles lie in this order; numbers the next one
    repeats: int  # passes over the source in one epoch
    batch_size: int | None  # None before batching

    @abstractmethod
    def visits(self, epoch: int) -> np.ndarray:
        """Visits of an epoch, int64: [count], or [count, batch] where NO_VISIT fills a short last batch."""


class DerivedOrder(Order):
    """A change of another order; what it does not change it takes from there."""

    def __init__(self, inner: Order) -> None:
        self.inner = inner
        self.count = inner.count
        self.shuffles = inner.shuffles
        self.repeats = inner.repeats
        self.batch_size = inner.batch_size


@dataclass(frozen=True)
class Straight(Order):
    """The rows of the source as they lie there."""

    count: int
    shuffles: int = 0
    repeats: int = 1
    batch_size: int | None = None

    def visits(self, epoch: int) -> np.ndarray:
        """0, 1, 2, ... in the first epoch, and on from there."""
        return np.arange(epoch * self.count, (epoch + 1) * self.count, dtype=np.int64)


class Shuffled(DerivedOrder):
    """Items leave through a buffer of `buffer_size`, from a place drawn at random."""

    def __init__(self, inner: Order, buffer_size: int) -> None:
        super().__init__(inner)
        self.buffer_size = buffer_size
        self.number = inner.shuffles
        self.shuffles = inner.shuffles + 1

    def visits(self, epoch: int) -> np.ndarray:
        """The items of `inner`, each once."""
        generator = seed.generator("shuffle", self.number, epoch)
        return self.inner.visits(epoch).take(shuffled(self.count, self.buffer_size, generator), axis=0)


class Sharded(DerivedOrder):
    """Every `num_shards`-th item, beginning with item `shard_id`: the shards of one order are disjoint and cover it."""

    def __init__(self, inner: Order, num_shards: int, shard_id: int) -> None:
        super().__init__(inner)
        self.num_shards, self.shard_id = num_shards, shard_id
        self.count = len(range(shard_id, inner.count, num_shards))

    def visits(self, epoch: int) -> np.ndarray:
        """This shard's items."""
        return self.inner.visits(epoch)[self.shard_id :: self.num_shards]


class Repeated(DerivedOrder):
    """One epoch is `times` passes, each in an order of its own."""

    def __init__(self, inner: Order, times: int) -> None:
        super().__init__(inner)
        self.times = times
        self.count = inner.count * times
        self.repeats = inner.repeats * times

    def visits(self, epoch: int) -> np.ndarray:
        """The passes one after the other."""
        return np.concatenate([self.inner.visits(epoch * self.times + k) for k in range(self.times)])


class Batched(DerivedOrder):
    """Groups of `size` rows; what is left at the end is dropped, or is a short batch."""

    def __init__(self, inner: Order, size: int, drop_remainder: bool) -> None:
        super().__init__(inner)
        self.batch_size = size
        self.count = inner.count // size if drop_remainder else -(-inner.count // size)

    def visits(self, epoch: int) -> np.ndarray:
        """[count, size]."""
        size = self.batch_size or 1
        grouped = np.full(self.count * size, NO_VISIT, dtype=np.int64)
        visits = self.inner.visits(epoch)[: grouped.size]
        grouped[: visits.size] = visits
        return grouped.reshape(self.count, size)


class Divided(DerivedOrder):
    """One of several equal parts of every batch: `parts` ranks that take one each have the samples of the whole order.

    Raises ConfigError when a batch, or a short one at the end, cannot be divided.
    """

    def __init__(self, inner: Order, parts: int, part: int) -> None:
        super().__init__(inner)
        self.parts, self.part = parts, part
        for rows in sorted({int(n) for n in (inner.visits(0) != NO_VISIT).sum(axis=1)}, reverse=True):
            if rows % parts:
                short = None if rows == inner.batch_size else "this is a short batch at the end: drop_remainder=True"
                raise ConfigError("a batch does not divide", batch_size=rows, ranks=parts, hint=short)
        self.batch_size = (inner.batch_size or 1) // parts

    def visits(self, epoch: int) -> np.ndarray:
        """[count, size of the part]."""
        whole = self.inner.visits(epoch)
        size = self.batch_size or 1
        mine: np.ndarray = whole[:, self.part * size : (self.part + 1) * size].copy()
        for k in np.flatnonzero(whole[:, -1] == NO_VISIT):
            share = int((whole[k] != NO_VISIT).sum()) // self.parts
            mine[k] = NO_VISIT
            mine[k, :share] = whole[k, self.part * share : (self.part + 1) * share]
        return mine


def shuffled(count: int, buffer_size: int, generator: np.random.Generator) -> np.ndarray:
    """The order in which items 0, 1, ..., count - 1 leave a shuffle buffer, int64 [count].

    The buffer is filled with the first items; then, for each item that comes, a place is drawn whose item leaves and
    which the new item takes; in the end the rest leaves in random order. All steps are computed at once: what leaves a
    place is what came to it last, so sorting the steps by place puts each item beside the one that pushes it out.
    """
    if buffer_size >= count:
        return generator.permutation(count)
    places = generator.integers(buffer_size, size=count - buffer_size)
    steps = np.argsort(places, kind="stable")  # by place, and in time within one place
    places = places[steps]
    opens = np.append(True, places[1:] != places[:-1])  # the first draw of a place pushes out the item it began with
    came_before = np.append(0, steps[:-1]) + buffer_size
    order = np.empty(count, dtype=np.int64)
    order[steps] = np.where(opens, places, came_before)
    closes = np.append(opens[1:], True)
    rest = np.arange(buffer_size)
    rest[places[closes]] = steps[closes] + buffer_size
    order[count - buffer_size :] = generator.permutation(rest)
    return order
