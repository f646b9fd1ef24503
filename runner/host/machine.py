"""This machine and its environment: versions, processor, cores, memory."""

import ctypes
import math
import os
import platform
import re
from functools import cache
from pathlib import Path

from runner.errors import NO_MEMORY, ConfigError
from runner.host import control_groups
from runner.host.version import __version__

PACKAGES = ("hydra-core", "omegaconf", "numpy", "onnx", "safetensors", "rich", "threadpoolctl")
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # numbers of mallopt(3)
CERTAIN_BYTES = 1 << 24  # less is not looked up
RUNTIMES = ("onnxruntime", "onnxruntime-gpu", "onnxruntime-cann")


def packages() -> dict[str, str]:
    """Versions of Python, runner and what it is built on, by distribution name; what is not installed is left out."""
    return {"python": platform.python_version(), "runner": __version__, **_versions(PACKAGES), **runtimes()}


def version_line() -> str:
    """The output of `runner --version`."""
    names = ("hydra-core", "omegaconf", "numpy", "onnx", "onnxruntime")
    found = _versions(names)
    return ", ".join([f"runner {__version__}", *(f"{name} {found.get(name, 'not installed')}" for name in names)])


def runtimes() -> dict[str, str]:
    """The onnxruntime distributions that are installed, with their versions; more than one overwrite each other."""
    return _versions(RUNTIMES)


def cpu_model() -> str:
    """The processor's own name, such as `AMD EPYC`; the architecture where the system does not report it."""
    for line in _read("/proc/cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def usable_cores() -> int:
    """How many cores this process may use: its affinity, or the CPU time of its control group where that is less."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, max(1, math.ceil(control_groups.cpu_limit() or cores)))


@cache
def keep_freed_memory() -> bool:
    """Let glibc keep freed memory for later arrays; no effect, and False, with other C libraries.

    Otherwise glibc returns large arrays to the system and requests new pages for the next ones, which are cleared and
    mapped again: a third of the time of elementwise operators. The process keeps its peak size.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is None:
        return False
    mallopt(M_TRIM_THRESHOLD, -1)  # never shrink the heap
    mallopt(M_MMAP_THRESHOLD, 1 << 30)  # up to 1 GiB from the heap
    return True


def memory_bytes() -> int:
    """Bytes of memory that this process can have: the machine's, or its control group's limit where that is lower."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(machine, control_groups.memory_limit() or machine)


def available_bytes() -> int:
    """Bytes of memory that can still be taken without swapping: MemAvailable, or what its control group leaves."""
    found = re.search(r"^MemAvailable:\s*(\d+) kB", _read("/proc/meminfo"), re.MULTILINE)
    machine = int(found[1]) << 10 if found else memory_bytes()
    left = control_groups.memory_left()
    return machine if left is None else min(machine, left)


def require_memory(needed: int, /, **rows: object) -> None:
    """Raise ConfigError, with these rows, when `needed` bytes are more than are available.

    To be called before they are taken: the system would grant them, and end the process when they are used.
    """
    if needed > CERTAIN_BYTES and needed > (available := available_bytes()):
        sizes = {"needed": f"{needed / 2**30:.4g} GiB", "available": f"{available / 2**30:.4g} GiB"}
        raise ConfigError(NO_MEMORY, **rows, **sizes)


def _versions(names: tuple[str, ...]) -> dict[str, str]:
    from importlib import metadata  # here: it costs 18 ms, and most commands need no versions

    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
