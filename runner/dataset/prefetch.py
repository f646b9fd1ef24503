"""Batches ahead of their use: threads prepare a bounded number of them, in order, while earlier ones are used.

Most of the work on a batch is numpy's, which releases the GIL. Handing a batch from one thread to another costs about
0.1 ms, half of what preparing `MIN_THREADED_VALUES` values costs (`benchmarks/data.py`). So smaller batches, such as
LeNet's 32 digits with one multiplication each, are prepared by the caller, and CIFAR-10's augmented ones by a thread.
At the end is `EpochIterator`, with which scripts iterate over epochs.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Generic, Self, TypeVar

import numpy as np

from runner.validation.arguments import flag, whole_number

T = TypeVar("T")

MAX_WORKERS = 64
AHEAD_PER_WORKER = 2
MIN_THREADED_VALUES = 1 << 18  # values that are read or computed for a batch


_default: list[int] = []


def set_default_workers(count: int) -> None:
    """The number of threads of pipelines that do not set one."""
    _default[:] = [count]


def default_workers() -> int | None:
    """The number that was set, if any."""
    return _default[0] if _default else None


def worker_count(num_parallel_workers: object) -> int | None:
    """The checked argument: 1 to 64, or None for runner's own choice. Raises ConfigError."""
    if num_parallel_workers is None:
        return None
    return whole_number("num_parallel_workers", num_parallel_workers, 1, MAX_WORKERS)


def threads_for(workers: int | None, values: int) -> int:
    """Number of threads for batches of so many values; 0: the caller prepares them.

    More than one worker is the user's decision; with one or None, the amount of work decides.
    """
    requested = workers or default_workers() or 1
    return requested if requested > 1 or values > MIN_THREADED_VALUES else 0


def prefetch_batches(
    fetch: Callable[[np.ndarray], T],
    batches: Iterable[np.ndarray],
    threads: int,
    queue_observer: Callable[[int], object] | None = None,
) -> Generator[T, None, None]:
    """`fetch` of every batch, in order; with threads, up to `2 * threads` are prepared while one is used.

    Exceptions of `fetch` are raised here, at the batch they belong to. The threads end when the generator is exhausted,
    fails or is closed; closing waits for the batches in progress and drops the others. `queue_observer` is called with
    the number of finished batches in the queue whenever one is requested.
    """
    if threads == 0:
        yield from map(fetch, batches)
        return
    pool = ThreadPoolExecutor(threads, thread_name_prefix="runner-dataset")
    try:
        left = iter(batches)
        ahead: deque[Future[T]] = deque(pool.submit(fetch, rows) for rows in islice(left, AHEAD_PER_WORKER * threads))
        while ahead:
            if queue_observer is not None:
                queue_observer(sum(future.done() for future in ahead))
            batch = ahead.popleft().result()
            ahead.extend(pool.submit(fetch, rows) for rows in islice(left, 1))
            yield batch
    finally:
        pool.shutdown(cancel_futures=True)


# Iterators over epochs.


def epoch_limit(num_epochs: int, output_numpy: bool) -> int:
    """The number of epochs of an iterator, -1 for no limit. Raises ConfigError for invalid arguments."""
    flag({}, output_numpy=output_numpy)
    return -1 if num_epochs == -1 else whole_number("num_epochs", num_epochs, 1)


class EpochIterator(Generic[T]):
    """Each `for` loop over it iterates over the next epoch, up to `num_epochs`; -1 is no limit.

    After a `break`, the next loop continues the same epoch, as in the reference.
    """

    def __init__(self, start: Callable[[int], Iterator[T]], num_epochs: int) -> None:
        self._start = start
        self._num_epochs = num_epochs
        self._items: Iterator[T] | None = None
        self.epoch = 0

    def __iter__(self) -> Self:
        return self

    def stop(self) -> None:
        """End the iteration: threads that prepare items end, and later loops have no items."""
        items, self._items = self._items, None
        if isinstance(items, Generator):
            items.close()
        self.epoch = self._num_epochs = max(self.epoch, self._num_epochs)

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
