"""What a profile costs: trainings in graph mode that are profiled, beside the same ones that are not, in turn.

    python benchmarks/profile.py
    python benchmarks/profile.py --net resnet18 --steps 60 --repeats 3

`training_trace`: only the parts of steps. `everything`: also operators, the data and a measure of the hardware.
A training is whole: all that a profile adds is in it, from opening a second session to writing the files.
`lost` is the share of the throughput that is lost, `lost_in_steps` the same without what comes after the last step,
`lost_processor` the same of the processor's time, which other processes disturb less. Prints one JSON object per line;
the medians of the repeats come last.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from training import model_of

from runner.dataset import NumpySlicesDataset
from runner.dataset.pipeline import Dataset
from runner.dataset.stages import stages
from runner.device import Device
from runner.host.threads import kernel_threads
from runner.observe.profile import files
from runner.observe.profile.record import ProfileRecord
from runner.observe.profile.settings import ProfileSettings, ProfileTarget
from runner.train import Model
from runner.train.profile.profiler import TrainingProfiler

BATCH, BATCHES = 32, 8
WANTED: dict[str, dict[str, Any]] = {
    "training_trace": {"training_trace": True},
    "everything": {
        "training_trace": True,
        "task_trace": True,
        "aicpu_trace": True,
        "ai_core_metrics": "PipeUtilization",
    },
}


def data_of(net: str) -> Dataset:
    """A few batches of noise."""
    noise = np.random.default_rng(0)
    images = noise.standard_normal((BATCHES * BATCH, *((1, 32, 32) if net == "lenet5" else (3, 32, 32))), np.float32)
    return NumpySlicesDataset((images, noise.integers(0, 10, BATCHES * BATCH, np.int32))).batch(BATCH)


def seconds(model: Model, net: str, sunk: bool, steps: int) -> np.ndarray:
    """Of a training: by the clock, and of the processor. With data of its own, so that a sink is compiled each time."""
    data = data_of(net)
    start = time.perf_counter(), time.process_time()
    model.train(1 if sunk else -(-steps // BATCHES), data, None, sunk, steps if sunk else -1, max_steps=steps)
    return np.array([time.perf_counter(), time.process_time()]) - start


class Watched:
    """A profiled training, and what its record says."""

    def __init__(self, o: argparse.Namespace, sunk: bool, folder: Path, wanted: dict[str, Any]) -> None:
        self.settings = ProfileSettings(folder, **wanted)
        self.place, self.records = ProfileTarget("graph", "cpu"), [ProfileRecord(0)]
        self.written = 0.0
        self.model = model_of(o.net, "graph", Device(threads=o.threads))
        self.model.profiler = TrainingProfiler(self.settings, self._write)

    def _write(self, record: ProfileRecord, data: Dataset) -> None:
        start = time.perf_counter()
        files.write(record, self.settings, self.place, stages(data))
        self.records.append(record)
        self.written = time.perf_counter() - start


def one_turn(o: argparse.Namespace, sunk: bool) -> Iterator[dict[str, Any]]:
    """A training without a profile before and after each one with. All of one model: two models differ by 5%."""
    for name, wanted in WANTED.items():
        with tempfile.TemporaryDirectory() as folder:
            watched = Watched(o, sunk, Path(folder), wanted)
            model, profiler = watched.model, watched.model.profiler
            taken = []
            for following in (None, None, profiler, None):  # the first one compiles, and its memory becomes warm
                model.profiler = following
                taken.append(seconds(model, o.net, sunk, o.steps if len(taken) else 1))
        between, profiled = (taken[1] + taken[3]) / 2, taken[2]
        calls = watched.records[-1].calls
        inside = (calls[-1].stop - calls[0].start) / 1e9
        yield {
            "what": name,
            "sunk": sunk,
            "plain_ms_per_step": between[0] / o.steps * 1e3,
            "looked_at": sum(call.steps for call in calls if call.profiled),
            "written_ms": watched.written * 1e3,
            "lost": 1 - between[0] / profiled[0],
            "lost_in_steps": 1 - between[0] / inside,
            "lost_processor": 1 - between[1] / profiled[1],
        }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", choices=["lenet5", "resnet18"], default="lenet5")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    o = parser.parse_args()
    each: dict[tuple[str, bool], list[dict[str, Any]]] = {}
    with kernel_threads(o.threads):
        for _ in range(o.repeats):
            for row in chain(one_turn(o, False), one_turn(o, True)):
                print(json.dumps(row), flush=True)
                each.setdefault((row["what"], row["sunk"]), []).append(row)
    for (name, sunk), rows in each.items():
        numbers = {key: statistics.median(row[key] for row in rows) for key in rows[0] if key not in ("what", "sunk")}
        print(json.dumps({"what": name, "sunk": sunk, "repeats": len(rows), "net": o.net, **numbers}))


if __name__ == "__main__":
    main()
