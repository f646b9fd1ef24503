"""Helpers: graphs of training steps."""

import numpy as np

from models.lenet import LeNet5
from models.resnet import resnet18
from runner import dtype as dt, nn
from runner.core.graph import NO_GRAPHS, Graph, GraphObserver
from runner.core.trace import trace
from runner.core.values import Value
from runner.host import seed
from runner.types import TensorType

IMAGES = {"lenet": (32, 1, 32, 32), "resnet18": (2, 3, 32, 32)}
NETWORKS = {"lenet": LeNet5, "resnet18": lambda: resnet18(num_classes=10, num_channels=3)}


class Tiny(nn.Cell):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.relu = nn.Dense(3, 2), nn.ReLU()

    def construct(self, x: Value) -> Value:
        return self.relu(self.fc(x)) * 0.5


def step_cell(name: str) -> nn.Cell:
    """A training step, the same at every call."""
    seed.set_seed(1)
    network = NETWORKS[name]()
    loss = nn.WithLossCell(network, nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"))
    cell = nn.TrainOneStepCell(loss, nn.Momentum(network.trainable_params(), 0.01, 0.9))
    cell.set_train()
    return cell


def batch(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels for it."""
    rng = np.random.default_rng(0)
    shape = IMAGES[name]
    return rng.normal(size=shape).astype(np.float32), rng.integers(0, 10, shape[0]).astype(np.int32)


def step_graph(name: str, observer: GraphObserver = NO_GRAPHS) -> Graph:
    """Its graph as traced."""
    types = [TensorType.of(array) for array in batch(name)]
    return trace(step_cell(name).construct, types, "train_step", observer=observer)


def tiny_graph() -> Graph:
    """The graph of two layers and a product."""
    seed.set_seed(1)
    return trace(Tiny().construct, [TensorType(dt.float32, (4, 3))], "tiny")
