"""Three small networks with their data: what a user may write with the layers and operators that there are."""

import math
from collections.abc import Callable

import numpy as np

from runner import nn, ops
from runner.core.values import Parameter, Tensor, Value
from runner.host import seed

STEPS = 6
CLASSES = 4
WIDTH, LENGTH, WORDS = 8, 5, 11
KEPT, DROPOUT_SEED = 0.8, 3
Batch = tuple[np.ndarray, np.ndarray]


class Perceptron(nn.Cell):
    """Two dense layers with LayerNorm, GELU and Dropout between them."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.norm, self.act = nn.Dense(20, 32), nn.LayerNorm((32,)), nn.GELU()
        self.dropout, self.fc2 = nn.Dropout(KEPT), nn.Dense(32, CLASSES)
        self.dropout.dropout = ops.Dropout(KEPT, DROPOUT_SEED)

    def construct(self, x: Value) -> Value:
        return self.fc2(self.dropout(self.act(self.norm(self.fc1(x)))))


class Mobile(nn.Cell):
    """Convolutions that are depthwise and pointwise in turn, with ReLU6."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2)
        self.depth1, self.point1 = nn.Conv2d(8, 8, 3, group=8), nn.Conv2d(8, 12, 1, has_bias=True)
        self.depth2 = nn.Conv2d(12, 12, 3, stride=2, pad_mode="pad", padding=(0, 1, 1, 0), group=12)
        self.act, self.mean, self.fc = nn.ReLU6(), ops.ReduceMean(), nn.Dense(12, CLASSES)

    def construct(self, x: Value) -> Value:
        for layer in (self.stem, self.depth1, self.point1, self.depth2):
            x = self.act(layer(x))
        return self.fc(self.mean(x, (2, 3)))


class Transformer(nn.Cell):
    """One block with one head: attention and a feed-forward part, both with a way around them."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.places = Parameter(Tensor(np.zeros((LENGTH, WIDTH), np.float32)))
        self.norm1, self.norm2 = nn.LayerNorm((WIDTH,)), nn.LayerNorm((WIDTH,))
        self.qkv, self.out = nn.Dense(WIDTH, 3 * WIDTH), nn.Dense(WIDTH, WIDTH)
        self.feed = nn.SequentialCell(nn.Dense(WIDTH, 2 * WIDTH, activation="gelu"), nn.Dense(2 * WIDTH, WIDTH))
        self.head = nn.Dense(WIDTH, CLASSES)
        self.split, self.softmax, self.mean = ops.Split(-1, 3), nn.Softmax(), ops.ReduceMean()
        self.compare, self.weigh = ops.BatchMatMul(transpose_b=True), ops.BatchMatMul()

    def construct(self, ids: Value) -> Value:
        x = self.words(ids) + self.places
        q, k, v = self.split(self.qkv(self.norm1(x)))
        x = x + self.out(self.weigh(self.softmax(self.compare(q, k) * (1 / math.sqrt(WIDTH))), v))
        x = x + self.feed(self.norm2(x))
        return self.head(self.mean(x, 1))


NETWORKS: dict[str, Callable[[], nn.Cell]] = {
    "perceptron": Perceptron,
    "mobile": Mobile,
    "transformer": Transformer,
}


def made(name: str) -> nn.Cell:
    """The network with weights that follow from their position and shape."""
    seed.set_seed(1)
    network, rng = NETWORKS[name](), np.random.default_rng(0)
    for parameter in network.trainable_params():
        if parameter.ndim > 1:
            scale = 1.0 / math.sqrt(math.prod(parameter.shape[1:]))
            parameter.set_data(rng.normal(0.0, scale, parameter.shape).astype(np.float32))
    return network


def batch(name: str) -> Batch:
    """Sixteen samples and their classes."""
    rng = np.random.default_rng(1)
    labels = rng.integers(0, CLASSES, 16).astype(np.int32)
    if name == "transformer":
        return rng.integers(0, WORDS, (16, LENGTH)).astype(np.int32), labels
    shape = (16, 20) if name == "perceptron" else (16, 3, 9, 9)
    return rng.normal(0.0, 2.0, shape).astype(np.float32), labels


def step(name: str) -> nn.TrainOneStepCell:
    """A training step with Momentum(0.1, 0.9)."""
    network = made(name)
    loss = nn.WithLossCell(network, nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"))
    cell = nn.TrainOneStepCell(loss, nn.Momentum(network.trainable_params(), 0.1, 0.9))
    cell.set_train()
    return cell
