"""Threads of numpy's kernels.

The threads of a BLAS wait for each other busily: beside other processes a small matrix product takes as long as a time
slice of the scheduler, and an epoch of LeNet twenty times as long. So here the BLAS computes with one thread, and
kernels divide large work into parts, for threads that sleep while they wait. The parts never depend on the number of
threads, so neither do the results.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice
from typing import NamedTuple, TypeVar

import numpy as np

T = TypeVar("T")
R = TypeVar("R")

THREADED_FLOPS = 25_000_000  # about half a millisecond on one core
SHARED_BLOCKS = 4  # measured with batch normalization and gradients of ReLU
TASK_FLOPS = 100_000_000  # of what a thread receives at once, since to hand it over takes 0.05 ms or more


class Workers(NamedTuple):
    """Threads that compute parts of kernels; they start when they receive work."""

    threads: int
    pool: ThreadPoolExecutor


_WORKERS: ContextVar[Workers | None] = ContextVar("workers", default=None)


@contextmanager
def kernel_threads(count: int) -> Iterator[None]:
    """Context in which kernels use up to `count` threads, and the BLAS one."""
    workers = _WORKERS.get()
    if workers is not None and workers.threads == count:
        yield
        return
    from threadpoolctl import threadpool_limits  # here: graph mode does not need it

    # What one of the threads computes is not divided again.
    pool = ThreadPoolExecutor(count, "runner-kernel", initializer=lambda: _WORKERS.set(None))
    with threadpool_limits(1, "blas"), pool:
        token = _WORKERS.set(Workers(count, pool))
        try:
            yield
        finally:
            _WORKERS.reset(token)


def block_length(alone: int) -> int:
    """How long the blocks of a pass are of which each computes its own elements, so that their length changes no bit.

    One thread takes them so short (`alone`) that they stay in its cache. Several take longer ones, because each call of
    numpy ends with waiting for the interpreter's lock: with short blocks two threads are slower than one.
    """
    workers = _WORKERS.get()
    return alone if workers is None or workers.threads == 1 else alone * SHARED_BLOCKS


def in_order(function: Callable[[T], R], parts: Sequence[T], flops: int) -> Iterator[R]:
    """`function` of each part, in order, by the threads of the context if all are many operations (`flops`)."""
    workers = _WORKERS.get()
    if workers is None or workers.threads == 1 or len(parts) == 1 or flops < THREADED_FLOPS:
        return map(function, parts)
    count = min(-(-len(parts) * TASK_FLOPS // flops), -(-len(parts) // workers.threads))
    return _ahead(workers, function, [parts[task] for task in slices(len(parts), count)])


def compute_parts(function: Callable[[T], object], parts: Sequence[T], flops: int) -> None:
    """As `in_order`, for a function that writes its results into arrays."""
    deque(in_order(function, parts, flops), maxlen=0)


def slices(length: int, step: int) -> list[slice]:
    """The parts of an axis, each of `step` elements but for the last."""
    return [slice(start, start + step) for start in range(0, length, step)]


def _ahead(workers: Workers, function: Callable[[T], R], tasks: Sequence[Sequence[T]]) -> Iterator[R]:
    left, limit = iter(tasks), 2 * workers.threads  # results in memory
    ahead: deque[Future[list[R]]] = deque(workers.pool.submit(_quietly, function, task) for task in islice(left, limit))
    try:
        while ahead:
            yield from ahead.popleft().result()
            ahead.extend(workers.pool.submit(_quietly, function, task) for task in islice(left, 1))
    finally:
        for future in ahead:
            future.cancel()


def _quietly(function: Callable[[T], R], parts: Sequence[T]) -> list[R]:
    """Numbers may overflow, as in the thread that executes the step: numpy's setting is one of a thread."""
    with np.errstate(all="ignore"):
        return [function(part) for part in parts]
