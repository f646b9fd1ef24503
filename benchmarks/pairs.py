"""Whether a step of one checkout is slower than that of another: both in turn, block by block, on one machine.

    git worktree add ../before v0.1.0
    python benchmarks/pairs.py ../before . --processes 3 -- resnet18 --mode pynative --threads 2

What follows `--` are the arguments of benchmarks/one_step.py. Both checkouts hold a process with a warm network; they
run a block of steps in turn, and the one that waits is stopped, so that its threads cannot spin. A ratio compares the
medians of `--rounds` blocks. Of two processes with the same code the one that started first can be slower or faster by
4%, so in every other pair of `--processes`, an even number, the other checkout starts first. Prints one JSON object per
line: the pair, and at the end the median of the ratios.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from step import THREAD_COUNTS


class Contender:
    """A process with a warm network of one checkout; it is stopped unless it runs a block."""

    def __init__(self, checkout: Path, words: Sequence[str]) -> None:
        script = checkout.absolute() / "benchmarks" / "one_step.py"
        environment = {name: value for name, value in os.environ.items() if name not in THREAD_COUNTS}
        environment["PYTHONPATH"] = str(checkout.absolute())
        command = [sys.executable, str(script), "--serve", *words]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(command, env=environment, text=True, **pipes)
        self._read()
        self.process.send_signal(signal.SIGSTOP)

    def block(self, steps: int) -> float:
        """Milliseconds of a step."""
        self.process.send_signal(signal.SIGCONT)
        assert self.process.stdin is not None
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        milliseconds = float(self._read()) / steps
        self.process.send_signal(signal.SIGSTOP)
        return milliseconds

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.communicate()

    def _read(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.process.args} has ended with {self.process.wait()}")
        return line


def pair(o: argparse.Namespace, first: int) -> dict[str, float]:
    """One process of each checkout, of which `first` starts first, and the ratio of their medians."""
    times: tuple[list[float], list[float]] = ([], [])
    with ExitStack() as stack:
        both: dict[int, Contender] = {}
        for number in (first, 1 - first):
            both[number] = stack.enter_context(closing(Contender((o.before, o.after)[number], o.words)))
        for turn in range(o.rounds):
            for number in (0, 1) if turn % 2 else (1, 0):
                times[number].append(both[number].block(o.steps))
    before, after = map(statistics.median, times)
    return {"before_ms": round(before, 4), "after_ms": round(after, 4), "ratio": round(after / before, 3)}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="the checkout that is compared with")
    parser.add_argument("after", type=Path, help="the checkout that may be slower")
    parser.add_argument("--processes", type=int, default=4, help="pairs of processes")
    parser.add_argument("--rounds", type=int, default=20, help="blocks of each process")
    parser.add_argument("--steps", type=int, default=1, help="steps of a block")
    parser.add_argument("words", nargs="+", metavar="ARGUMENT", help="of benchmarks/one_step.py, after --")
    o = parser.parse_args()
    ratios = []
    for number in range(o.processes):
        row = pair(o, number % 2)
        ratios.append(row["ratio"])
        print(json.dumps(row), flush=True)
    print(json.dumps({"step": " ".join(o.words), "ratio": statistics.median(ratios), "of_each_pair": sorted(ratios)}))


if __name__ == "__main__":
    main()
