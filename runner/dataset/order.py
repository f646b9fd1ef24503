"""The order in which source rows are visited, separate from their values.

Every node computes `visits(epoch)` (row and pass in one number: `runner/dataset/visits.py`) from its arguments, the
run's seed and the epoch alone, so any position of any epoch is accessible at any time: an exact resume, an index table
on the device and a change of the number of workers rely on this. An epoch of a node is one pass over it; `Repeated`
makes several passes over its input in each epoch.

Source: the semantics of shuffle, repeat and batch in `mindspore.dataset` r1.2.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np

from runner.errors import ConfigError
from runner.host import seed

NO_VISIT = -1  # padding of a short last batch


class Order(ABC):
    """`count` items per epoch: rows before batching, batches after it."""

    count: int
    shuffles = 0  # number of shuffles in this order, and so the index of the next one
    repeats = 1  # passes over the source in one epoch
    batch_size: int | None = None  # None before batching
    is_endless = False  # whether an iterator continues with the next epoch instead of ending
    item_rows: int | None = None  # of an item that is a whole batch already
    is_even = True  # whether all ranks have the same number of rows of every batch

    @abstractmethod
    def visits(self, epoch: int) -> np.ndarray:
        """Visits of an epoch, int64: [count], or [count, batch] with NO_VISIT as the padding of a short last batch."""


class DerivedOrder(Order):
    """An order derived from another one, whose attributes are the defaults."""

    def __init__(self, inner: Order) -> None:
        self.inner = inner
        self.count = inner.count
        self.shuffles = inner.shuffles
        self.repeats = inner.repeats
        self.batch_size = inner.batch_size
        self.is_endless = inner.is_endless
        self.item_rows = inner.item_rows


class SourceOrder(Order):
    """The rows in the order of the source; `like` is the order that determined these rows, if any."""

    def __init__(self, count: int, like: Order | None = None) -> None:
        self.count = count
        if like is not None:
            self.item_rows = like.batch_size or like.item_rows
            self.shuffles, self.repeats, self.is_endless = like.shuffles, like.repeats, like.is_endless

    def visits(self, epoch: int) -> np.ndarray:
        """0, 1, 2, ... in the first epoch, continued in later ones."""
        return np.arange(epoch * self.count, (epoch + 1) * self.count, dtype=np.int64)


class Shuffled(DerivedOrder):
    """Items drawn at random from a shuffle buffer of `buffer_size`, anew in every epoch unless `is_fixed`."""

    def __init__(self, inner: Order, buffer_size: int, is_fixed: bool = False) -> None:
        super().__init__(inner)
        self.buffer_size, self.is_fixed = buffer_size, is_fixed
        self.number = inner.shuffles
        self.shuffles = inner.shuffles + 1

    def visits(self, epoch: int) -> np.ndarray:
        """The items of `inner`, each once."""
        generator = seed.data_generator("shuffle", self.number, 0 if self.is_fixed else epoch)
        return self.inner.visits(epoch).take(shuffled(self.count, self.buffer_size, generator), axis=0)


class Sharded(DerivedOrder):
    """Every `num_shards`-th item, starting with item `shard_id`: the shards of an order are disjoint and cover it."""

    def __init__(self, inner: Order, num_shards: int, shard_id: int) -> None:
        super().__init__(inner)
        self.num_shards, self.shard_id = num_shards, shard_id
        self.count = len(range(shard_id, inner.count, num_shards))

    def visits(self, epoch: int) -> np.ndarray:
        return self.inner.visits(epoch)[self.shard_id :: self.num_shards]


class Part(DerivedOrder):
    """The items from number `start` up to `stop`, of every epoch. Raises ConfigError when there is none."""

    def __init__(self, inner: Order, start: int, stop: int) -> None:
        super().__init__(inner)
        self.start, self.stop = min(start, inner.count), min(stop, inner.count)
        self.count = max(0, self.stop - self.start)
        if self.count == 0:
            raise ConfigError("no items are left", items=inner.count, start=start, stop=stop)

    def visits(self, epoch: int) -> np.ndarray:
        return self.inner.visits(epoch)[self.start : self.stop]


class Endless(DerivedOrder):
    """The items of `inner`, of which iterators read one epoch after the other without an end."""

    is_endless = True

    def __init__(self, inner: Order) -> None:
        super().__init__(inner)
        self.is_endless = True

    def visits(self, epoch: int) -> np.ndarray:
        return self.inner.visits(epoch)


class Repeated(DerivedOrder):
    """`times` passes in each epoch, each with its own order."""

    def __init__(self, inner: Order, times: int) -> None:
        super().__init__(inner)
        self.times = times
        self.count = inner.count * times
        self.repeats = inner.repeats * times

    def visits(self, epoch: int) -> np.ndarray:
        return np.concatenate([self.inner.visits(epoch * self.times + k) for k in range(self.times)])


class Batched(DerivedOrder):
    """Groups of `size` rows; the remainder is dropped, or is a short batch."""

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


class VariedBatches(DerivedOrder):
    """Groups of as many rows as `size_of(epoch, batch)` returns, until no row is left; every epoch has as many groups.

    Raises ConfigError when an epoch has another number of groups than the first.
    """

    def __init__(self, inner: Order, size_of: Callable[[int, int], int], drop_remainder: bool) -> None:
        super().__init__(inner)
        self._size_of, self._drops = size_of, drop_remainder
        sizes = self._sizes(0)
        self.count, self.batch_size = len(sizes), max(sizes, default=0)

    def _sizes(self, epoch: int) -> list[int]:
        sizes: list[int] = []
        left = self.inner.count
        while left > 0 and not (left < (size := self._size_of(epoch, len(sizes))) and self._drops):
            sizes.append(min(size, left))
            left -= size
        return sizes

    def visits(self, epoch: int) -> np.ndarray:
        """[count, size of the largest group]."""
        sizes = self._sizes(epoch)
        if len(sizes) != self.count:
            raise ConfigError("the number of batches differs between epochs", epoch=epoch + 1, found=len(sizes))
        grouped = np.full((self.count, max(sizes)), NO_VISIT, dtype=np.int64)
        visits = self.inner.visits(epoch)
        for row, (end, size) in zip(grouped, zip(np.cumsum(sizes), sizes, strict=True), strict=True):
            row[:size] = visits[end - size : end]
        return grouped


class Divided(DerivedOrder):
    """One of `parts` parts of every batch, for the ranks of a data-parallel run: row i is dealt to part i mod `parts`.

    Their sizes differ by at most one row. `is_even`: whether all parts of every batch have the same size. Raises
    ConfigError when a batch, or a short one at the end, has fewer rows than there are parts.
    """

    def __init__(self, inner: Order, parts: int, part: int) -> None:
        super().__init__(inner)
        self.parts, self.part = parts, part
        sizes = {int(n) for n in (inner.visits(0) != NO_VISIT).sum(axis=1)}
        self.is_even = all(rows % parts == 0 for rows in sizes)
        if (rows := min(sizes)) < parts:
            short = "this is the short batch at the end: drop_remainder=True omits it"
            about = {"batch_size": rows, "ranks": parts, "allowed": f"{parts} and more"}
            hint = None if rows == inner.batch_size else short
            raise ConfigError("a batch has fewer rows than there are ranks", **about, hint=hint)
        self.batch_size = len(range(part, inner.batch_size or 1, parts))

    def visits(self, epoch: int) -> np.ndarray:
        """[count, size of the part]."""
        own: np.ndarray = self.inner.visits(epoch)[:, self.part :: self.parts].copy()
        return own


def shuffled(count: int, buffer_size: int, generator: np.random.Generator) -> np.ndarray:
    """The order in which items 0, 1, ..., count - 1 leave a shuffle buffer, int64 [count].

    The buffer is filled with the first items; then each further item replaces the item of a slot drawn at random, which
    leaves; finally the items of the buffer leave in random order. All steps are computed at once: the item that leaves
    a slot is the one that entered it last, so sorting the steps by slot puts each item next to its replacement.
    """
    if buffer_size >= count:
        return generator.permutation(count)
    slots = generator.integers(buffer_size, size=count - buffer_size)
    steps = np.argsort(slots, kind="stable")  # by slot, and in time within a slot
    slots = slots[steps]
    first = np.append(True, slots[1:] != slots[:-1])  # the first draw of a slot returns its initial item
    previous = np.append(0, steps[:-1]) + buffer_size
    order = np.empty(count, dtype=np.int64)
    order[steps] = np.where(first, slots, previous)
    last = np.append(first[1:], True)
    rest = np.arange(buffer_size)
    rest[slots[last]] = steps[last] + buffer_size
    order[count - buffer_size :] = generator.permutation(rest)
    return order
