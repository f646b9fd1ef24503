"""Iteration over two tensors in chunks, with memory use independent of their size."""

import mmap
from collections.abc import Iterator

import numpy as np

RELEASE_BYTES = 1 << 24  # of a mapped file that are read before their pages are released
_DONTNEED: int | None = getattr(mmap, "MADV_DONTNEED", None)  # not on every system


def chunks(a: np.ndarray, b: np.ndarray, size: int) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    """Iterate over two arrays in C order, independent of their memory order, `size` elements at a time.

    Yields two vectors in native byte order and the flat index of their first element; the next chunk may overwrite
    them. Pages of mapped files that are in C order are released as the iteration proceeds.
    """
    both = np.nditer(
        [a, b],
        flags=["external_loop", "buffered", "zerosize_ok"],
        op_flags=[["readonly", "aligned"], ["readonly", "aligned"]],
        op_dtypes=[x.dtype.newbyteorder("=") for x in (a, b)],
        order="C",
        casting="equiv",
        buffersize=size,
    )
    maps = [found for x in (a, b) if (found := _memory_map(x)) is not None]
    interval = RELEASE_BYTES // max(a.itemsize, b.itemsize)
    first, due = 0, interval
    for x, y in both:
        yield np.ascontiguousarray(x), np.ascontiguousarray(y), first
        first += x.size
        if first >= due and _DONTNEED is not None:
            due += interval
            for memory_map in maps:
                memory_map.madvise(_DONTNEED)


def _memory_map(array: np.ndarray) -> mmap.mmap | None:
    """The memory map that an array is a view of, if any."""
    base: object = array
    while isinstance(base, np.ndarray | memoryview):
        base = base.base if isinstance(base, np.ndarray) else base.obj
    return base if isinstance(base, mmap.mmap) else None
