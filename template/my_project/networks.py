"""Networks: the parameters of a constructor are the keys of the config."""

from itertools import pairwise
from typing import Annotated

import runner
from runner import nn


@runner.register.network("tower")
class Tower(nn.Cell):
    """Dense layers, one above the other. The dataset determines `num_features` and `num_classes`."""

    def __init__(
        self,
        num_features: int,
        num_classes: int,
        hidden: Annotated[int, runner.key(low=1, high=4096)] = 32,
        depth: Annotated[int, runner.key(low=1, high=64)] = 2,
    ) -> None:
        super().__init__()
        widths = [num_features] + [hidden] * depth
        layers = [nn.Dense(n, m, activation="relu") for n, m in pairwise(widths)]
        self.layers = nn.SequentialCell(*layers, nn.Dense(hidden, num_classes))

    def construct(self, points):
        """Float32 [batch, num_features] to one score for each class, Float32 [batch, num_classes]."""
        return self.layers(points)
