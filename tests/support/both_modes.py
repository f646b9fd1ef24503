"""Helpers: run a cell or a function in PyNative and in graph mode, and measure the distance of two results."""

from collections.abc import Callable, Sequence

import numpy as np

from models.lenet import LeNet5
from runner import nn
from runner.compile.program import Program
from runner.core.interpreter import Eager
from runner.core.operators import Node, Primitive
from runner.core.trace import trace
from runner.core.values import Tensor, Value
from runner.device import Device
from runner.types import TensorType

MODES = "pynative", "graph"
Run = Callable[..., list[np.ndarray]]


def step_of(function: Callable[..., object], mode: str) -> Run:
    """A function of arrays that runs `function` once per call; parameters have their new values afterwards."""
    return _pynative(function) if mode == "pynative" else _graph(function)


def _pynative(function: Callable[..., object]) -> Run:
    def run(*arrays: np.ndarray) -> list[np.ndarray]:
        with Eager() as interpreter:
            made = function(*map(Tensor, arrays))
            interpreter.commit()
        return [value.asnumpy() for value in (made if isinstance(made, tuple | list) else (made,))]

    return run


def _graph(function: Callable[..., object]) -> Run:
    programs: list[Program] = []

    def run(*arrays: np.ndarray) -> list[np.ndarray]:
        if not programs:
            programs.append(Program(function, [TensorType.of(a) for a in arrays], Device(threads=1), "step"))
        return programs[0](arrays)

    return run


def nodes_of(function: Callable[..., object], mode: str, *arrays: np.ndarray) -> Sequence[Node]:
    """What the mode keeps on record of one call, before any pass."""
    if mode == "graph":
        return trace(function, [TensorType.of(a) for a in arrays], "step").nodes
    with Recording() as interpreter:
        function(*map(Tensor, arrays))
    return interpreter.seen


class Recording(Eager):
    """Keeps a node for every operator, also after the tape was given away."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Node] = []

    def apply(self, op: Primitive, inputs: tuple[Value, ...], types: tuple[TensorType, ...]) -> tuple[Value, ...]:
        """Compute and remember."""
        outputs = super().apply(op, inputs, types)
        self.seen.append(Node(op, inputs, outputs, self.current_scope(), self.count, ()))
        return outputs


def lenet_step(optimizer: str = "momentum") -> nn.TrainOneStepCell:
    """LeNet with its loss and an optimizer; the weights follow from the seed."""
    network = LeNet5()
    kinds = {
        "momentum": lambda p: nn.Momentum(p, 0.01, 0.9),
        "sgd": lambda p: nn.SGD(p, 0.01, 0.9, weight_decay=1e-3, nesterov=True),
        "adam": lambda p: nn.Adam(p, 1e-3),
    }
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    return nn.TrainOneStepCell(nn.WithLossCell(network, loss), kinds[optimizer](network.trainable_params()))


def digits(steps: int, batch: int = 32, seed: int = 7) -> list[tuple[np.ndarray, np.ndarray]]:
    """Batches in the form of digits: coarse bright shapes on black, one for each class, under noise; 0 to 1."""
    rng = np.random.default_rng(seed)
    classes = (rng.random((10, 1, 8, 8)) < 0.3).repeat(4, axis=2).repeat(4, axis=3).astype(np.float32)
    made = []
    for _ in range(steps):
        labels = rng.integers(0, 10, batch).astype(np.int32)
        made.append((0.8 * classes[labels] + 0.2 * rng.random((batch, 1, 32, 32), np.float32), labels))
    return made


def relative(a: np.ndarray, b: np.ndarray) -> float:
    """Largest difference, relative to the largest element of `b`."""
    scale = max(float(np.abs(b).max(initial=0.0)), 1e-30)
    return float(np.abs(a.astype(np.float64) - b).max(initial=0.0)) / scale
