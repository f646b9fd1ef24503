"""An observer that keeps what it is shown, and a training that it is shown."""

from collections.abc import Sequence

import numpy as np

from models.lenet import LeNet5
from runner import context, nn
from runner.core.graph import ObservedValue, ValueObserver
from runner.core.lowering import LAST
from runner.dataset import NumpySlicesDataset
from runner.host import seed
from runner.train import Model
from runner.train.callback import Callback

ROOT = "Default/network-TrainOneStepCell/"
Key = tuple[int, str, str, int]


class Spy(ValueObserver):
    """Keeps values by (step, full name without the root of sinks, side, slot), and parameters by (step, name)."""

    def __init__(self, steps: Sequence[int] = (), kinds: Sequence[str] = (), device_layout: bool = False) -> None:
        self.steps, self.kinds, self.device_layout = sorted(steps), kinds, device_layout
        self.values: dict[Key, np.ndarray] = {}
        self.parameters: dict[tuple[int, str], np.ndarray] = {}
        self.constants: dict[tuple[int, str], np.ndarray] = {}
        self.layouts: set[str] = set()
        self.events: list[tuple[str, int]] = []

    def next_step(self, step):
        return next((one for one in self.steps if one >= step), None)

    def selects(self, node):
        return not self.kinds or node.op.name in self.kinds

    def begin(self, step, types, owner):
        self.events.append(("begin", step))

    def operator(self, step, node, inputs, outputs):
        for side, values in (("input", inputs), ("output", outputs)):
            for slot, value in enumerate(values):
                self.layouts.add(value.layout.value)
                self.values[step, node.name.replace(ROOT, "Default/"), side, slot] = logical(value)

    def end(self, step, graph):
        self.events.append(("end", step))
        self.parameters |= {(step, p.name): np.array(p.array) for p in graph.parameters}
        self.constants |= {(step, symbol.name): np.array(array) for symbol, array in graph.constants.items()}


def logical(value: ObservedValue) -> np.ndarray:
    assert value.layout is not LAST or value.array.flags.c_contiguous
    return np.array(np.moveaxis(value.array, -1, 0) if value.layout is LAST else value.array)


class Losses(Callback):
    def __init__(self) -> None:
        self.all: list[float] = []

    def step_end(self, run_context):
        self.all += run_context.original_args().losses.tolist()


def train(mode, sunk, spy, *, rate=0.05, rows=40, batch=8, epochs=2, network=LeNet5, sink_size=-1):
    """Losses of LeNet-5 on noise, and the trained model."""
    seed.set_seed(2)
    noise = np.random.default_rng(0)
    images = noise.standard_normal((rows, 1, 32, 32)).astype(np.float32)
    labels = noise.integers(0, 10, rows).astype(np.int32)
    net = network()
    model = Model(
        net,
        nn.SoftmaxCrossEntropyWithLogits(True, "mean"),
        nn.Momentum(net.trainable_params(), rate, 0.9),
        mode=mode,
        values=spy,
    )
    losses = Losses()
    dataset = NumpySlicesDataset((images, labels), shuffle=True).batch(batch, drop_remainder=False)
    model.train(epochs, dataset, [losses], sunk, sink_size)
    return losses.all, model


MODES = {
    "graph": (context.GRAPH_MODE, False),
    "pynative": (context.PYNATIVE_MODE, False),
    "sunk": (context.GRAPH_MODE, True),
}
