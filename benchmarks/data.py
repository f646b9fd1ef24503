"""Does a training step wait for its batch?

    python benchmarks/data.py                                  CIFAR-10 with augmentation, and the digits
    python benchmarks/data.py --mode pynative --threads 1 --batch 128 --data-dir ../data/cifar10

Trains LeNet-5 step by step. For each dataset one JSON object per number of threads that prepare batches (0: the step
does it itself; "chosen" marks what a run would do with `dataset.num_parallel_workers=1`): microseconds to prepare one
batch when nothing else runs, microseconds that a step waited for its batch and took in all, and the share of waiting.
Times of a step are medians. Without `--data-dir` the images of CIFAR-10 are random bytes in its format.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from runner import context, nn, set_seed
from runner.config.groups.entries import NETWORKS
from runner.dataset import open_dataset
from runner.dataset.pipeline import Dataset
from runner.dataset.prefetch import prefetch_batches, threads_for
from runner.device import Device
from runner.host.threads import kernel_threads
from runner.train import Model
from runner.train.loop import StepByStep

MODES = {"graph": context.GRAPH_MODE, "pynative": context.PYNATIVE_MODE}
RECORDS, RECORD = 10000, 1 + 3 * 32 * 32


class Timed:
    """An iterator of batches that notes how long each `next` took, in seconds."""

    def __init__(self, batches: Generator[Any, None, None]) -> None:
        self.batches = batches
        self.waited: list[float] = []

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        start = time.perf_counter()
        batch = next(self.batches)
        self.waited.append(time.perf_counter() - start)
        return batch

    def close(self) -> None:
        """End the threads."""
        self.batches.close()


def write_random_cifar10(folder: Path) -> None:
    """A training file of random images with labels from 0 to 9."""
    records = np.random.default_rng(0).integers(0, 256, (RECORDS, RECORD), dtype=np.uint8)
    records[:, 0] %= 10
    (folder / "data_batch_1.bin").write_bytes(records.tobytes())


def median_us(function: Callable[[], object], count: int) -> float:
    """Microseconds of one call."""
    times = []
    for _ in range(count):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def model_for(channels: int, mode: str, threads: int) -> Model:
    """LeNet-5 with its loss and optimizer."""
    set_seed(1)
    network = NETWORKS.kind["lenet5"].source(num_channels=channels)
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    optimizer = nn.Momentum(network.trainable_params(), 0.01, 0.9)
    return Model(network, loss, optimizer, mode=MODES[mode], device=Device(threads=threads))


def measure(dataset: Dataset, o: argparse.Namespace, preparing: int) -> dict[str, float]:
    """Train for `o.steps` steps with that many threads that prepare batches."""
    model = model_for(dataset.output_shapes()[0][1], o.mode, o.threads)
    timed = Timed(prefetch_batches(dataset.fetch, dataset.visits_from(0), preparing))
    step = StepByStep(model.train_step, timed)  # type: ignore[arg-type]
    with kernel_threads(o.threads):
        step(20)
        took = median_us(lambda: step(1), o.steps)
    closing = median_us(step.close, 1)
    waited = timed.waited[-o.steps :]
    return {
        "waited_us": round(statistics.median(waited) * 1e6, 1),
        "longest_wait_us": round(max(waited) * 1e6, 1),
        "step_us": round(took, 1),
        "share_of_step": round(statistics.median(waited) * 1e6 / took, 4),
        "closing_us": round(closing, 1),
    }


def report(name: str, dataset: Dataset, o: argparse.Namespace) -> None:
    """Print the rows of one dataset."""
    dataset.compact()
    visits = next(dataset.visits_from(0))
    prepare = median_us(lambda: dataset.fetch(visits), 500)
    size = dataset.get_batch_size()
    kinds = zip(dataset.column_types(), dataset.remaining.values(), strict=True)
    values = sum(kind.size // size * (1 + len(left)) for kind, left in kinds) * size
    for preparing in o.preparing:
        row = {"data": name, "mode": o.mode, "batch": o.batch, "device_threads": o.threads, "preparing": preparing}
        row |= {"chosen": preparing == threads_for(1, values), "prepare_us": round(prepare, 1)}
        print(json.dumps(row | measure(dataset, o, preparing)), flush=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=list(MODES), default="graph")
    parser.add_argument("--threads", type=int, default=1, help="of the device")
    parser.add_argument("--preparing", type=int, nargs="+", default=[0, 1, 2], help="threads that prepare batches")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--data-dir", help="a folder with CIFAR-10")
    o = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if o.data_dir is None:
            write_random_cifar10(Path(folder))
        settings = {"name": "cifar10", "data_dir": o.data_dir or folder, "batch_size": o.batch, "augment": True}
        report("cifar10, augmented", open_dataset(**settings, train=True), o)
    report("digits", open_dataset(batch_size=o.batch, train=True), o)


if __name__ == "__main__":
    main()
