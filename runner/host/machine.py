"""This machine and its environment: the limits that a container sets, versions, processor, cores, memory."""

import ctypes
import math
import os
import platform
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from runner.errors import NO_MEMORY, ConfigError
from runner.host.version import __version__

# The limits that a container sets: those of the control groups of this process (cgroups(7), versions 1 and 2).

ROOT = Path("/")


@cache
def cpu_limit(root: Path = ROOT) -> float | None:
    """How many cores' time this process may use; None without a limit."""
    limits = [quota / period for quota, period in _cpu_quotas(root) if quota > 0 and period > 0]
    return min(limits, default=None)


@cache
def memory_limit(root: Path = ROOT) -> int | None:
    """Bytes of memory that this process and its group may have; None without a limit."""
    texts = [_read(folder / "memory.max") for folder in _folders(root, "")]
    texts += [_read(folder / "memory.limit_in_bytes") for folder in _folders(root, "memory")]
    return min((int(text) for text in texts if text.isdigit()), default=None)


def memory_left(root: Path = ROOT) -> int | None:
    """Bytes that this process's group may still take, the cache of files counted as free; None without a limit."""
    versions = (
        ("", "memory.max", "memory.current", ""),
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
    )
    left = []
    for controller, limit_file, used_file, prefix in versions:
        for folder in _folders(root, controller):
            limit, used = _read(folder / limit_file), _read(folder / used_file)
            if limit.isdigit() and used.isdigit():
                left.append(max(0, int(limit) - int(used) + _file_cache(folder, prefix)))
    return min(left, default=None)


def _file_cache(folder: Path, prefix: str) -> int:
    """Bytes of files that the system drops before it refuses memory to the group."""
    rows = (line.split() for line in _read(folder / "memory.stat").splitlines())
    values = {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}
    return sum(values.get(f"{prefix}{name}", 0) for name in ("active_file", "inactive_file"))


def _cpu_quotas(root: Path) -> Iterator[tuple[float, float]]:
    """Microseconds of CPU time in each period, and its length."""
    texts = [_read(folder / "cpu.max").split() for folder in _folders(root, "")]
    texts += [
        [_read(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period")] for folder in _folders(root, "cpu")
    ]
    for words in texts:
        if len(words) == 2 and all(word.isdigit() for word in words):  # else no limit: `max`, or -1
            yield float(words[0]), float(words[1])


def _folders(root: Path, controller: str) -> Iterator[Path]:
    """The folders of this process's group and of those around it; "" is the hierarchy of version 2."""
    mounted = root / "sys/fs/cgroup"
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, _, named = line.partition(":")
        controllers, _, path = named.partition(":")
        if controller not in controllers.split(","):
            continue
        places = (mounted / controllers, mounted / controller) if controller else (mounted, mounted / "unified")
        group = Path(path.lstrip("/"))
        for place in places:
            # In a container the path may be that of the host, and the container's group is mounted at the top.
            yield from (place / part for part in (group, *group.parents))


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


# Versions, processor, cores, memory.

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
    for line in _text_of("/proc/cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def usable_cores() -> int:
    """How many cores this process may use: its affinity, or the CPU time of its control group where that is less."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, max(1, math.ceil(cpu_limit() or cores)))


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
    return min(machine, memory_limit() or machine)


def available_bytes() -> int:
    """Bytes of memory that can still be taken without swapping: MemAvailable, or what its control group leaves."""
    found = re.search(r"^MemAvailable:\s*(\d+) kB", _text_of("/proc/meminfo"), re.MULTILINE)
    machine = int(found[1]) << 10 if found else memory_bytes()
    left = memory_left()
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


def _text_of(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
