"""ResNet-50 and batch normalisation beside PyTorch: the same weights, the same batches, step by step."""

import numpy as np
import pytest
from both_modes import MODES, relative, step_of

from models.resnet import resnet50
from runner import nn
from runner.core.values import Parameter, Tensor
from runner.host import seed

torch = pytest.importorskip("torch", reason="PyTorch is the oracle here; it is not a dependency of runner")
layers = torch.nn

BATCH = 4
# Float32 rounds a few of six million elements to the other side of a ReLU, which changes these gradients by 1%: that is
# how far PyTorch's own are apart in float32 and float64. Their norm is 460, so in float32 only small steps compare.
USUAL, CALM = 1e-2, 3e-7
NAMES = {"gamma": "weight", "beta": "bias", "moving_mean": "running_mean", "moving_variance": "running_var"}


class Bottleneck(layers.Module):
    """`ResidualBlock` of models/resnet.py."""

    def __init__(self, in_planes: int, planes: int, stride: int) -> None:
        super().__init__()
        out = 4 * planes
        self.conv1, self.bn1 = layers.Conv2d(in_planes, planes, 1, bias=False), layers.BatchNorm2d(planes)
        self.conv2 = layers.Conv2d(planes, planes, 3, stride, 1, bias=False)
        self.bn2 = layers.BatchNorm2d(planes)
        self.conv3, self.bn3 = layers.Conv2d(planes, out, 1, bias=False), layers.BatchNorm2d(out)
        self.down_sample_layer = layers.Sequential()
        if stride > 1 or in_planes != out:
            convolution = layers.Conv2d(in_planes, out, 1, stride, bias=False)
            self.down_sample_layer = layers.Sequential(convolution, layers.BatchNorm2d(out))

    def forward(self, x):
        y = torch.relu(self.bn1(self.conv1(x)))
        y = torch.relu(self.bn2(self.conv2(y)))
        return torch.relu(self.bn3(self.conv3(y)) + self.down_sample_layer(x))


class TorchResNet50(layers.Module):
    """`resnet50` of models/resnet.py with the stem for small images."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = layers.Conv2d(3, 64, 3, 1, 1, bias=False), layers.BatchNorm2d(64)
        in_planes = 64
        for number, (planes, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3)), 1):
            made = [Bottleneck(in_planes, planes, 2 if number > 1 else 1)]
            in_planes = 4 * planes
            made += [Bottleneck(in_planes, planes, 1) for _ in range(blocks - 1)]
            self.add_module(f"layer{number}", layers.Sequential(*made))
        self.linear = layers.Linear(2048, 10)

    def forward(self, x):
        y = torch.relu(self.bn1(self.conv1(x)))
        y = self.layer4(self.layer3(self.layer2(self.layer1(y))))
        return self.linear(torch.nn.functional.avg_pool2d(y, 4).flatten(1))


def batches(steps: int) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(3)
    image = rng.normal(size=(steps, BATCH, 3, 32, 32)).astype(np.float32)
    return list(zip(image, rng.integers(0, 10, (steps, BATCH)).astype(np.int32), strict=True))


def step(rate: float, dtype: type = np.float32) -> nn.TrainOneStepCell:
    seed.set_seed(1)
    network = resnet50()
    for _, cell in network.cells_and_names():
        for name, p in list(cell._params.items()):
            setattr(cell, name, Parameter(p.asnumpy().astype(dtype), p.name, p.requires_grad))
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    optimizer = nn.Momentum(network.trainable_params(), rate, 0.9)
    optimizer.learning_rate = Parameter(np.array(rate, dtype), "learning_rate", requires_grad=False)
    optimizer.momentum = Tensor(np.array(0.9, dtype))
    return nn.TrainOneStepCell(nn.WithLossCell(network, loss), optimizer).set_train()


def in_torchs_words(cell: nn.Cell) -> dict[str, np.ndarray]:
    """Parameters of a network under the names that PyTorch gives them."""
    made = {}
    for parameter in cell.get_parameters():
        layer, _, name = parameter.name.rpartition(".")
        made[f"{layer}.{NAMES.get(name, name)}"] = parameter.asnumpy()
    return made


def torch_run(rate: float, steps: int) -> tuple[list[float], dict[str, np.ndarray]]:
    """The loss of each step in float64, and what the parameters and moving statistics are at the end."""
    network, losses = TorchResNet50(), []
    values = {name: torch.from_numpy(value.copy()) for name, value in in_torchs_words(step(rate).network).items()}
    missing, unexpected = network.load_state_dict(values, strict=False)
    assert unexpected == []
    assert all(name.endswith("num_batches_tracked") for name in missing)
    network.double().train()
    optimizer = torch.optim.SGD(network.parameters(), lr=rate, momentum=0.9)
    for image, label in batches(steps):
        logits = network(torch.from_numpy(image).double())
        loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(label).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {name: value.numpy() for name, value in network.state_dict().items()}


@pytest.fixture(scope="module")
def calm() -> tuple[list[float], dict[str, np.ndarray]]:
    return torch_run(CALM, 5)


def apart(cell: nn.TrainOneStepCell, losses: list[float], theirs: tuple[list[float], dict[str, np.ndarray]]):
    """Largest relative difference of a loss, and of each parameter and moving statistic, from PyTorch's."""
    values = {name: relative(value, theirs[1][name]) for name, value in in_torchs_words(cell.network).items()}
    assert sum(".running_" in name for name in values) == 2 * 53
    return max(abs(a - b) / b for a, b in zip(losses, theirs[0], strict=True)), values


