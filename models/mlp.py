"""A multi-layer perceptron for tables, or for small images as vectors."""

import math
from typing import Annotated, Literal

from runner import nn, register
from runner.core.values import Value

Width = Annotated[int, register.key(low=1, high=1 << 20)]
Rate = Annotated[float, register.key(low=0, below=1)]

ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU, "tanh": nn.Tanh}


@register.network("mlp")
class MLP(nn.Cell):
    """(N, ...) to (N, num_classes): fully connected layers, each with an activation and dropout but the last.

    Args:
        input_shape: shape of one sample; null: that of the dataset
        num_classes: number of outputs; null: the dataset's classes, 1 for a number as the target
        hidden: widths of the hidden layers
        activation: after each hidden layer
        dropout: share of the values that are zero while training, after each hidden layer
    """

    def __init__(
        self,
        input_shape: tuple[int, ...],
        num_classes: Width = 1,
        hidden: tuple[Width, ...] = (64, 64),
        activation: Literal["relu", "gelu", "tanh"] = "relu",
        dropout: Rate = 0.0,
    ) -> None:
        super().__init__()
        self.flatten = nn.Flatten()
        layers: list[nn.Cell] = []
        width = math.prod(input_shape)
        for units in hidden:
            layers += [nn.Dense(width, units, "he_uniform"), ACTIVATIONS[activation]()]
            if dropout:
                layers.append(nn.Dropout(1.0 - dropout))
            width = units
        self.layers = nn.SequentialCell([*layers, nn.Dense(width, num_classes, "xavier_uniform")])

    def construct(self, x: Value) -> Value:
        x = self.layers(self.flatten(x))
        return x
