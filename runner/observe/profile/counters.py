"""Hardware counters of the processor, where the kernel permits them: `perf_event_open(2)`.

Virtual machines often have none, and `kernel.perf_event_paranoid` may forbid them: every missing counter is reported
with the reason. They count for the whole process, so for whole steps and not for single operators.
"""

import ctypes
import os
import platform
from pathlib import Path
from typing import NamedTuple

SYSCALLS = {"x86_64": 298, "aarch64": 241}
HARDWARE, CACHE = 0, 3  # perf_type_id
INHERIT = 1 << 1  # flag: include threads that are started later
EXCLUDE_KERNEL = 1 << 5 | 1 << 6  # flags: exclude kernel and hypervisor
ATTRIBUTE_BYTES = 112
L1D, LL = 0, 2  # perf_hw_cache_id
READ, WRITE = 0, 1
ACCESS, MISS = 0, 1


class Counter(NamedTuple):
    """A counter by the numbers of linux/perf_event.h, and the bytes of one count (0: it does not count bytes)."""

    name: str
    kind: int
    config: int
    bytes: int = 0


def _cache(cache: int, operation: int, result: int) -> int:
    return cache | operation << 8 | result << 16


LINE = 64
COUNTERS: dict[str, tuple[Counter, ...]] = {
    "Memory": (
        Counter("main_mem_read", CACHE, _cache(LL, READ, MISS), LINE),
        Counter("main_mem_write", CACHE, _cache(LL, WRITE, MISS), LINE),
        Counter("l2_read", CACHE, _cache(LL, READ, ACCESS), LINE),
        Counter("l2_write", CACHE, _cache(LL, WRITE, ACCESS), LINE),
    ),
    "MemoryL0": (
        Counter("l0_read", CACHE, _cache(L1D, READ, ACCESS)),
        Counter("l0_read_miss", CACHE, _cache(L1D, READ, MISS)),
        Counter("l0_write", CACHE, _cache(L1D, WRITE, ACCESS)),
    ),
    "ResourceConflictRatio": (
        Counter("cycles", HARDWARE, 0),
        Counter("stalled_cycles_frontend", HARDWARE, 7),
        Counter("stalled_cycles_backend", HARDWARE, 8),
    ),
}


class Counters:
    """Running counters, until the process ends. `missing`: the reasons for those that are not available, by name."""

    def __init__(self, requested: tuple[Counter, ...]) -> None:
        self._open: dict[str, int] = {}
        self.missing: dict[str, str] = {}
        for counter in requested:
            handle = _open_counter(counter)
            if isinstance(handle, int):
                self._open[counter.name] = handle
            else:
                self.missing[counter.name] = handle

    def read(self) -> dict[str, int]:
        """The current counts by name."""
        return {name: int.from_bytes(os.read(handle, 8), "little") for name, handle in self._open.items()}


def _open_counter(counter: Counter) -> int | str:
    """The file descriptor of a counter, or the reason why it is not available."""
    number = SYSCALLS.get(platform.machine()) if platform.system() == "Linux" else None
    if number is None:
        return f"perf_event_open is not known on {platform.system()} {platform.machine()}"
    attribute = bytearray(ATTRIBUTE_BYTES)
    attribute[0:16] = b"".join(
        value.to_bytes(size, "little") for value, size in ((counter.kind, 4), (ATTRIBUTE_BYTES, 4), (counter.config, 8))
    )
    attribute[40:48] = (INHERIT | EXCLUDE_KERNEL).to_bytes(8, "little")
    libc = ctypes.CDLL(None, use_errno=True)
    handle: int = libc.syscall(number, (ctypes.c_char * ATTRIBUTE_BYTES).from_buffer(attribute), 0, -1, -1, 0)
    return handle if handle >= 0 else _reason(ctypes.get_errno())


def _reason(code: int) -> str:
    try:
        level = Path("/proc/sys/kernel/perf_event_paranoid").read_text().strip()
    except OSError:
        level = "unknown"
    return f"perf_event_open: {os.strerror(code)} (kernel.perf_event_paranoid is {level})"
