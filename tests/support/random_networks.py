"""Small random networks, with gradients, and the results of their operators in numpy."""

import math
from collections.abc import Sequence

import numpy as np

from runner import dtype as dt, ops
from runner.core.gradients import gradients
from runner.core.graph import Graph
from runner.core.trace import trace
from runner.core.values import Parameter, Tensor, Value
from runner.types import TensorType

IMAGE = {  # layers of images (N, C, H, W)
    "conv": lambda n, x: n.conv(x, ops.Conv2D(4, (3, 3), pad_mode="same")),
    "stride": lambda n, x: n.conv(x, ops.Conv2D(3, (3, 3), pad_mode="same", stride=(2, 2))),
    "point": lambda n, x: n.conv(x, ops.Conv2D(5, (1, 1))),
    "depth": lambda n, x: n.conv(x, ops.Conv2D(x.shape[1], (2, 2), pad_mode="same", group=x.shape[1])),
    "dilated": lambda n, x: n.conv(x, ops.Conv2D(2, (3, 3), pad_mode="same", dilation=(2, 2))),
    "tiles": lambda n, x: ops.MaxPool(2, 2)(x) if min(x.shape[2:]) > 1 else x,
    "overlap": lambda n, x: ops.MaxPool(3, 2, "same")(x),
    "average": lambda n, x: ops.AvgPool(2, 2)(x) if min(x.shape[2:]) > 1 else x,
    "norm": lambda n, x: n.norm(x),
    "scale": lambda n, x: x * n.weight(1, x.shape[1], 1, 1),
    "centre": lambda n, x: x + ops.ReduceMean(keep_dims=True)(x, (2, 3)),
    "swap": lambda n, x: ops.Transpose((1, 0, 2, 3))(x),
    "fold": lambda n, x: ops.Reshape((x.shape[1], x.shape[0], x.shape[2], x.shape[3]))(x),
    "flat": lambda n, x: ops.Reshape((x.shape[0], -1))(x),
}
ANY = {  # layers of (N, C, ...)
    "relu": lambda n, x: ops.ReLU()(x),
    "around": lambda n, x: x + ops.Tanh()(x),
    "batch": lambda n, x: x + ops.ReduceMean(keep_dims=True)(x, 0),
    "double": lambda n, x: ops.Concat(1)((x, ops.Neg()(x))),
    "softmax": lambda n, x: ops.Softmax(1)(x),
    "bias": lambda n, x: ops.BiasAdd()(x, n.weight(x.shape[1])),
}
MATRIX = {"dense": lambda n, x: ops.MatMul(transpose_b=True)(x, n.weight(6, x.shape[1]))}
LAYERS = sorted(IMAGE | ANY | MATRIX)


class Network:
    """Layers by name; a layer that does not fit the value that it gets is left out."""

    def __init__(self, layers: Sequence[str], seed: int) -> None:
        self.layers, self.rng = layers, np.random.default_rng(seed)
        self.weights: list[Parameter] = []

    def weight(self, *shape: int) -> Parameter:
        """A new weight: normal, and smaller the more there are for one result."""
        values = self.rng.standard_normal(shape, np.float32) / np.float32(math.sqrt(math.prod(shape[1:])))
        self.weights.append(Parameter(Tensor(values), f"w{len(self.weights)}"))
        return self.weights[-1]

    def conv(self, x: Value, op: ops.Conv2D) -> Value:
        """A convolution with a weight of its own."""
        return op(x, self.weight(op.out_channel, x.shape[1] // op.group, *op.kernel_size))

    def norm(self, x: Value) -> Value:
        """Batch normalisation in training; the moving statistics are dropped."""
        channels = x.shape[1]
        given = self.weight(channels), self.weight(channels), np.zeros(channels, "f"), np.ones(channels, "f")
        return ops.BatchNorm(True, 1e-2)(x, *given)[0]

    def step(self, x: Value) -> tuple[Value, ...]:
        """What comes out, a loss, and its gradients."""
        x = self.conv(x, ops.Conv2D(4, (3, 3), pad_mode="same"))
        for name in self.layers:
            fitting = ANY | (IMAGE if x.ndim == 4 else MATRIX)
            x = fitting[name](self, x) if name in fitting else x
        loss = ops.ReduceMean()(x * x)
        return x, loss, *gradients(loss, self.weights)


def traced(layers: Sequence[str], batch: int, size: int, seed: int) -> tuple[Graph, np.ndarray]:
    """The graph of such a network, and a batch of images (batch, 3, size, size)."""
    images = np.random.default_rng(seed + 1).standard_normal((batch, 3, size, size), np.float32)
    return trace(Network(layers, seed).step, [TensorType(dt.float32, images.shape)], "random"), images


def computed(graph: Graph, *arrays: np.ndarray) -> list[np.ndarray]:
    """The outputs of a graph by the numpy kernels of its operators, in float32."""
    known = dict(zip(graph.inputs, arrays, strict=True)) | {s: p.array for p, s in graph.parameters.items()}
    known |= graph.constants
    for node in graph.nodes:
        made = node.op.kernel(*(known[x] for x in node.inputs))
        known.update(zip(node.outputs, made if isinstance(made, tuple) else (made,), strict=True))
    return [np.asarray(known[y]) for y in graph.outputs]
