"""How time grows with what is asked for: exponents of power laws, 1 where twice as much takes twice as long.

    python benchmarks/growth.py
    python benchmarks/growth.py --curves compile --threads 1

`batch`: a step of LeNet against the size of its batch. `depth`: a step of narrow ResNets against their convolutions.
`sink`: a call of LeNet against the steps in it. `compile`: processor time of compiling a training step of the ResNets
in full width against their operators; building the network is not counted. Prints one JSON object per point, with the
median of some runs, and one per curve with the exponent that fits its points best.
"""

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np

from runner import context, dtype, nn, set_seed
from runner.compile.program import Program
from runner.config.groups.entries import NETWORKS
from runner.dataset import NumpySlicesDataset
from runner.device import Device
from runner.host.threads import kernel_threads
from runner.train import Model
from runner.train.sink import Sink
from runner.types import TensorType

RESNETS = "resnet18", "resnet34", "resnet50", "resnet101", "resnet152"
BATCHES = 8, 16, 32, 64, 128, 256
SINKS = 1, 3, 10, 30, 100, 300, 1000
WIDTH, BATCH = 8, 32
Point = tuple[dict[str, object], int, float]  # what it is, how much is asked for, seconds


def median_seconds(run: Callable[[], object], budget: float) -> float:
    """Of as many runs as take about that many seconds, after a first one."""
    run()
    seconds: list[float] = []
    while sum(seconds) < budget:
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def model(network: nn.Cell, threads: int) -> Model:
    """A network with loss and optimizer, in graph mode."""
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    optimizer = nn.Momentum(network.trainable_params(), 1e-4, 0.9)
    made = Model(network, loss, optimizer, mode=context.GRAPH_MODE, device=Device(threads=threads))
    made.train_network.set_train()  # as within `Model.train`: BatchNorm takes the statistics of the batch
    return made


def images(count: int, channels: int) -> tuple[np.ndarray, np.ndarray]:
    """Random images of 32 x 32 and labels."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((count, channels, 32, 32), np.float32), rng.integers(0, 10, count, np.int32)


def batch(threads: int, budget: float) -> Iterator[Point]:
    """LeNet with batches of several sizes."""
    for size in BATCHES:
        step, data = model(NETWORKS.kind["lenet5"].source(), threads).train_step, images(size, 1)
        yield {"batch": size}, size, median_seconds(lambda step=step, data=data: step(data), budget)


def depth(threads: int, budget: float) -> Iterator[Point]:
    """Narrow ResNets of several depths."""
    for name in RESNETS:
        network = NETWORKS.kind[name].source(width=WIDTH)
        convolutions = sum(isinstance(cell, nn.Conv2d) for _, cell in network.cells_and_names())
        step, data = model(network, threads).train_step, images(BATCH, 3)
        seconds = median_seconds(lambda step=step, data=data: step(data), budget)
        yield {"network": name, "width": WIDTH, "batch": BATCH, "convolutions": convolutions}, convolutions, seconds


def sink(threads: int, budget: float) -> Iterator[Point]:
    """LeNet with several steps in a call."""
    trained = model(NETWORKS.kind["lenet5"].source(), threads)
    data = NumpySlicesDataset(images(64 * BATCH, 1), ["image", "label"]).shuffle(64 * BATCH)
    sunk = Sink(trained.train_network, trained.device, data.batch(BATCH, drop_remainder=True))
    for size in SINKS:
        yield {"sink_size": size}, size, median_seconds(lambda size=size: sunk(size), budget)


def compile_time(threads: int, budget: float) -> Iterator[Point]:
    """Training steps of the ResNets; the first compilation of a process also imports, and is not counted."""
    types = [TensorType(dtype.float32, (BATCH, 3, 32, 32)), TensorType(dtype.int32, (BATCH,))]
    for name in ("resnet18", *RESNETS):
        step = model(NETWORKS.kind[name].source(), threads).train_network
        start = time.process_time()
        program = Program(step.construct, types, Device(threads=threads), "train_step")
        seconds, operators = time.process_time() - start, len(program.graph.nodes)
        point = {"network": name, "operators": operators, "onnx_nodes": len(program.model.graph.node)}
        yield point, operators, seconds


CURVES = {"batch": batch, "depth": depth, "sink": sink, "compile": compile_time}


def exponent(points: list[Point]) -> float:
    """The slope of a straight line through the logarithms."""
    amounts, seconds = ([math.log(value) for value in column] for column in list(zip(*points, strict=True))[1:])
    return float(np.polyfit(amounts, seconds, 1)[0])


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--curves", nargs="+", choices=list(CURVES), default=list(CURVES))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--budget", type=float, default=1.0, help="seconds for each point, about")
    o = parser.parse_args()
    set_seed(0)
    with kernel_threads(o.threads):
        for name in o.curves:
            points = list(CURVES[name](o.threads, o.budget))
            points = points[1:] if name == "compile" else points
            for told, _, seconds in points:
                print(json.dumps({"curve": name, **told, "seconds": round(seconds, 6)}), flush=True)
            print(json.dumps({"curve": name, "exponent": round(exponent(points), 2)}), flush=True)


if __name__ == "__main__":
    main()
