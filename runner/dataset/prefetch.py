"""Batches prepared by threads while earlier ones are used: in order, a bounded number of them, and gone when closed.

Most of the work on a batch is numpy's, which lets other threads run. But handing it from one thread to another costs
about 0.1 ms, and twice that is what `WORTH_A_THREAD` values cost (`benchmarks/data.py`). So a batch of fewer values, as
LeNet's 32 digits with a multiplication each, is prepared by who uses it, and CIFAR-10's augmented ones by a thread.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

import numpy as np

from runner.validation.arguments import whole_number

T = TypeVar("T")

MOST_WORKERS = 64
AHEAD_PER_WORKER = 2
WORTH_A_THREAD = 1 << 18  # values that are read or computed for a batch


def worker_count(num_parallel_workers: object) -> int | None:
    """The argument: 1 to 64, or None where the caller leaves the choice to runner. Raises ConfigError."""
    if num_parallel_workers is None:
        return None
    return whole_number("num_parallel_workers", num_parallel_workers, 1, MOST_WORKERS)


def threads_for(workers: int | None, values: int) -> int:
    """How many threads should prepare batches of so many values, where 0 means that the caller does it.

    More than one worker is the user's choice; with one, or none named, the amount of work decides.
    """
    asked = workers or 1
    return asked if asked > 1 or values > WORTH_A_THREAD else 0


def prefetched(
    fetch: Callable[[np.ndarray], T],
    batches: Iterable[np.ndarray],
    threads: int,
    ready: Callable[[int], object] | None = None,
) -> Generator[T, None, None]:
    """`fetch` of every batch, in order; with threads the next `2 * threads` are under way or ready while one is used.

    What `fetch` raises is raised here, at the batch it belongs to. The threads end when the generator is exhausted,
    fails or is closed; closing waits for the batches that are being prepared at that moment, and drops the others.
    `ready` hears how many batches wait, whenever one is asked for.
    """
    if threads == 0:
        yield from map(fetch, batches)
        return
    pool = ThreadPoolExecutor(threads, thread_name_prefix="runner-dataset")
    try:
        left = iter(batches)
        ahead: deque[Future[T]] = deque(pool.submit(fetch, rows) for rows in islice(left, AHEAD_PER_WORKER * threads))
        while ahead:
            if ready is not None:
                ready(sum(future.done() for future in ahead))
            batch = ahead.popleft().result()
            ahead.extend(pool.submit(fetch, rows) for rows in islice(left, 1))
            yield batch
    finally:
        pool.shutdown(cancel_futures=True)
