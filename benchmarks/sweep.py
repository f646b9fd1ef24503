"""How long a sweep takes with the pool, beside Hydra's own launcher, which runs one job after the other.

    python benchmarks/sweep.py [--repeats 5] [--jobs 8] [--processes 2] [-- overrides]

Both sweeps are whole commands, `runner -m +experiment=lenet seed=range(JOBS)`, in turn. Prints the medians in seconds,
and the median of the ratios of each repeat: less than 1 is faster than Hydra's launcher.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time


def seconds(launcher: list[str], jobs: int, overrides: list[str], folder: str) -> float:
    """From the start of the command to its end."""
    words = ["-m", "+experiment=lenet", "callbacks=quiet", f"seed=range({jobs})", *launcher, *overrides]
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "runner", *words], capture_output=True, text=True, cwd=folder)
    if done.returncode:
        sys.exit(done.stderr)
    return time.perf_counter() - start


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, usual in (("repeats", 5), ("jobs", 8), ("processes", 2)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("overrides", nargs="*")
    o = parser.parse_args()
    launchers = (["hydra/launcher=pool", f"hydra.launcher.n_jobs={o.processes}"], ["hydra/launcher=basic"])
    with tempfile.TemporaryDirectory() as folder:
        pairs = [[seconds(one, o.jobs, o.overrides, folder) for one in launchers] for _ in range(o.repeats)]
    pool, basic = (round(statistics.median(column), 2) for column in zip(*pairs, strict=True))
    ratios = [round(a / b, 3) for a, b in pairs]
    row = {"jobs": o.jobs, "processes": o.processes, "pool_seconds": pool, "basic_seconds": basic, "ratios": ratios}
    print(json.dumps({**row, "ratio": statistics.median(ratios), "overrides": o.overrides}))


if __name__ == "__main__":
    main()
