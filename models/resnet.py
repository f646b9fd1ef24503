"""ResNet-18, 34, 50, 101 and 152 (He et al., 2015), for small images (`stem: cifar`) and large ones (`imagenet`,
`torchvision`)."""

import math
from collections.abc import Callable
from functools import partial
from typing import Annotated, Literal

from runner import nn, ops, register
from runner.common.initializer import HeNormal, Initializer, Uniform
from runner.core.values import Value
from runner.validation.arguments import one_of, whole
from runner.validation.rules import MAX_COUNT

Count = Annotated[int, register.key(low=1, high=MAX_COUNT)]
Channels = Annotated[int, register.key(low=1, high=65536)]
Conv = Callable[..., nn.Conv2d]


def _conv2d(
    in_channel: int, out_channel: int, kernel_size: int, stride: int = 1, padding: int = 0, weight_init: str = "uniform"
) -> nn.Conv2d:
    """A convolution without bias; padding 0 means `same`, which adds no padding for a kernel of size 1."""
    rule: Initializer = Uniform(math.sqrt(1 / (in_channel * kernel_size * kernel_size)))
    if weight_init == "he":
        rule = HeNormal(mode="fan_out", nonlinearity="relu")
    pad_mode = "pad" if padding else "same"
    return nn.Conv2d(in_channel, out_channel, kernel_size, stride, pad_mode, padding, weight_init=rule)


def _dense(in_channel: int, out_channel: int) -> nn.Dense:
    """A fully connected layer with the initial distribution of the convolutions."""
    rule = Uniform(math.sqrt(1 / in_channel))
    return nn.Dense(in_channel, out_channel, rule, rule)


def _down_sample(conv: Conv, in_planes: int, out_planes: int, stride: int) -> nn.SequentialCell | None:
    """The projection of a shortcut when the shapes of input and output of a block differ, else None."""
    if stride == 1 and in_planes == out_planes:
        return None
    return nn.SequentialCell(conv(in_planes, out_planes, 1, stride), nn.BatchNorm2d(out_planes))


class BasicBlock(nn.Cell):
    """Two 3 x 3 convolutions with a shortcut: (N, in_planes, H, W) to (N, planes, H / stride, W / stride)."""

    expansion = 1

    def __init__(self, conv: Conv, in_planes: int, planes: int, stride: int) -> None:
        super().__init__()
        self.conv1 = conv(in_planes, planes, 3, stride, 1)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = conv(planes, planes, 3, 1, 1)
        self.bn2 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU()
        self.down_sample_layer = _down_sample(conv, in_planes, planes, stride)

    def construct(self, x: Value) -> Value:
        out: Value = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        identity = x if self.down_sample_layer is None else self.down_sample_layer(x)
        out = self.relu(out + identity)
        return out


class ResidualBlock(nn.Cell):
    """A bottleneck with a shortcut: (N, in_planes, H, W) to (N, 4 planes, H / stride, W / stride)."""

    expansion = 4

    def __init__(self, conv: Conv, in_planes: int, planes: int, stride: int) -> None:
        super().__init__()
        out_planes = self.expansion * planes
        self.conv1 = conv(in_planes, planes, 1)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = conv(planes, planes, 3, stride, 1)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv3 = conv(planes, out_planes, 1)
        self.bn3 = nn.BatchNorm2d(out_planes)
        self.relu = nn.ReLU()
        self.down_sample_layer = _down_sample(conv, in_planes, out_planes, stride)

    def construct(self, x: Value) -> Value:
        out: Value = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        identity = x if self.down_sample_layer is None else self.down_sample_layer(x)
        out = self.relu(out + identity)
        return out


