"""A small convolutional network for first experiments with images."""

from typing import Annotated

from runner import nn, ops, register
from runner.core.values import Value

Count = Annotated[int, register.key(low=1, high=65536)]
Rate = Annotated[float, register.key(low=0, below=1)]


class Block(nn.Cell):
    """A 3 x 3 convolution, BatchNorm, ReLU, and a max-pool of stride 2: (N, C, H, W) to (N, out, H / 2, W / 2)."""

    def __init__(self, in_channels: int, out_channels: int, batch_norm: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, 3, has_bias=not batch_norm, weight_init="he_uniform")
        self.norm = nn.BatchNorm2d(out_channels) if batch_norm else None
        self.relu = nn.ReLU()
        self.pool = nn.MaxPool2d(kernel_size=2, stride=2, pad_mode="same")

    def construct(self, x: Value) -> Value:
        x = self.conv(x)
        if self.norm is not None:
            x = self.norm(x)
        x = self.pool(self.relu(x))
        return x


@register.network("cnn")
class CNN(nn.Cell):
    """(N, num_channels, H, W), of any size, to logits (N, num_classes): blocks, a mean over the image, one layer.

    Args:
        num_classes: number of outputs
        num_channels: channels of the input
        channels: channels of each block, which halves height and width
        batch_norm: normalise after each convolution
        dropout: share of the values that are zero while training, before the last layer
    """

    def __init__(
        self,
        num_channels: Count,
        num_classes: Count = 1,
        channels: tuple[Count, ...] = (32, 64, 128),
        batch_norm: bool = True,
        dropout: Rate = 0.0,
    ) -> None:
        super().__init__()
        widths = (num_channels, *channels)
        pairs = zip(widths, channels, strict=False)
        self.blocks = nn.SequentialCell([Block(before, after, batch_norm) for before, after in pairs])
        self.mean = ops.ReduceMean()
        self.dropout = nn.Dropout(1.0 - dropout) if dropout else None
        self.fc = nn.Dense(widths[-1], num_classes, "xavier_uniform")

    def construct(self, x: Value) -> Value:
        x = self.mean(self.blocks(x), (2, 3))
        if self.dropout is not None:
            x = self.dropout(x)
        x = self.fc(x)
        return x
