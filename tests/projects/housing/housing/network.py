"""A network for tables of numbers."""

from typing import Annotated

import runner
from runner import nn


class Residual(nn.Cell):
    """Two dense layers, whose output is added to their input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm((width,))
        self.fc1 = nn.Dense(width, width, weight_init="HeUniform", activation="relu")
        self.fc2 = nn.Dense(width, width, weight_init="zeros")

    def construct(self, x):
        return x + self.fc2(self.fc1(self.norm(x)))


@runner.register.network("prices")
class Prices(nn.Cell):
    """A multilayer perceptron with residual blocks: (N, num_features) to one number each, (N, 1).

    Args:
        num_features: numbers for each row, as the dataset has them
        width: outputs of each layer
        depth: residual blocks
        unit: what an output of 1 stands for, such as the typical size of a target
    """

    def __init__(
        self,
        num_features: int,
        width: Annotated[int, runner.key(low=1, high=4096)] = 32,
        depth: Annotated[int, runner.key(low=0, high=100)] = 2,
        unit: Annotated[float, runner.key(above=0)] = 1.0,
    ) -> None:
        super().__init__()
        self.unit = unit
        self.first = nn.Dense(num_features, width, weight_init="HeUniform", activation="relu")
        self.blocks = nn.SequentialCell([Residual(width) for _ in range(depth)])
        self.last = nn.Dense(width, 1, weight_init="HeUniform")

    def construct(self, x):
        return self.last(self.blocks(self.first(x))) * self.unit
