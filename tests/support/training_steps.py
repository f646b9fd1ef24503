"""Helpers: training steps of small networks, and what a graph gives when onnxruntime runs it as it stands."""

from collections.abc import Callable

import numpy as np
from both_modes import digits

from models.lenet import LeNet5
from models.resnet import BasicBlock, ResNet
from runner import nn
from runner.compile.onnx.lower import lower, parameter_values
from runner.compile.session import Session
from runner.core.graph import Graph
from runner.core.values import Parameter
from runner.device import Device
from runner.host import seed

Batch = tuple[np.ndarray, np.ndarray]


def lenet(batch: int = 8) -> tuple[nn.Cell, Batch]:
    """LeNet-5 with the same weights every time, and a batch."""
    seed.set_seed(1)
    return LeNet5(), digits(1, batch)[0]


def resnet(batch: int = 8, stem: str = "cifar") -> tuple[nn.Cell, Batch]:
    """A narrow ResNet for small images with the same weights every time, and a batch."""
    seed.set_seed(1)
    rng = np.random.default_rng(3)
    images = rng.standard_normal((batch, 3, 32, 32), np.float32)
    return ResNet(BasicBlock, (1, 1, 1, 1), width=4, stem=stem), (images, rng.integers(0, 10, batch).astype(np.int32))


def momentum(parameters: list[Parameter]) -> nn.Optimizer:
    """The optimizer of most tests here."""
    return nn.Momentum(parameters, 0.01, 0.9)


def training_step(
    network: nn.Cell, optimizer: Callable[[list[Parameter]], nn.Optimizer] = momentum
) -> nn.TrainOneStepCell:
    """One step of training with the mean cross entropy."""
    loss = nn.WithLossCell(network, nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"))
    step = nn.TrainOneStepCell(loss, optimizer(network.trainable_params()))
    step.set_train()
    return step


def results(graph: Graph, *arrays: np.ndarray) -> list[np.ndarray]:
    """All results of a graph, the outputs first. onnxruntime runs what we lowered, without rewriting of its own."""
    inputs = [f"input{k}" for k in range(len(arrays))]
    model = lower(graph, inputs, [f"output{k}" for k in range(len(graph.outputs))])
    session = Session(model.SerializeToString(), Device(threads=1), optimize=False)
    made = session.run(dict(zip(inputs, arrays, strict=True)) | parameter_values(graph))
    return [made[name] for name in session.outputs]
