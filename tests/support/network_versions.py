"""Versions of one small network, and a training step of each as a dump.

Weights depend on nothing but their shape, so a version that only adds, removes or renames operators without an effect
on the values has the same numbers in all operators that it shares with the others.
"""

from pathlib import Path

import numpy as np

import runner
from runner import Tensor, context, nn, ops


class Network(nn.Cell):
    """Two convolutions and two dense layers; the activation is one cell for all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, pad_mode="valid")
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(4, 6, 3, pad_mode="valid")
        self.flatten = nn.Flatten()
        self.fc1 = nn.Dense(96, 16)
        self.fc2 = nn.Dense(16, 10)

    def construct(self, x):
        x = self.relu(self.conv1(x))
        x = self.relu(self.conv2(x))
        x = self.relu(self.fc1(self.flatten(x)))
        return self.fc2(x)


class TwiceActivated(Network):
    """An operator more in a cell that exists: the second ReLU changes nothing."""

    def construct(self, x):
        x = self.relu(self.conv1(x))
        x = self.relu(self.relu(self.conv2(x)))
        x = self.relu(self.fc1(self.flatten(x)))
        return self.fc2(x)


class WithExtraCell(Network):
    """A cell more."""

    def __init__(self) -> None:
        super().__init__()
        self.extra = nn.ReLU()

    def construct(self, x):
        x = self.extra(self.relu(self.conv1(x)))
        x = self.relu(self.conv2(x))
        x = self.relu(self.fc1(self.flatten(x)))
        return self.fc2(x)


class WithExtraLayer(Network):
    """A layer more, with parameters; its weight is the identity."""

    def __init__(self) -> None:
        super().__init__()
        self.between = nn.Dense(16, 16, has_bias=False)

    def construct(self, x):
        x = self.relu(self.conv1(x))
        x = self.relu(self.conv2(x))
        x = self.between(self.relu(self.fc1(self.flatten(x))))
        return self.fc2(x)


class Renamed(nn.Cell):
    """Other names of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, pad_mode="valid")
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(4, 6, 3, pad_mode="valid")
        self.flatten = nn.Flatten()
        self.fc1 = nn.Dense(96, 16)
        self.head = nn.Dense(16, 10)

    def construct(self, x):
        x = self.relu(self.first(x))
        x = self.relu(self.conv2(x))
        x = self.relu(self.fc1(self.flatten(x)))
        return self.head(x)


class Convolution(nn.Conv2d):
    """Another class name."""


class OtherClass(Network):
    """A layer of another class."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = Convolution(1, 4, 3, pad_mode="valid")


class WithCast(Network):
    """Casts of its own, of the types that a precision casts to."""

    def construct(self, x):
        x = self.relu(self.conv1(ops.Cast()(x, runner.dtype.float32)))
        x = ops.Cast()(ops.Cast()(self.relu(self.conv2(x)), runner.dtype.float16), runner.dtype.float32)
        x = self.relu(self.fc1(self.flatten(x)))
        return self.fc2(x)


class Scaled(Network):
    """An operator more, which changes the values."""

    def construct(self, x):
        x = self.relu(self.conv1(x))
        x = self.relu(self.conv2(x) * 1.5)
        x = self.relu(self.fc1(self.flatten(x)))
        return self.fc2(x)


class Second(nn.Cell):
    """A second version: a cell more, a layer of another class, another one renamed, and two ReLUs in the new cell."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = Convolution(1, 4, 3, pad_mode="valid")
        self.relu = nn.ReLU()
        self.extra = nn.ReLU()
        self.conv2 = nn.Conv2d(4, 6, 3, pad_mode="valid")
        self.flatten = nn.Flatten()
        self.fc1 = nn.Dense(96, 16)
        self.head = nn.Dense(16, 10)

    def construct(self, x):
        x = self.extra(self.relu(self.conv1(x)))
        x = self.extra(self.conv2(x))
        x = self.relu(self.fc1(self.flatten(x)))
        return self.head(x)


class Other(nn.Cell):
    """A network that has nothing in common with the others."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = runner.Parameter(np.ones((64, 10), np.float32), "weight")

    def construct(self, x):
        return ops.Tanh()(ops.Reshape()(x, (4, 64))) @ self.weight


def dump_step(folder: Path, network: nn.Cell, mode: int = context.GRAPH_MODE, factor: float = 1.0) -> Path:
    """Dump a training step; the weight of `conv2` is multiplied by `factor`."""
    for name, parameter in network.parameters_and_names():
        random = np.random.default_rng(parameter.size)
        value = (random.normal(size=parameter.shape) / np.sqrt(parameter.size)).astype(np.float32)
        if name == "between.weight":
            value = np.eye(16, dtype=np.float32)
        parameter.set_data(Tensor(value * np.float32(factor if name == "conv2.weight" else 1.0)))
    context.set_context(mode=mode)
    loss = nn.WithLossCell(network, nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"))
    step = nn.TrainOneStepCell(loss, nn.Momentum(network.trainable_params(), 0.01, 0.9))
    step.set_train()
    random = np.random.default_rng(7)
    images = random.normal(size=(4, 1, 8, 8)).astype(np.float32)
    with runner.dump(folder):
        step(Tensor(images), Tensor(np.arange(4, dtype=np.int32)))
    return folder
