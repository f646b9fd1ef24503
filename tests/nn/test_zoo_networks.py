"""The classification networks of MindSpore's ModelZoo build, and make one training step, equal in both modes."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from both_modes import MODES, step_of
from soak import thinned
from tables import table
from zoo_deep_networks import DenseNet, GoogleNet, MobileNetV2
from zoo_networks import AlexNet, SqueezeNet, Vgg

from runner import nn
from runner.host import seed

Build = Callable[[], nn.Cell]
# Small ones in CI: fewer channels and small images, so that each takes less than a second.
SMALL: dict[str, tuple[Build, int]] = {
    "AlexNet": (lambda: AlexNet(side=1, hidden=32), 60),
    "VGG16": (lambda: Vgg(side=1, hidden=32, share=0.125), 32),
    "SqueezeNet": (SqueezeNet, 35),
    "MobileNetV2": (lambda: MobileNetV2(width_mult=0.25, last_channel=64), 64),
    "GoogLeNet": (lambda: GoogleNet(share=0.25), 64),
    "DenseNet": (lambda: DenseNet(growth_rate=4, block_config=(2, 3, 2, 2), num_init_features=8), 32),
}
WHOLE: dict[str, tuple[Build, int]] = {
    "MobileNetV2": (MobileNetV2, 64),
    "AlexNet": (AlexNet, 217),
    "VGG16": (lambda: Vgg(side=1), 32),
    "GoogLeNet": (GoogleNet, 64),
    "DenseNet121": (DenseNet, 64),
}


def one_step(build: Build, side: int, mode: str) -> tuple[float, dict[str, np.ndarray]]:
    """The loss, and how much a step with a batch of four images changes each parameter."""
    seed.set_seed(1)
    rng, network = np.random.default_rng(2), build().set_train()
    images, labels = rng.normal(size=(4, 3, side, side)).astype(np.float32), np.array([1, 0, 9, 4], np.int32)
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    optimizer = nn.Momentum(network.trainable_params(), 0.01, 0.9)
    step = nn.TrainOneStepCell(nn.WithLossCell(network, loss), optimizer).set_train()
    before = {p: p.asnumpy() for p in network.get_parameters()}
    (value,) = step_of(step.construct, mode)(images, labels)
    return float(value), {p.name: (p.asnumpy() - old).astype(np.float64) for p, old in before.items()}


def length(changes: dict[str, np.ndarray]) -> float:
    return math.sqrt(sum(float(np.square(change).sum()) for change in changes.values()))


def check_modes(build: Build, side: int) -> None:
    """Equal losses; and equal changes, but that rounding may decide which of two pixels is the larger one in a pool, or
    whether one is positive, which moves the gradients of the layers before by the share of this pixel.
    """
    (loss, first), (other, second) = (one_step(build, side, mode) for mode in MODES)
    assert abs(loss - other) < 1e-5 * loss
    assert first.keys() == second.keys()
    assert length({name: change - second[name] for name, change in first.items()}) < 0.01 * length(first)
    assert sum(change.any() for change in first.values()) > 0.95 * len(first)


@table("name", SMALL)
def test_a_training_step_is_equal_in_both_modes(name):
    check_modes(*SMALL[name])


@pytest.mark.parametrize("name", [*thinned(WHOLE, every=len(WHOLE))])
def test_a_training_step_of_the_whole_network(name):
    check_modes(*WHOLE[name])


def test_numbers_of_weights_are_those_of_the_papers():
    """With 1000 classes, in millions, without and with the batch normalisation that the paper lacks."""
    counts = {
        "SqueezeNet": (SqueezeNet(1000), 1.248),
        "MobileNetV2": (MobileNetV2(1000), 3.505),
        "DenseNet121": (DenseNet(1000), 7.979),
    }
    for name, (network, expected) in counts.items():
        made = sum(p.size for p in network.trainable_params()) / 1e6
        assert abs(made - expected) < 0.001, name
