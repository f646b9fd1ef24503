"""What several ranks on this machine cost: sums over all ranks, and training steps.

    python benchmarks/ranks.py sums --ranks 2 4 8 --kib 1 16 64 256 1024 4096 16384 102400 --repeats 5
    python benchmarks/ranks.py steps lenet5 --mode graph pynative --ranks 1 2 4 8 --batch 32
    python benchmarks/ranks.py sums ... > rows.jsonl && python benchmarks/rank_model.py rows.jsonl

Needs the extra `mpi`. `sums` sets our sum in the order of ranks against `MPI_Allreduce`, in turn: both leave their
operand as it is and return a new array. `ratio` is our time by MPI's, the median over the repeats.

`steps` trains with `--batch` images on each rank (weak scaling) and with so many on all of them (strong). A rank has
its share of the cores, at least one. `exchange_ms` is the time from the arrival of the last rank to the end of the
sums, `waiting_ms` how long a rank waits for the last one; both are means over ranks. `efficiency` compares with one
rank: the same time when every rank has the whole batch, an equal share of it when ranks divide it.

Prints one JSON object per line.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from peers.timing import NETS, rows_of, shape_of, usual_steps
from training import MODES, model_of

from runner import context
from runner.communication.world import World, join
from runner.device import Device
from runner.host.machine import usable_cores
from runner.host.threads import kernel_threads

HERE = Path(__file__).resolve().parent
Row = dict[str, Any]


def seconds_of(function: Callable[[], object], calls: int, world: World) -> float:
    """Of one call; all ranks begin and end together."""
    world.gathered(0)
    start = time.perf_counter()
    for _ in range(calls):
        function()
    world.gathered(0)
    return (time.perf_counter() - start) / calls


def sums(o: argparse.Namespace, world: World) -> Iterator[Row]:
    """A row for each size."""
    from mpi4py import MPI

    for kib in o.kib:
        x = np.random.default_rng(world.rank).standard_normal(kib * 256).astype(np.float32)
        contenders = {
            "ours": lambda x=x: world.summed([x]),
            "mpi": lambda x=x: MPI.COMM_WORLD.Allreduce(x, np.empty_like(x)),
        }
        calls = min(50, max(1, 4096 // kib))  # few: other processes interrupt some of the repeats, not all
        found: dict[str, list[float]] = {name: [] for name in contenders}
        for repeat in range(o.repeats + 1):
            for name, function in contenders.items():
                seconds = seconds_of(function, calls, world)
                if repeat:  # the first one warms up
                    found[name].append(seconds)
        ratios = [a / b for a, b in zip(found["ours"], found["mpi"], strict=True)]
        row = {"what": "sum", "ranks": world.size, "cores": usable_cores(), "bytes": x.nbytes}
        row |= {f"{name}_us": round(statistics.median(times) * 1e6, 1) for name, times in found.items()}
        row |= {f"{name}_least_us": round(min(times) * 1e6, 1) for name, times in found.items()}
        yield row | {"ratio": round(statistics.median(ratios), 3)}


class Exchanges:
    """When this rank began and ended each sum."""

    def __init__(self) -> None:
        self.times: list[tuple[float, float]] = []

    @contextmanager
    def around(self) -> Iterator[None]:
        """Context of one sum."""
        start = time.perf_counter()
        yield
        self.times.append((start, time.perf_counter()))


def split(of_ranks: list[list[tuple[float, float]]]) -> tuple[float, float]:
    """Seconds of all exchanges after the last rank has arrived, and before: means over ranks."""
    times = np.array(of_ranks)  # [ranks, exchanges, 2], of one clock
    if not times.size:
        return 0.0, 0.0
    arrived = times[:, :, 0].max(axis=0)
    ended = np.maximum(times[:, :, 1] - arrived, 0.0)
    return float(ended.sum(axis=1).mean()), float((arrived - times[:, :, 0]).sum(axis=1).mean())


def step(o: argparse.Namespace, world: World, mode: str, batch: int) -> Row:
    """A row; `batch` images on each rank."""
    context.reset_auto_parallel_context()
    buckets = {"all_reduce_fusion_config": o.buckets} if o.buckets else {}
    context.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True, **buckets)
    threads = max(1, usable_cores() // world.size)
    model = model_of(o.net, mode, Device(threads=threads))
    rng = np.random.default_rng(world.rank)
    count, steps = rows_of(o.net, batch), o.steps or usual_steps(o.net)
    images = rng.standard_normal((count, *shape_of(o.net)), np.float32)
    labels = rng.integers(0, 10, count, np.int32)
    exchanges = Exchanges()

    def run() -> None:
        rows = rng.integers(0, count, batch)
        model.train_step((images[rows], labels[rows]))

    with kernel_threads(threads):
        run()
        seconds_of(run, min(5, steps), world)
        world.exchanging = exchanges.around
        seconds = seconds_of(run, steps, world)
        del world.exchanging
    parameters = sum(p.size for p in model.network.trainable_params())
    exchange, waiting = split(world.all_gathered(exchanges.times))
    row = {"what": "step", "net": o.net, "mode": mode, "ranks": world.size, "batch": batch, "threads": threads}
    row |= {"buckets": 1 + len(o.buckets or ())}
    row |= {"cores": usable_cores(), "bytes": 4 * parameters, "ms_per_step": round(seconds * 1e3, 3)}
    return row | {"exchange_ms": round(exchange / steps * 1e3, 3), "waiting_ms": round(waiting / steps * 1e3, 3)}


def worker(o: argparse.Namespace) -> None:
    """What one rank does; the first one prints."""
    world = join()
    rows = sums(o, world) if o.what == "sums" else (step(o, world, mode, o.batch) for mode in o.mode)
    for row in rows:
        if world.rank == 0:
            print(json.dumps(row), flush=True)


def launched(ranks: int, words: list[str]) -> Iterator[Row]:
    """The rows of one mpirun."""
    mpirun = [str(Path(sys.executable).parent / "mpirun"), "-n", str(ranks)]
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    command = [*mpirun, sys.executable, str(HERE / "ranks.py"), *words, "--worker"]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent), **one_thread}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed with {done.returncode}:\n{done.stderr}")
    yield from map(json.loads, done.stdout.splitlines())


def scaled(o: argparse.Namespace, words: list[str]) -> Iterator[Row]:
    """The rows of all numbers of ranks, with their efficiency."""
    alone: dict[str, float] = {}
    for ranks in sorted({1, *o.ranks}):
        parts = {"weak": o.batch} | ({"strong": o.batch // ranks} if ranks > 1 and o.batch % ranks == 0 else {})
        for scaling, batch in parts.items():
            for row in launched(ranks, [*words, "--batch", str(batch)]):
                alone.setdefault(row["mode"], row["ms_per_step"])
                share = 1 if scaling == "weak" else ranks
                efficiency = alone[row["mode"]] / (row["ms_per_step"] * share)
                yield row | {"scaling": scaling, "efficiency": round(efficiency, 3)}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="what", required=True)
    of_sums, of_steps = kinds.add_parser("sums"), kinds.add_parser("steps")
    of_sums.add_argument("--kib", nargs="+", type=int, default=[1, 4, 16, 64, 256, 1024, 4096, 16384, 102400])
    of_sums.add_argument("--repeats", type=int, default=5)
    of_steps.add_argument("net", choices=NETS)
    of_steps.add_argument("--mode", nargs="+", choices=list(MODES), default=list(MODES))
    of_steps.add_argument("--batch", type=int, default=32)
    of_steps.add_argument("--steps", type=int)
    of_steps.add_argument("--buckets", nargs="+", type=int, help="parameters at which another bucket begins")
    for kind in (of_sums, of_steps):
        kind.add_argument("--ranks", nargs="+", type=int, default=[2, 4, 8])
        kind.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.worker:
        return worker(o)
    words = sys.argv[1:]
    rows = scaled(o, words) if o.what == "steps" else (row for n in o.ranks for row in launched(n, words))
    for row in rows:
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
