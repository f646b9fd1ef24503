"""The limits that a container sets: those of the control groups of this process (cgroups(7), versions 1 and 2)."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

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