class GlobalAvgPool(nn.Cell):
    """Mean of each channel: (N, C, H, W) to (N, C, 1, 1)."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = ops.ReduceMean(keep_dims=True)

    def construct(self, x: Value) -> Value:
        mean: Value = self.mean(x, (2, 3))
        return mean


class ResNet(nn.Cell):
    """(N, num_channels, H, W) to logits (N, num_classes).

    `stem` `cifar` is for images of 32 x 32: a 3 x 3 convolution, and a final 4 x 4 average pool. `imagenet` is for any
    size, usually 224 x 224: a 7 x 7 convolution and a max-pool, both of stride 2, and a final global average pool.
    `torchvision` is `imagenet` with a row and a column of padding on all sides of the max-pool, instead of one at the
    bottom and one at the right: with the weights of torchvision it computes the same.
    `width` is the number of channels after the stem; all others are multiples of it. `weight_init` `uniform` draws
    from +-sqrt(1 / fan_in), `he` from a normal distribution of variance 2 / fan_out.

    Args:
        num_classes: number of outputs
        num_channels: channels of the input
        width: channels after the stem
        stem: the first layers, for small or for large images
        weight_init: distribution of the initial weights
    """

    def __init__(
        self,
        block: type[BasicBlock] | type[ResidualBlock],
        num_blocks: tuple[int, int, int, int],
        num_classes: Count = 10,
        num_channels: Channels = 3,
        width: Channels = 64,
        stem: Literal["cifar", "imagenet", "torchvision"] = "cifar",
        weight_init: Literal["uniform", "he"] = "uniform",
    ) -> None:
        super().__init__()
        whole({"key": "network.num_channels"}, 1, num_channels=num_channels)
        whole({"key": "network.width"}, 1, width=width)
        one_of({"key": "network.stem"}, ("cifar", "imagenet", "torchvision"), stem=stem)
        one_of({"key": "network.weight_init"}, ("uniform", "he"), weight_init=weight_init)
        conv = partial(_conv2d, weight_init=weight_init)
        self.block, self.in_planes = block, width
        large = stem != "cifar"
        self.conv1 = conv(num_channels, width, 7, 2, 3) if large else conv(num_channels, width, 3, 1, 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()
        pad_mode, padding = ("pad", 1) if stem == "torchvision" else ("same", 0)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, pad_mode=pad_mode, padding=padding) if large else None
        self.layer1 = self._make_layer(conv, width, num_blocks[0], stride=1)
        self.layer2 = self._make_layer(conv, 2 * width, num_blocks[1], stride=2)
        self.layer3 = self._make_layer(conv, 4 * width, num_blocks[2], stride=2)
        self.layer4 = self._make_layer(conv, 8 * width, num_blocks[3], stride=2)
        self.avgpool2d = GlobalAvgPool() if large else nn.AvgPool2d(kernel_size=4, stride=4)
        self.reshape = ops.Reshape()
        self.linear = _dense(self.in_planes, num_classes)

    def _make_layer(self, conv: Conv, planes: int, num_blocks: int, stride: int) -> nn.SequentialCell:
        blocks: list[nn.Cell] = []
        for first in [stride] + [1] * (num_blocks - 1):
            blocks.append(self.block(conv, self.in_planes, planes, first))
            self.in_planes = self.block.expansion * planes
        return nn.SequentialCell(*blocks)

    def construct(self, x: Value) -> Value:
        x = self.conv1(x)
        out: Value = self.relu(self.bn1(x))
        if self.maxpool is not None:
            out = self.maxpool(out)
        out = self.layer1(out)
        out = self.layer2(out)
        out = self.layer3(out)
        out = self.layer4(out)
        out = self.avgpool2d(out)
        out = self.reshape(out, (out.shape[0], self.in_planes))
        out = self.linear(out)
        return out


resnet18 = register.network("resnet18")(partial(ResNet, BasicBlock, (2, 2, 2, 2)))
resnet34 = register.network("resnet34")(partial(ResNet, BasicBlock, (3, 4, 6, 3)))
resnet50 = register.network("resnet50")(partial(ResNet, ResidualBlock, (3, 4, 6, 3)))
resnet101 = register.network("resnet101")(partial(ResNet, ResidualBlock, (3, 4, 23, 3)))
resnet152 = register.network("resnet152")(partial(ResNet, ResidualBlock, (3, 8, 36, 3)))
