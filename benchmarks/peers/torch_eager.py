# mypy: ignore-errors
"""One training step in PyTorch eager, as benchmarks/step.py measures runner's.

    pip install torch==2.13.0
    python benchmarks/peers/torch_eager.py resnet50 --threads 2

Prints one JSON object.
"""

from collections.abc import Callable

import torch
from timing import (
    BLOCKS,
    DEVICES,
    LEARNING_RATE,
    MOMENTUM,
    MORE_NETS,
    arguments,
    first_row,
    parsed,
    report,
    rows_of,
    shape_of,
    timed,
)
from torch import nn
from torch.nn import functional


def conv(given: int, made: int, size: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """A convolution that keeps the size of an image (but for its stride), and normalisation."""
    layer = nn.Conv2d(given, made, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(made))


class LeNet5(nn.Sequential):
    """`models/lenet.py`."""

    def __init__(self) -> None:
        feature = [nn.Conv2d(1, 6, 5, bias=False), nn.ReLU(), nn.MaxPool2d(2)]
        feature += [nn.Conv2d(6, 16, 5, bias=False), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
        dense = [nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)]
        super().__init__(*feature, *dense)
        for parameter in self.parameters():
            nn.init.trunc_normal_(parameter, std=0.02, a=-0.04, b=0.04)


class Block(nn.Module):
    """Two convolutions, or three of a bottleneck, beside a shortcut."""

    def __init__(self, bottleneck: bool, given: int, planes: int, stride: int) -> None:
        super().__init__()
        self.made = planes * (4 if bottleneck else 1)
        if bottleneck:
            layers = [conv(given, planes, 1), nn.ReLU(), conv(planes, planes, 3, stride), nn.ReLU()]
            layers.append(conv(planes, self.made, 1))
        else:
            layers = [conv(given, planes, 3, stride), nn.ReLU(), conv(planes, planes, 3)]
        self.layers = nn.Sequential(*layers)
        self.shortcut = conv(given, self.made, 1, stride) if stride > 1 or given != self.made else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.layers(x) + self.shortcut(x))


class ResNet(nn.Sequential):
    """`models/resnet.py` with the stem for images of 32 x 32."""

    def __init__(self, bottleneck: bool, counts: tuple[int, ...]) -> None:
        layers, given = [conv(3, 64, 3), nn.ReLU()], 64
        for number, count in enumerate(counts):
            for k in range(count):
                layers.append(Block(bottleneck, given, 64 << number, 2 if number and not k else 1))
                given = layers[-1].made
        super().__init__(*layers, nn.AvgPool2d(4), nn.Flatten(), nn.Linear(given, 10))


class Inverted(nn.Module):
    """A wide depthwise convolution between two pointwise ones, beside a shortcut where the shapes agree."""

    def __init__(self, given: int, made: int, stride: int, wider: int) -> None:
        super().__init__()
        wide, self.short = given * wider, stride == 1 and given == made
        layers = [conv(given, wide, 1), nn.ReLU6()] if wider > 1 else []
        layers += [conv(wide, wide, 3, stride, wide), nn.ReLU6(), conv(wide, made, 1)]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x) if self.short else self.layers(x)


class MobileNetV2(nn.Sequential):
    """MobileNetV2 (Sandler et al., 2018), width 1."""

    STAGES = (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)

    def __init__(self) -> None:
        layers, given = [conv(3, 32, 3, 2), nn.ReLU6()], 32
        for wider, made, count, stride in self.STAGES:
            for k in range(count):
                layers.append(Inverted(given, made, stride if k == 0 else 1, wider))
                given = made
        layers += [conv(given, 1280, 1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        super().__init__(*layers, nn.Dropout(0.2), nn.Linear(1280, 10))


def network_of(net: str) -> nn.Module:
    """A network with its initial weights."""
    torch.manual_seed(0)
    if net in BLOCKS:
        return ResNet(*BLOCKS[net])
    return MobileNetV2() if net == "mobilenet_v2" else LeNet5()


def measure(peer: str, description: str, prepare: Callable[[nn.Module], nn.Module]) -> None:
    """Command line: the steps of a network that `prepare` has prepared."""
    o = parsed(arguments(description, MORE_NETS, DEVICES))
    torch.set_num_threads(o.threads)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = o.tf32
    place = "cuda" if o.device == "gpu" else "cpu"
    network = network_of(o.net).to(place)
    optimizer = torch.optim.SGD(network.parameters(), LEARNING_RATE, MOMENTUM)
    count = rows_of(o.net, o.batch)
    images, labels, order = torch.randn(count, *shape_of(o.net)), torch.randint(0, 10, (count,)), torch.randperm(count)
    images, labels, order = images.to(place), labels.to(place), order.to(place)
    predict = prepare(network)

    def run(steps: int) -> float:
        for i in range(steps):
            start = first_row(i, o.net, o.batch)
            rows = order[start : start + o.batch]
            optimizer.zero_grad(set_to_none=True)
            loss = functional.cross_entropy(predict(images[rows]), labels[rows])
            loss.backward()
            optimizer.step()
        return loss.item()

    parameters = sum(p.numel() for p in network.parameters())
    report(peer, o, version=torch.__version__, parameters=parameters, **timed(run, o.steps))


if __name__ == "__main__":
    measure("torch", __doc__, lambda network: network)