@pytest.mark.parametrize("mode", MODES)
def test_five_steps_of_resnet50_agree_with_pytorch(calm, mode):
    """Full width, float32 against float64. Measured: losses 9e-6, moving statistics 1.4e-5."""
    cell = step(CALM)
    run = step_of(cell.construct, mode)
    losses = [float(run(*batch)[0]) for batch in batches(5)]
    worst, values = apart(cell, losses, calm)
    moving = {name: d for name, d in values.items() if ".running_" in name}
    print(f"{mode}: losses within {worst:.1e} of PyTorch's, moving statistics {max(moving.values()):.1e}")
    assert worst <= 1e-3
    assert {name: d for name, d in moving.items() if d > 1e-3} == {}


def test_three_steps_of_resnet50_in_float64_agree_with_pytorch():
    """At a usual rate, at which errors grow a hundredfold in every step of so few samples. Measured: 1e-10."""
    cell = step(USUAL, np.float64)
    run = step_of(cell.construct, "pynative")
    losses = [float(run(image.astype(np.float64), label)[0]) for image, label in batches(3)]
    worst, values = apart(cell, losses, torch_run(USUAL, 3))
    print(f"losses within {worst:.1e} of PyTorch's, parameters and moving statistics {max(values.values()):.1e}")
    assert worst <= 1e-8
    assert {name: d for name, d in values.items() if d > 1e-8} == {}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", [(6, 4), (3, 4, 5, 2)])
def test_batch_normalisation_agrees_with_pytorch(shape, mode):
    """Two steps of training, then inference: outputs and moving statistics. Measured: 2e-7."""
    ours, kind = (nn.BatchNorm1d, layers.BatchNorm1d) if len(shape) == 2 else (nn.BatchNorm2d, layers.BatchNorm2d)
    rng = np.random.default_rng(5)
    cell, peer = ours(4, momentum=0.8), kind(4, momentum=0.2).double()
    for parameter, tensor in ((cell.gamma, peer.weight), (cell.beta, peer.bias)):
        parameter.set_data(rng.normal(size=4).astype(np.float32))
        tensor.data = torch.from_numpy(parameter.asnumpy().astype(np.float64))
    for training in (True, True, False):
        cell.set_train(training)
        peer.train(training)
        x = rng.normal(2.0, 3.0, shape).astype(np.float32)
        made = step_of(cell.construct, mode)(x)[0]
        assert relative(made, peer(torch.from_numpy(x).double()).detach().numpy()) <= 1e-6
        assert relative(cell.moving_mean.asnumpy(), peer.running_mean.numpy()) <= 1e-6
        assert relative(cell.moving_variance.asnumpy(), peer.running_var.numpy()) <= 1e-6
