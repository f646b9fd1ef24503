"""`nn.freeze`: which parameters patterns select, and what a frozen normalization computes."""

import numpy as np
import pytest
from both_modes import MODES, nodes_of, relative, step_of
from tables import table

from models.resnet import resnet18
from runner import nn
from runner.core.gradients import gradients
from runner.core.values import Parameter, Tensor
from runner.errors import ConfigError, ConfigErrors

X = np.random.default_rng(4).normal(3.0, 2.0, (6, 2, 4, 3)).astype(np.float32)


class Small(nn.Cell):
    def __init__(self, affine: bool = True) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3, has_bias=True)
        self.bn = nn.BatchNorm2d(3, affine=affine)
        self.fc = nn.Dense(3, 2)

    def construct(self, x):
        return self.fc(self.bn(self.conv(x)).mean((2, 3)))


class Slashes(nn.Cell):
    """Parameters with the names of another program."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("model/dense/kernel:0", "model/dense/bias:0", "model/dense_1/kernel:0"):
            self.insert_param_to_cell(name, Parameter(np.zeros(2, np.float32), name), check_name=False)


def trained(network: nn.Cell) -> set[str]:
    return {p.name for p in network.trainable_params()}


@table(
    ("make", "patterns", "left"),
    [
        (Small, ["conv.*", "bn.*"], {"fc.weight", "fc.bias"}),
        (Small, ["conv/*"], {"bn.gamma", "bn.beta", "fc.weight", "fc.bias"}),
        (Small, ["*.weight"], {"conv.bias", "bn.gamma", "bn.beta", "fc.bias"}),
        (Small, ["fc.bias"], {"conv.weight", "conv.bias", "bn.gamma", "bn.beta", "fc.weight"}),
        (Small, ["[cf]*.weight", "*.b*"], {"bn.gamma"}),
        (Small, ["*", "fc.?eight"], {"fc.weight"}),
        (Slashes, ["model.dense.*"], {"model/dense_1/kernel:0"}),
        (Slashes, ["model/dense/*"], {"model/dense_1/kernel:0"}),
        (Slashes, ["*kernel:0"], {"model/dense/bias:0"}),
        (Small, [], {"conv.weight", "conv.bias", "bn.gamma", "bn.beta", "fc.weight", "fc.bias"}),
    ],
)
def test_what_patterns_select(make, patterns, left):
    network = make()
    every = network.trainable_params()
    if "*" in patterns:  # with a head that stays
        frozen = nn.freeze(network, patterns[:1], trained=[network.fc.weight])
    else:
        frozen = nn.freeze(network, patterns)
    assert trained(network) == left
    assert frozen == [p for p in every if p.name not in left]
    assert all(p.frozen and not p.requires_grad for p in frozen)


def test_frozen_parameters_stay_parameters_of_the_network():
    network = Small()
    names = [p.name for p in network.get_parameters()]
    nn.freeze(network, ["conv.*"])
    assert [p.name for p in network.get_parameters()] == names
    assert {p.name for p in network.untrainable_params()} == {
        *("conv.weight", "conv.bias", "bn.moving_mean", "bn.moving_variance")
    }


@table(
    ("patterns", "what", "rows"),
    [
        (["cnv.*"], "a pattern matches no parameter", {"value": "cnv.*", "nearest": "conv.*"}),
        (["conv"], "a pattern matches no parameter", {"nearest": "conv.*", "parameters": "conv.weight, conv.bias"}),
        (["fc.wieght"], "a pattern matches no parameter", {"nearest": "fc.weight"}),
        (["CONV.*"], "a pattern matches no parameter", {"nearest": None}),
        (["*moving*"], "a pattern matches only parameters that are never trained", {"value": "*moving*"}),
        (["*"], "no parameter is left to train", {"value": "*"}),
        (["conv.*", "bn.*", "fc.*"], "no parameter is left to train", {"value": "conv.*, bn.*, fc.*"}),
    ],
)
def test_errors(patterns, what, rows):
    network = Small()
    before = trained(network)
    with pytest.raises(ConfigError) as caught:
        nn.freeze(network, patterns, where={"key": "network.freeze"})
    assert caught.value.what == what
    assert caught.value.rows["key"] == "network.freeze"
    assert {name: caught.value.rows.get(name) for name in rows} == rows
    assert trained(network) == before


def test_all_wrong_patterns_are_reported():
    with pytest.raises(ConfigErrors) as caught:
        nn.freeze(Small(), ["a.*", "conv.*", "b.*"])
    assert [error.rows["value"] for error in caught.value.errors] == ["a.*", "b.*"]


@pytest.mark.parametrize("mode", MODES)
@table(
    ("patterns", "keeps"),
    [(["bn.*", "conv.*"], True), (["bn.gamma", "bn.beta", "conv.*"], True), (["bn.gamma", "conv.*"], False)],
)
def test_a_frozen_normalization_uses_and_keeps_its_statistics(patterns, keeps, mode):
    network = Small()
    nn.freeze(network, patterns)
    bn = network.bn.set_train()
    bn.moving_mean.set_data(np.array([0.5, -1.0, 2.0], np.float32))
    bn.moving_variance.set_data(np.array([1.0, 4.0, 0.25], np.float32))
    x = np.concatenate([X, X[:, :1]], 1)
    made = step_of(bn.construct, mode)(x)[0]
    wide = x.astype(np.float64)
    mean, variance = wide.mean((0, 2, 3)), wide.var((0, 2, 3))
    if keeps:
        mean, variance = np.array([0.5, -1.0, 2.0]), np.array([1.0, 4.0, 0.25])
        assert bn.moving_mean.asnumpy().tolist() == [0.5, -1.0, 2.0]
        assert bn.moving_variance.asnumpy().tolist() == [1.0, 4.0, 0.25]
    else:
        assert bn.moving_mean.asnumpy().tolist() != [0.5, -1.0, 2.0]
    spread = (1, 3, 1, 1)
    expected = (wide - mean.reshape(spread)) / np.sqrt(variance.reshape(spread) + 1e-5)
    assert relative(made, expected) < 1e-6


def test_a_layer_without_trained_scale_is_frozen_by_its_name():
    network = Small(affine=False)
    nn.freeze(network, ["[cb]*"])
    assert not network.set_train().bn.learns
    assert Small(affine=False).set_train().bn.learns


@pytest.mark.parametrize("mode", MODES)
def test_the_gradient_passes_a_frozen_normalization(mode):
    network = Small().set_train()
    nn.freeze(network, ["bn.*"])
    network.bn.moving_variance.set_data(np.array([1.0, 4.0, 0.25], np.float32))

    def gradient(x):
        return gradients(network.bn(network.conv(x)).sum(), [network.conv.bias])[0]

    made = step_of(gradient, mode)(X)[0]
    expected = X.shape[0] * 12 / np.sqrt(np.array([1.0, 4.0, 0.25]) + 1e-5)
    assert relative(made, expected) < 1e-6


@pytest.mark.parametrize("mode", MODES)
def test_a_step_with_a_frozen_backbone_has_no_gradients_of_it(mode):
    network = resnet18(width=4, num_classes=3)
    nn.freeze(network, ["conv1.*", "bn1.*", "layer*"])
    optimizer = nn.Momentum(network.trainable_params(), 0.1, 0.9)
    loss = nn.WithLossCell(network, nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"))
    step = nn.TrainOneStepCell(loss, optimizer).set_train()
    before = {p.name: p.asnumpy().copy() for p in network.get_parameters()}
    x = np.random.default_rng(1).normal(size=(4, 3, 32, 32)).astype(np.float32)
    with_record = recorded(step.construct, mode, x, np.array([0, 1, 2, 0], np.int32))
    backward = [name for name in with_record if name.startswith("Gradients/")]
    assert backward
    assert [name for name in backward if "layer" in name or "bn1" in name or "conv1" in name] == []
    for parameter in network.get_parameters():
        same = np.array_equal(parameter.asnumpy(), before[parameter.name])
        assert same == (not parameter.name.startswith("linear.")), parameter.name


def recorded(function, mode: str, *arrays: np.ndarray) -> list[str]:
    """The names of the operators of one step, which is executed."""
    names = [node.name for node in nodes_of(function, mode, *arrays)]
    step_of(function, mode)(*arrays)
    return names


def test_a_copy_is_frozen_too():
    parameter = Parameter(Tensor(np.ones(2, np.float32)), "w")
    parameter.frozen = True
    assert parameter.clone().frozen
    with pytest.raises(ConfigError, match="frozen is true or false"):
        parameter.frozen = 1
