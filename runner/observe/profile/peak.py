"""The peak performance of this machine, measured in a tenth of a second: float32 operations and bytes per second.

The product of matrices is that of PyNative mode: threads compute blocks of it, each with a BLAS of one thread.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from runner.host.threads import compute_parts, kernel_threads, slices

SIZE, BLOCK = 768, 64  # of the matrices, and rows of a block
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
    result = np.empty((SIZE, SIZE), np.float32)
    blocks = slices(SIZE, BLOCK)

    def multiply() -> None:
        compute_parts(lambda block: np.matmul(a[block], b, out=result[block]), blocks, 2 * SIZE**3)

    with kernel_threads(threads):
        product = _best(multiply)
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
