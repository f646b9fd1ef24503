"""The peak performance of this machine, measured in a tenth of a second: float32 operations and bytes per second."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from runner.host.machine import thread_limit

SIZE = 768  # of the matrices
COPIED = 16 << 20  # bytes per thread, more than fits into caches
REPEATS = 4


class Peak(NamedTuple):
    """Operations and bytes per second."""

    flops: float
    bytes: float


def measure_peak(threads: int) -> Peak:
    """The best of a few products of square matrices, and of copies of large arrays (read + write), with `threads`."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, SIZE, SIZE), np.float32)
    with thread_limit(threads):
        product = _best(lambda: np.dot(a, b))
    sources, targets = (np.ones((threads, COPIED), np.uint8) for _ in range(2))
    with ThreadPoolExecutor(threads, thread_name_prefix="peak") as pool:
        copy = _best(lambda: list(pool.map(np.copyto, targets, sources)))
    return Peak(2 * SIZE**3 / product, 2 * sources.nbytes / copy)


def _best(work: Callable[[], object]) -> float:
    work()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)
