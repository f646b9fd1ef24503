"""A convolutional network for small images."""

from itertools import pairwise
from typing import Annotated

import runner
from runner import nn, ops


class Block(nn.Cell):
    """Convolution, batch normalization, GELU, and pooling to half the size.

    All of it is smooth: at the kinks of ReLU and MaxPool a rounding error changes which element the gradient reaches,
    so that two modes drift from each other within a hundred steps.
    """

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(before, after, 3, pad_mode="same", weight_init="HeUniform")
        self.norm = nn.BatchNorm2d(after)
        self.act, self.pool = nn.GELU(), nn.AvgPool2d(2, 2)

    def construct(self, x):
        return self.pool(self.act(self.norm(self.conv(x))))


@runner.register.network("outline")
class Outline(nn.Cell):
    """Three blocks, the mean over the image, dropout and a dense layer: (N, C, H, W) to (N, num_classes).

    Args:
        num_classes: outputs, as many as the dataset has classes
        num_channels: channels of an image
        width: channels after the first block; each of the others has twice as many as the one before
        keep: probability with which dropout keeps a number
    """

    def __init__(
        self,
        num_classes: int,
        num_channels: int,
        width: Annotated[int, runner.key(low=1, high=1024)] = 16,
        keep: Annotated[float, runner.key(above=0, high=1)] = 0.9,
    ) -> None:
        super().__init__()
        sizes = [num_channels, width, 2 * width, 4 * width]
        self.blocks = nn.SequentialCell([Block(*pair) for pair in pairwise(sizes)])
        self.mean, self.dropout = ops.ReduceMean(), nn.Dropout(keep)
        self.head = nn.Dense(sizes[-1], num_classes, weight_init="HeUniform")

    def construct(self, x):
        return self.head(self.dropout(self.mean(self.blocks(x), (2, 3))))
