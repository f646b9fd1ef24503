"""Small networks train alike in both modes, and as in PyTorch."""

import math

import numpy as np
import pytest
from both_modes import MODES, relative, step_of
from small_networks import DROPOUT_SEED, KEPT, NETWORKS, STEPS, WIDTH, batch, made, step

from runner import Model, context, nn, ops
from runner.dataset import NumpySlicesDataset
from runner.device import Device

# The losses of the first steps as `torch_losses` below gives them in float64, with PyTorch 2.13.
LOSSES = {
    "perceptron": [1.767186306, 1.534103534, 1.34598848, 0.868508535, 0.817470202, 0.633452975],
    "mobile": [1.416285815, 1.402934695, 1.379451062, 1.349649251, 1.316507603, 1.284339805],
    "transformer": [1.414128538, 1.276627667, 1.156873704, 1.100852244, 1.056636307, 0.973213607],
}


def trained(name: str, mode: str) -> tuple[list[float], dict[str, np.ndarray]]:
    """The loss of each step, and all parameters afterwards."""
    cell = step(name)
    run = step_of(cell.construct, mode)
    losses = [float(run(*batch(name))[0]) for _ in range(STEPS)]
    return losses, {p.name: p.asnumpy() for p in cell.get_parameters()}


@pytest.mark.parametrize("name", NETWORKS)
def test_both_modes_train_alike_and_as_pytorch(name):
    (eager_losses, eager), (graph_losses, graph) = (trained(name, mode) for mode in MODES)
    for losses in (eager_losses, graph_losses):
        assert np.allclose(losses, LOSSES[name], rtol=2e-6)  # measured: 1.3e-7
        assert losses[-1] < 0.95 * losses[0]
    differences = {key: relative(graph[key], value) for key, value in eager.items()}
    assert {key: d for key, d in differences.items() if d > 1e-5} == {}
    before = {p.name: p.asnumpy() for p in made(name).trainable_params()}
    assert all(not np.array_equal(graph[key], value) for key, value in before.items())


def sunk(name: str, sinking: bool) -> dict[str, bytes]:
    """The parameters after twelve steps over four batches in graph mode."""
    network, (x, labels) = made(name), batch(name)
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    optimizer = nn.Momentum(network.trainable_params(), 0.1, 0.9)
    model = Model(network, loss, optimizer, mode=context.GRAPH_MODE, device=Device(threads=1))
    model.train(3, NumpySlicesDataset((x, labels)).batch(4), dataset_sink_mode=sinking)
    return {p.name: p.asnumpy().tobytes() for p in network.get_parameters()}


@pytest.mark.parametrize("name", NETWORKS)
def test_sinking_changes_no_bit(name):
    assert sunk(name, True) == sunk(name, False)


def test_parameters_have_the_names_that_users_expect():
    names = [p.name for p in made("transformer").get_parameters()]
    assert names[:4] == ["places", "words.embedding_table", "norm1.gamma", "norm1.beta"]
    assert {"qkv.weight", "feed.0.weight", "feed.1.bias", "head.bias"} < set(names)


# The same in PyTorch


def torch_logits(torch, name: str, p: dict, x, number: int):
    f = torch.nn.functional
    if name == "perceptron":
        hidden = f.linear(x, p["fc1.weight"], p["fc1.bias"])
        hidden = f.gelu(f.layer_norm(hidden, (32,), p["norm.gamma"], p["norm.beta"], 1e-7), approximate="tanh")
        ones, counter = np.ones(tuple(hidden.shape), np.float32), np.array(number, np.int64)
        mask = torch.from_numpy(ops.Dropout(KEPT, DROPOUT_SEED).kernel(ones, counter)[1]).double()
        return f.linear(hidden * mask / KEPT, p["fc2.weight"], p["fc2.bias"])
    if name == "mobile":
        x = f.relu6(f.conv2d(f.pad(x, (1, 1, 1, 1)), p["stem.weight"], stride=2))
        x = f.relu6(f.conv2d(x, p["depth1.weight"], padding=1, groups=8))
        x = f.relu6(f.conv2d(x, p["point1.weight"], p["point1.bias"]))
        x = f.relu6(f.conv2d(f.pad(x, (1, 0, 0, 1)), p["depth2.weight"], stride=2, groups=12))
        return f.linear(x.mean((2, 3)), p["fc.weight"], p["fc.bias"])
    x = p["words.embedding_table"][x.long()] + p["places"]
    normal = f.layer_norm(x, (WIDTH,), p["norm1.gamma"], p["norm1.beta"], 1e-7)
    q, k, v = f.linear(normal, p["qkv.weight"], p["qkv.bias"]).chunk(3, -1)
    attended = torch.softmax(q @ k.transpose(1, 2) / math.sqrt(WIDTH), -1) @ v
    x = x + f.linear(attended, p["out.weight"], p["out.bias"])
    normal = f.layer_norm(x, (WIDTH,), p["norm2.gamma"], p["norm2.beta"], 1e-7)
    hidden = f.gelu(f.linear(normal, p["feed.0.weight"], p["feed.0.bias"]), approximate="tanh")
    x = x + f.linear(hidden, p["feed.1.weight"], p["feed.1.bias"])
    return f.linear(x.mean(1), p["head.weight"], p["head.bias"])


def torch_losses(torch, name: str) -> list[float]:
    """The same steps in PyTorch's words, in float64."""
    weights = {p.name: p.asnumpy() for p in made(name).trainable_params()}
    p = {key: torch.from_numpy(value).double().requires_grad_() for key, value in weights.items()}
    optimizer = torch.optim.SGD(p.values(), lr=0.1, momentum=0.9)
    x, labels = map(torch.from_numpy, batch(name))
    x = x.double() if x.is_floating_point() else x
    losses = []
    for number in range(STEPS):
        loss = torch.nn.functional.cross_entropy(torch_logits(torch, name, p, x, number), labels.long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("name", NETWORKS)
def test_the_recorded_losses_are_those_of_pytorch(name):
    torch = pytest.importorskip("torch", reason="PyTorch is the oracle here; it is not a dependency of runner")
    assert np.allclose(torch_losses(torch, name), LOSSES[name], rtol=1e-8)
