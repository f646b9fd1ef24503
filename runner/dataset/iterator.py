"""Walking over epochs, with batches fetched ahead by threads."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, Self, TypeVar

import numpy as np

T = TypeVar("T")

AHEAD_PER_WORKER = 2


def fetch_ahead(fetch: Callable[[np.ndarray], T], batches: Iterable[np.ndarray], workers: int) -> Iterator[T]:
    """`fetch` of every batch, in order; with several workers the next ones are under way while one is used.

    The workers end when the iterator is exhausted, closed or dropped.
    """
    if workers == 1:
        yield from map(fetch, batches)
        return
    with ThreadPoolExecutor(workers, thread_name_prefix="runner-dataset") as pool:
        under_way: deque[Future[T]] = deque()
        try:
            for rows in batches:
                under_way.append(pool.submit(fetch, rows))
                if len(under_way) > AHEAD_PER_WORKER * workers:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        finally:
            for future in under_way:
                future.cancel()


class EpochIterator(Generic[T]):
    """Each `for` over it gives the next epoch, until `num_epochs` are over; -1 never ends.

    A `for` that was left early is continued by the next one, as in the reference.
    """

    def __init__(self, start: Callable[[int], Iterator[T]], num_epochs: int) -> None:
        self._start = start
        self._num_epochs = num_epochs
        self._items: Iterator[T] | None = None
        self.epoch = 0

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        if self._items is None:
            if self.epoch == self._num_epochs:
                raise StopIteration
            self._items = self._start(self.epoch)
        try:
            return next(self._items)
        except StopIteration:
            self._items = None
            self.epoch += 1
            raise
