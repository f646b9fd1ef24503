"""One training step of runner, measured in this process: the contender that benchmarks/step.py sets against peers.

    python benchmarks/one_step.py resnet50 --mode graph --threads 2 --sink 3

Prints one JSON object. With `--serve` it prints an empty line after a warm-up, and then for each line with a number of
steps on standard input the milliseconds that they took: benchmarks/pairs.py runs two of these processes in turn.
"""

import sys
import time

import numpy as np
from peers.timing import DEVICES, MORE_NETS, arguments, first_row, parsed, report, timed
from training import MODES, data_of, model_of

from runner import __version__
from runner.dataset import NumpySlicesDataset
from runner.device import Device
from runner.host.machine import usable_cores
from runner.host.threads import kernel_threads
from runner.train import Model
from runner.train.sink import Sink


class Single:
    """Steps one by one, each with a new batch."""

    def __init__(self, model: Model, images: np.ndarray, labels: np.ndarray, net: str, batch: int) -> None:
        self.step, self.images, self.labels, self.net, self.batch = model.train_step, images, labels, net, batch
        self.order = np.random.default_rng(0).permutation(len(images))

    def __call__(self, steps: int) -> None:
        """So many steps."""
        for i in range(steps):
            start = first_row(i, self.net, self.batch)
            rows = self.order[start : start + self.batch]
            self.step((self.images[rows], self.labels[rows]))


class Sunk:
    """At most `size` steps in a call."""

    def __init__(self, model: Model, images: np.ndarray, labels: np.ndarray, batch: int, size: int) -> None:
        data = NumpySlicesDataset((images, labels), ["image", "label"]).shuffle(len(images))
        self.step, self.size = Sink(model.train_network, model.device, data.batch(batch, drop_remainder=True)), size

    def __call__(self, steps: int) -> None:
        """So many steps."""
        for start in range(0, steps, self.size):
            self.step(min(self.size, steps - start))


def serve(run: Single | Sunk, steps: int) -> None:
    """Time as many steps as each line of standard input says."""
    run(steps)
    print(flush=True)
    for line in sys.stdin:
        start = time.perf_counter()
        run(int(line))
        print((time.perf_counter() - start) * 1e3, flush=True)


def main() -> None:
    """Command line."""
    parser = arguments(__doc__, MORE_NETS, DEVICES)
    parser.add_argument("--serve", action="store_true", help="time the steps that standard input requests")
    parser.add_argument("--mode", choices=list(MODES), default="graph")
    parser.add_argument("--sink", type=int, default=0, help="steps in one call (graph mode); 0: one by one")
    o = parsed(parser)
    device = Device(o.device.upper(), threads=o.threads, tf32=o.tf32)
    model, (images, labels) = model_of(o.net, o.mode, device, o.onnx), data_of(o)
    sunk = bool(o.sink) and o.mode == "graph"
    run = Sunk(model, images, labels, o.batch, o.sink) if sunk else Single(model, images, labels, o.net, o.batch)
    with kernel_threads(o.threads or usable_cores()):
        if o.serve:
            return serve(run, o.steps)
        times = timed(run, o.steps)
    programs = list(getattr(run.step, "programs", {}).values())
    row = {"mode": o.mode, "sink": o.sink if sunk else 0, "version": __version__}
    row |= {"parameters": sum(p.size for p in model.network.trainable_params()), **times}
    if programs:
        row["compile_seconds"] = round(sum(p.compile_seconds for p in programs), 3)
        row["operators"] = len(programs[0].graph.nodes)
    report("runner", o, **row)


if __name__ == "__main__":
    main()
