"""The same training in PyTorch: LeNet from the same weights on the same batches, step by step."""

import numpy as np
import pytest
from both_modes import MODES, digits, lenet_step, relative, step_of

from runner import nn
from runner.common.initializer import initializer
from runner.core.gradients import gradients
from runner.host import seed

torch = pytest.importorskip("torch", reason="PyTorch is the oracle here; it is not a dependency of runner")

STEPS = 50


def fresh_step(start: str) -> nn.TrainOneStepCell:
    """LeNet and Momentum(0.01, 0.9), with its own weights, or with some that learn within 50 steps."""
    seed.set_seed(1)
    cell = lenet_step()
    for parameter in cell.network.get_parameters():
        if start == "quick" and parameter.ndim > 1:
            parameter.set_data(initializer("xavier_uniform", parameter.shape))
    return cell


def weights_of(cell: nn.TrainOneStepCell) -> dict[str, np.ndarray]:
    return {p.name: p.asnumpy().copy() for p in cell.network.get_parameters()}


def torch_lenet(weights: dict[str, np.ndarray], dtype):
    """`models/lenet.py` in PyTorch's words."""
    layers = torch.nn
    parts = {
        "conv1": layers.Conv2d(1, 6, 5, bias=False),
        "relu1": layers.ReLU(),
        "pool1": layers.MaxPool2d(2, 2),
        "conv2": layers.Conv2d(6, 16, 5, bias=False),
        "relu2": layers.ReLU(),
        "pool2": layers.MaxPool2d(2, 2),
        "flatten": layers.Flatten(),
        "fc1": layers.Linear(400, 120),
        "relu3": layers.ReLU(),
        "fc2": layers.Linear(120, 84),
        "relu4": layers.ReLU(),
        "fc3": layers.Linear(84, 10),
    }
    network = layers.Sequential()
    for name, layer in parts.items():
        network.add_module(name, layer)
    network.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})
    return network.to(dtype)


def torch_loss(network, image: np.ndarray, label: np.ndarray, dtype):
    logits = network(torch.from_numpy(image).to(dtype))
    return torch.nn.functional.cross_entropy(logits, torch.from_numpy(label).long())


def torch_losses(start: str, dtype) -> list[float]:
    """The loss of each step with torch.optim.SGD."""
    torch.set_num_threads(1)
    network = torch_lenet(weights_of(fresh_step(start)), dtype)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    losses = []
    for image, label in digits(STEPS):
        loss = torch_loss(network, image, label, dtype)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def our_losses(start: str, mode: str) -> list[float]:
    run = step_of(fresh_step(start).construct, mode)
    return [float(run(*batch)[0]) for batch in digits(STEPS)]


@pytest.mark.parametrize("mode", MODES)
def test_fifty_steps_of_lenet_agree_with_pytorch(mode):
    """Both in float32. Measured: 2e-7."""
    ours, theirs = our_losses("own", mode), torch_losses("own", torch.float32)
    worst = max(abs(a - b) / b for a, b in zip(ours, theirs, strict=True))
    print(f"{mode}: every loss within {worst:.1e} of PyTorch's")
    assert worst <= 1e-4


@pytest.mark.parametrize("mode", MODES)
def test_fifty_steps_that_learn_agree_with_pytorch_in_float64(mode):
    """While the loss falls to a thousandth, one maximum in doubt is enough to part two courses that round differently.

    So the differences are measured against the first loss. Measured: 2e-5 of it, float32 against float64.
    """
    ours, theirs = our_losses("quick", mode), torch_losses("quick", torch.float64)
    worst = max(abs(a - b) for a, b in zip(ours, theirs, strict=True)) / theirs[0]
    print(f"{mode}: every loss within {worst:.1e} of PyTorch's, relative to the first; the last is {ours[-1]:.1e}")
    assert worst <= 1e-3
    assert ours[-1] < 0.01 * ours[0]


@pytest.mark.parametrize("mode", MODES)
def test_the_gradients_of_each_step_agree_with_pytorch_in_float64(mode):
    """From equal weights, so that nothing accumulates. Measured: 6e-7."""
    cell = fresh_step("quick")
    parameters = cell.network.get_parameters()
    differentiate = step_of(lambda x, y: gradients(cell.network(x, y), parameters), mode)
    train = step_of(cell.construct, mode)
    worst = 0.0
    for image, label in digits(30):
        network = torch_lenet(weights_of(cell), torch.float64)
        torch_loss(network, image, label, torch.float64).backward()
        expected = {name: value.grad.numpy() for name, value in network.named_parameters()}
        for parameter, made in zip(parameters, differentiate(image, label), strict=True):
            worst = max(worst, relative(made, expected[parameter.name]))
        train(image, label)
    print(f"{mode}: every gradient within {worst:.1e} of PyTorch's")
    assert worst <= 1e-4
