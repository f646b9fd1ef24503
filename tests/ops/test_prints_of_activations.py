"""What is printed from the middle of a network is what PyNative mode has there, though graphs fuse and lay out anew."""

import numpy as np
import pytest
from both_modes import digits, relative

from models.lenet import LeNet5
from runner import Model, context, nn, ops, set_seed
from runner.dataset import NumpySlicesDataset
from runner.device import Device
from runner.ops import effects

PLACES = ("conv1", "relu", "max_pool2d", "conv2", "fc1", "fc3")


@pytest.fixture
def printed(monkeypatch):
    """All parts of all prints, instead of the screen."""
    seen = []
    monkeypatch.setattr(effects, "write", lambda parts: seen.extend(parts))
    return seen


class Watched(nn.Cell):
    """A layer that prints what it makes, and the gradient of that."""

    def __init__(self, name, layer):
        super().__init__(auto_prefix=False)
        self.place, self.layer, self.print = name, layer, ops.Print()
        self.hook = ops.InsertGradientOf(self.seen)

    def seen(self, dout):
        self.print(f"gradient of {self.place}", dout)
        return dout

    def construct(self, x):
        made = self.hook(self.layer(x))
        self.print(self.place, made)
        return made


def trained(mode, sunk, printed):
    set_seed(5)
    net = LeNet5()
    for place in PLACES:
        setattr(net, place, Watched(place, getattr(net, place)))
    images, labels = (np.concatenate(parts) for parts in zip(*digits(3, batch=8), strict=True))
    data = NumpySlicesDataset((images, labels), ["image", "label"]).batch(8)
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    model = Model(net, loss, nn.Momentum(net.trainable_params(), 0.01, 0.9), mode=mode, device=Device(threads=1))
    model.train(1, data, None, sunk)
    parts, printed[:] = list(printed), []
    return parts


@pytest.mark.parametrize("sunk", [False, True])
def test_activations_and_their_gradients(printed, sunk):
    expected = trained(context.PYNATIVE_MODE, False, printed)
    found = trained(context.GRAPH_MODE, sunk, printed)
    names = expected[::2]
    assert names == found[::2]
    assert {*names} == {*PLACES, *(f"gradient of {place}" for place in PLACES)}
    assert len(names) == 3 * 2 * 10  # relu four times, max_pool2d twice
    for name, ours, theirs in zip(names, found[1::2], expected[1::2], strict=True):
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        assert relative(ours, theirs) < 1e-4, name
