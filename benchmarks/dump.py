"""What a dump costs: beside numpy.tofile of the same arrays, and in a training that dumps one step in a hundred.

    python benchmarks/dump.py
    python benchmarks/dump.py --net resnet18 --repeats 5 --folder /tmp

`write`: a full synchronous dump of one training step, and `numpy.tofile` of the same arrays, operator by operator in
turn; `ratio` is the speed of the dump by that of tofile. `train`: steps of a training that dumps every hundredth one,
without the time of looking and writing, by those of one that dumps nothing (`ratio` 1 where nothing is lost). `queue`:
the most bytes that waited in the queue of an asynchronous dump, by its limit. Prints one JSON object per line; the
medians of the repeats come last.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from training import MODES, model_of

from runner.core.graph import ObservedValue, ValueObserver
from runner.core.operators import Node
from runner.dataset import NumpySlicesDataset
from runner.device import Device
from runner.host.threads import kernel_threads
from runner.nn.steps import DebugPrograms
from runner.observe.dump.dumper import Dumper
from runner.observe.dump.settings import DumpSettings, Iterations
from runner.observe.dump.writers import AsyncWriter

BATCH, EVERY = 32, 100


class BesideTofile:
    """A writer that times another one, and numpy.tofile of the same arrays, in turn."""

    def __init__(self, writer: Any, folder: Path) -> None:
        self.writer, self.folder = writer, folder
        self.seconds = {"dump": 0.0, "tofile": 0.0}
        self.bytes = self.files = self.calls = 0
        folder.mkdir()

    def write_operator(
        self, step: int, graph: int, task: int, node: Node, *sides: Sequence[ObservedValue] | None
    ) -> None:
        """Both, the one first that was second before."""
        self._both(
            lambda: self.writer.write_operator(step, graph, task, node, *sides), [v for s in sides for v in s or ()]
        )

    def write_value(self, step: int, graph: int, name: str, value: ObservedValue) -> None:
        """As an operator."""
        self._both(lambda: self.writer.write_value(step, graph, name, value), [value])

    def __getattr__(self, name: str) -> Any:
        return getattr(self.writer, name)

    def _both(self, dump: Callable[[], None], values: list[ObservedValue]) -> None:
        works = {"dump": dump, "tofile": lambda: self._tofile(values)}
        for name in works if self.calls % 2 else reversed(works):
            start = time.perf_counter()
            works[name]()
            self.seconds[name] += time.perf_counter() - start
        for file in self.folder.iterdir():  # so that the disk has only one of the two to cope with
            file.unlink()
        self.calls += 1
        self.files += len(values)
        self.bytes += sum(value.array.nbytes for value in values)

    def _tofile(self, values: list[ObservedValue]) -> None:
        for number, value in enumerate(values, self.files):
            value.array.tofile(self.folder / f"{number}.bin")


def train(
    net: str, mode: str, threads: int, observer: ValueObserver, sunk: bool, steps: int, warm: bool = False
) -> float:
    """Seconds of a training; `warm`: of the second one, when everything is compiled."""
    model = model_of(net, mode, Device(threads=threads))
    model.values = observer
    noise = np.random.default_rng(0)
    shape = (1, 32, 32) if net == "lenet5" else (3, 32, 32)
    images = noise.standard_normal((8 * BATCH, *shape), np.float32)
    data = NumpySlicesDataset((images, noise.integers(0, 10, 8 * BATCH, np.int32))).batch(BATCH)
    with kernel_threads(threads):
        if warm:
            model.train(1, data, None, sunk, steps if sunk else -1, max_steps=1)
        start = time.perf_counter()
        model.train(1 if sunk else -(-steps // 8), data, None, sunk, steps if sunk else -1, max_steps=steps)
        return time.perf_counter() - start


def write(net: str, mode: str, threads: int, folder: Path) -> dict[str, Any]:
    """The speed of a dump of one step."""
    dumper = Dumper(DumpSettings("sync", folder / "dump", net, Iterations.parse(0)))
    beside = BesideTofile(dumper.writer, folder / "tofile")
    dumper.writer = beside
    with closing(dumper):
        train(net, mode, threads, dumper, False, 1)
    speeds = {name: beside.bytes / seconds / 2**20 for name, seconds in beside.seconds.items()}
    return {
        "files": beside.files,
        "MiB": beside.bytes / 2**20,
        **{f"{name}_MiB_per_second": speed for name, speed in speeds.items()},
        "ratio": speeds["dump"] / speeds["tofile"],
    }


def one_in_a_hundred(threads: int, sunk: bool, steps: int, folder: Path) -> dict[str, Any]:
    """How fast the other steps of LeNet-5 are, in graph mode."""
    plain = train("lenet5", "graph", threads, ValueObserver(), sunk, steps, warm=True)
    settings = DumpSettings("async", folder, "lenet5", Iterations(tuple((k, k) for k in range(0, steps, EVERY))))
    with closing(Timed(settings)) as dumper, dumper.watching():
        seconds = train("lenet5", "graph", threads, dumper, sunk, steps, warm=True) - dumper.seconds
    return {"plain_ms": plain / steps * 1e3, "dumping_ms": seconds / steps * 1e3, "ratio": plain / seconds}


class Timed(Dumper):
    """A dumper that knows how long steps were looked at, in the last training."""

    seconds = 0.0

    def watching(self) -> Any:
        """Measures `DebugPrograms` while the context is open."""
        return _Watching(self)


class _Watching:
    def __init__(self, dumper: Timed) -> None:
        self.dumper, self.usual = dumper, DebugPrograms.__call__

    def __enter__(self) -> None:
        dumper, usual = self.dumper, self.usual

        def timed(looks: DebugPrograms, step: int, arrays: Sequence[np.ndarray]) -> None:
            start = time.perf_counter()
            usual(looks, step, arrays)
            dumper.seconds = (dumper.seconds if step else 0.0) + time.perf_counter() - start

        DebugPrograms.__call__ = timed  # type: ignore[method-assign]

    def __exit__(self, *_: object) -> None:
        DebugPrograms.__call__ = self.usual  # type: ignore[method-assign]


def queue(net: str, mode: str, threads: int, limit: int, folder: Path) -> dict[str, Any]:
    """How much waited."""
    dumper = Dumper(DumpSettings("async", folder, net, Iterations.parse("0-2"), queue_mb=limit))
    assert isinstance(dumper.writer, AsyncWriter)
    with closing(dumper):
        train(net, mode, threads, dumper, False, 3)
    return {
        "limit_MiB": limit,
        "peak_MiB": dumper.writer.queue.peak / 2**20,
        "ratio": dumper.writer.queue.peak / 2**20 / limit,
    }


def measured(o: argparse.Namespace) -> list[dict[str, Any]]:
    """All figures once."""
    rows = []
    for mode in o.mode:
        with tempfile.TemporaryDirectory(dir=o.folder) as folder:
            rows.append({"what": "write", "mode": mode, **write(o.net, mode, o.threads, Path(folder))})
        with tempfile.TemporaryDirectory(dir=o.folder) as folder:
            rows.append({"what": "queue", "mode": mode, **queue(o.net, mode, o.threads, o.queue_mb, Path(folder))})
    for sunk in (False, True) if "graph" in o.mode else ():
        with tempfile.TemporaryDirectory(dir=o.folder) as folder:
            figures = one_in_a_hundred(o.threads, sunk, o.steps, Path(folder))
            rows.append({"what": "train", "sunk": sunk, **figures})
    return rows


def main() -> None:
    """Print rows, then medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", default="resnet18")
    parser.add_argument("--mode", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=300, help="of the training that dumps every hundredth one")
    parser.add_argument("--queue-mb", type=int, default=256)
    parser.add_argument("--folder", help="where to write (default: the folder for temporary files)")
    o = parser.parse_args()
    repeats = []
    for _ in range(o.repeats):
        repeats.append(measured(o))
        for row in repeats[-1]:
            print(json.dumps(_rounded(row)), flush=True)
    for rows in zip(*repeats, strict=True):
        median = statistics.median(row["ratio"] for row in rows)
        words = {name: value for name, value in rows[0].items() if name in ("what", "mode", "sunk")}
        print(json.dumps({"median": median, **words, "repeats": o.repeats}))


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in row.items()}


if __name__ == "__main__":
    main()
