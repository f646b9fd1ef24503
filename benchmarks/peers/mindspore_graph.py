# mypy: ignore-errors
"""One training step in MindSpore 2.x, graph mode on the CPU, as benchmarks/step.py measures runner's.

    pip install mindspore==2.10.0
    python benchmarks/peers/mindspore_graph.py lenet5 --threads 2

MindSpore counts the cores that it may use, so the process is confined to as many as it may have threads. The first step
compiles. Prints one JSON object. A step of ResNet-50 may take a minute: ask for `--steps 1`.
"""

import timing

OPTIONS = timing.parsed(timing.arguments(__doc__))
timing.confine(OPTIONS.threads)

import mindspore  # noqa: E402  (it starts its threads when it is imported)
import numpy as np  # noqa: E402
from mindspore import nn  # noqa: E402


def conv(given: int, made: int, size: int, stride: int = 1) -> list[nn.Cell]:
    """A convolution that keeps the size of an image (but for its stride), and normalisation."""
    layer = nn.Conv2d(given, made, size, stride, "pad", size // 2, weight_init="he_uniform")
    return [layer, nn.BatchNorm2d(made)]


def lenet() -> nn.Cell:
    """`models/lenet.py`."""
    layers = [nn.Conv2d(1, 6, 5, pad_mode="valid"), nn.ReLU(), nn.MaxPool2d(2, 2)]
    layers += [nn.Conv2d(6, 16, 5, pad_mode="valid"), nn.ReLU(), nn.MaxPool2d(2, 2), nn.Flatten()]
    layers += [nn.Dense(400, 120), nn.ReLU(), nn.Dense(120, 84), nn.ReLU(), nn.Dense(84, 10)]
    return nn.SequentialCell(layers)


class Block(nn.Cell):
    """Two convolutions, or three of a bottleneck, beside a shortcut."""

    def __init__(self, bottleneck: bool, given: int, planes: int, stride: int) -> None:
        super().__init__()
        self.made = planes * (4 if bottleneck else 1)
        if bottleneck:
            layers = [*conv(given, planes, 1), nn.ReLU(), *conv(planes, planes, 3, stride), nn.ReLU()]
            layers += conv(planes, self.made, 1)
        else:
            layers = [*conv(given, planes, 3, stride), nn.ReLU(), *conv(planes, planes, 3)]
        self.layers, self.relu = nn.SequentialCell(layers), nn.ReLU()
        same = stride == 1 and given == self.made
        self.shortcut = nn.Identity() if same else nn.SequentialCell(conv(given, self.made, 1, stride))

    def construct(self, x):
        return self.relu(self.layers(x) + self.shortcut(x))


def resnet(bottleneck: bool, counts: tuple[int, ...]) -> nn.Cell:
    """`models/resnet.py` with the stem for images of 32 x 32."""
    layers, given = [*conv(3, 64, 3), nn.ReLU()], 64
    for number, count in enumerate(counts):
        for k in range(count):
            layers.append(Block(bottleneck, given, 64 << number, 2 if number and not k else 1))
            given = layers[-1].made
    return nn.SequentialCell([*layers, nn.AvgPool2d(4, 4), nn.Flatten(), nn.Dense(given, 10)])


def main() -> None:
    """Measure."""
    o = OPTIONS
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    mindspore.set_device("CPU")
    mindspore.set_seed(0)
    network = resnet(*timing.BLOCKS[o.net]) if o.net in timing.BLOCKS else lenet()
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    optimizer = nn.Momentum(network.trainable_params(), timing.LEARNING_RATE, timing.MOMENTUM)
    step = nn.TrainOneStepCell(nn.WithLossCell(network, loss), optimizer).set_train()
    count, rng = timing.rows_of(o.net, o.batch), np.random.default_rng(0)
    images = rng.standard_normal((count, *timing.shape_of(o.net)), np.float32)
    labels, order = rng.integers(0, 10, count, np.int32), rng.permutation(count)

    def run(steps: int) -> float:
        for i in range(steps):
            start = timing.first_row(i, o.net, o.batch)
            rows = order[start : start + o.batch]
            made = step(mindspore.Tensor(images[rows]), mindspore.Tensor(labels[rows]))
        return float(made.asnumpy())

    parameters = sum(p.size for p in network.trainable_params())
    timing.report("mindspore", o, version=mindspore.__version__, parameters=parameters, **timing.timed(run, o.steps))


if __name__ == "__main__":
    main()
