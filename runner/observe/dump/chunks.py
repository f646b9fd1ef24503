"""Two tensors piece by piece, in memory that does not grow with them."""

import mmap
from collections.abc import Iterator

import numpy as np

RELEASED = 1 << 24  # bytes of a file that are looked at before the system gets their memory back
_DONTNEED: int | None = getattr(mmap, "MADV_DONTNEED", None)  # not every system has it


def pieces(a: np.ndarray, b: np.ndarray, size: int) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    """Both in C order of their elements, whatever the order of their memory, `size` elements at a time.

    Each comes as two vectors in the machine's byte order, and the number of their first element; the next piece may
    overwrite them. Of mapped files only a part is in memory, where the elements lie in this order.
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
    maps = [found for x in (a, b) if (found := _mapping(x)) is not None]
    step = RELEASED // max(a.itemsize, b.itemsize)
    first, due = 0, step
    for x, y in both:
        yield np.ascontiguousarray(x), np.ascontiguousarray(y), first
        first += x.size
        if first >= due and _DONTNEED is not None:
            due += step
            for mapped in maps:
                mapped.madvise(_DONTNEED)


def _mapping(array: np.ndarray) -> mmap.mmap | None:
    """The file that an array is a view of, if it is one."""
    base: object = array
    while isinstance(base, np.ndarray | memoryview):
        base = base.base if isinstance(base, np.ndarray) else base.obj
    return base if isinstance(base, mmap.mmap) else None
