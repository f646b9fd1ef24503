"""ONNX files of networks that other frameworks made, with what these computed: `tests/importer/models/`."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from runner import nn, ops
from runner.core.values import Value
from runner.importer.network import OnnxNetwork

FOLDER = Path(__file__).parents[1] / "importer" / "models"
FILES = sorted(FOLDER.glob("*.onnx"))


@dataclass(frozen=True)
class Sample:
    """A file and its reference: a batch, outputs in eval mode, loss and gradients of a step in training mode."""

    path: Path
    facts: dict[str, Any]
    inputs: tuple[np.ndarray, ...]
    targets: np.ndarray
    outputs: np.ndarray
    loss: float
    gradients: dict[str, np.ndarray]

    def network(self, logits: bool) -> OnnxNetwork:
        """The imported network, as the file has it, or for its loss."""
        return OnnxNetwork(str(self.path), logits=None if logits else False)

    def loss_cell(self, network: nn.Cell) -> nn.Cell:
        """The network with the loss of the reference."""
        return _Squared(network) if self.facts["loss"] == "mse" else _Entropy(network)

    def of_parameters(self, gradients: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Gradients of initializers as those of the parameters of the framework that made the file.

        The reference lists the initializers of each parameter: that of its name, or else those with its values, in
        another layout where exporters change it. Gradients of several uses are added.
        """
        totals = {}
        for name, places in self.facts["initializers"].items():
            shape = self.gradients[name].shape
            parts = [(gradients[part], layout) for part, layout in places if part in gradients]
            totals[name] = sum(_as_parameter(part, layout, shape) for part, layout in parts)
        return totals

    def wanted(self, name: str, size: int) -> np.ndarray:
        """The gradient of a parameter; where the file repeats elements of one, the sums for its different elements."""
        gradient = self.gradients[name]
        if gradient.size == size:
            return gradient
        ((initializer, _),) = self.facts["initializers"][name]
        arrays = {x.name: onnx.numpy_helper.to_array(x) for x in onnx.load(self.path).graph.initializer}
        places = np.unique(arrays[initializer], return_inverse=True)[1]
        return np.bincount(places.reshape(-1), gradient.reshape(-1))


def sample(path: Path) -> Sample:
    """Read a file's reference."""
    with np.load(path.with_suffix(".npz")) as arrays:
        kinds = {
            kind: {k.partition("/")[2]: arrays[k] for k in arrays if k.startswith(kind)}
            for kind in ("input/", "gradient/")
        }
        facts = json.loads(arrays["facts"].tobytes())
        inputs = tuple(kinds["input/"].values())
        rest = arrays["targets"], arrays["outputs"], float(arrays["loss"])
        return Sample(path, facts, inputs, *rest, kinds["gradient/"])


def _as_parameter(gradient: np.ndarray, layout: str, shape: tuple[int, ...]) -> np.ndarray:
    match layout:
        case "transposed":
            return gradient.T
        case "channels last":
            return gradient.transpose(2, 3, 1, 0)
        case "first rows":
            rows = gradient.reshape(-1, shape[1])
            return np.pad(rows, ((0, shape[0] - len(rows)), (0, 0)))
    return gradient.reshape(shape) if gradient.size == math.prod(shape) else gradient  # of what a file repeats


class _Entropy(nn.Cell):
    """Mean softmax cross-entropy of logits over their last axis."""

    def __init__(self, network: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network = network
        self.loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
        network.attach_loss(self.loss)

    def construct(self, *inputs: Value) -> Value:
        logits = self.network(*inputs[:-1])
        return self.loss(ops.Reshape()(logits, (-1, logits.shape[-1])), ops.Reshape()(inputs[-1], (-1,)))


class _Squared(nn.Cell):
    """Mean squared error."""

    def __init__(self, network: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network, self.loss = network, nn.MSELoss()

    def construct(self, *inputs: Value) -> Value:
        return self.loss(self.network(*inputs[:-1]), inputs[-1])


class Step(nn.Cell):
    """Loss and gradients by initializer."""

    def __init__(self, cell: nn.Cell, weights: Sequence[Any]) -> None:
        super().__init__(auto_prefix=False)
        self.cell, self.weights = cell, tuple(weights)
        self.gradient = ops.GradOperation(get_by_list=True)

    def construct(self, *inputs: Value) -> tuple[Value, ...]:
        return self.cell(*inputs), *self.gradient(self.cell, self.weights)(*inputs)
