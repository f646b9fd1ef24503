"""What the default number of threads costs, on an idle and on a busy machine.

    python benchmarks/busy.py [--repeats 5] [--hogs 0 2] [-- overrides]

Runs `runner +experiment=lenet epochs=10` (or with other overrides) with the default and with each fixed number of
threads, in turn, beside as many processes that compute without end as `--hogs` says. Prints the medians of wall and CPU
time in seconds, and the ratios of the default to the best fixed number, each measured in the same round.

`share` is the part of a core that a process with one thread gets in the same round. `fair_ratio` is the wall time of
the default by the time that the CPU time of one thread takes with this share: 1 is a process that waits for nothing.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

from runner.host.machine import usable_cores

ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


@contextmanager
def hogs(count: int) -> Iterator[None]:
    """Context beside processes that keep a core busy each."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def share(count: int) -> float:
    """The part of a core that a process with one thread gets beside `count` hogs."""
    lines = "import time", "start, used = time.perf_counter(), time.process_time()"
    loop = "while time.perf_counter() < start + 1: pass"
    result = "print((time.process_time() - used) / (time.perf_counter() - start))"
    with hogs(count):
        done = subprocess.run(
            [sys.executable, "-c", "\n".join((*lines, loop, result))], check=True, capture_output=True
        )
    return float(done.stdout)


def measured(overrides: list[str], threads: int, folder: str) -> tuple[float, float]:
    """Wall and CPU seconds of one run; `threads` 0 is the default."""
    command = [sys.executable, "-m", "runner", "+experiment=lenet", f"device.threads={threads}", *overrides]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, cwd=folder, env=ENVIRONMENT, capture_output=True)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def rounds(overrides: list[str], count: int, repeats: int, folder: str) -> dict[str, object]:
    """The figures beside `count` hogs."""
    settings = [0, *(n for n in (1, 2, 4, 8, 16, 32, 64) if n <= usable_cores())]
    found: dict[int, list[tuple[float, float]]] = {n: [] for n in settings}
    shares = []
    for _ in range(repeats):
        shares.append(share(count))
        for n in settings:
            with hogs(count):
                found[n].append(measured(overrides, n, folder))
    row: dict[str, object] = {"hogs": count, "overrides": overrides}
    for k, kind in enumerate(("wall", "cpu")):
        medians = {n: statistics.median(pair[k] for pair in pairs) for n, pairs in found.items()}
        best = min((n for n in settings if n), key=medians.__getitem__)
        ratio = statistics.median(a[k] / b[k] for a, b in zip(found[0], found[best], strict=True))
        row[kind] = {"default" if n == 0 else str(n): round(seconds, 2) for n, seconds in medians.items()}
        row[f"{kind}_ratio"] = round(ratio, 2)
    fair = [mine[0] * part / one[1] for mine, part, one in zip(found[0], shares, found[1], strict=True)]
    return row | {"share": round(statistics.median(shares), 2), "fair_ratio": round(statistics.median(fair), 2)}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--hogs", type=int, nargs="+", default=[0, usable_cores()])
    parser.add_argument("overrides", nargs="*")
    o = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for count in o.hogs:
            print(json.dumps(rounds(o.overrides or ["epochs=10"], count, o.repeats, folder)), flush=True)


if __name__ == "__main__":
    main()
