"""`build_train_network`: the cell of a training step for loops of the user's own."""

import numpy as np
import pytest

import runner
from runner import Tensor, context, dtype, nn
from runner.errors import ConfigError
from runner.train import amp
from runner.train.amp import FixedLossScaleManager

RNG = np.random.default_rng(4)
X, Y = RNG.normal(size=(4, 3)).astype(np.float32), RNG.normal(size=(4, 2)).astype(np.float32)
W = RNG.normal(size=(2, 3)).astype(np.float32)
RATE = 0.125


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc, self.norm = nn.Dense(3, 2, Tensor(W), has_bias=False), nn.BatchNorm1d(2)

    def construct(self, x):
        return self.norm(self.fc(x))


def built(network, level, **arguments):
    optimizer = nn.SGD(network.trainable_params(), RATE, loss_scale=arguments.pop("divisor", 1.0))
    return amp.build_train_network(network, optimizer, nn.MSELoss(), level, **arguments)


@pytest.mark.parametrize("mode", [context.GRAPH_MODE, context.PYNATIVE_MODE])
def test_a_step_of_o0_is_that_of_float64(mode):
    context.set_context(mode=mode)
    network = nn.Dense(3, 2, Tensor(W), has_bias=False)
    step = built(network, "O0")
    x, y, w = np.float64(X), np.float64(Y), np.float64(W)
    error = x @ w.T - y
    np.testing.assert_allclose(step(Tensor(X), Tensor(Y)).asnumpy(), (error**2).mean(), rtol=1e-6)
    np.testing.assert_allclose(network.weight.asnumpy(), w - RATE * 2 * error.T @ x / error.size, rtol=1e-5)


@pytest.mark.parametrize(("level", "norm"), [("O2", dtype.float32), ("O3", dtype.float16)])
def test_levels_cast_the_network_and_scale_the_loss(level, norm):
    network = Net()
    step = built(network, level)
    assert (network.fc.float_type, network.norm.float_type) == (dtype.float16, norm)
    result = step(Tensor(X), Tensor(Y))
    if level == "O2":
        loss, overflow, scale = result
        assert (bool(overflow), float(scale)) == (False, 2.0**24) or bool(overflow)
    else:
        loss = result
    assert loss.dtype is dtype.float32
    assert network.fc.weight.dtype is dtype.float32
    output = np.float64(X) @ np.float64(W).T
    normal = (output - output.mean(0)) / np.sqrt(output.var(0) + 1e-5)
    np.testing.assert_allclose(float(loss), ((normal - np.float64(Y)) ** 2).mean(), rtol=2e-2)


def test_arguments_replace_those_of_the_level():
    network = Net()
    manager = FixedLossScaleManager(8.0, drop_overflow_update=False)
    step = built(network, "O3", keep_batchnorm_fp32=True, loss_scale_manager=manager, divisor=8.0)
    assert network.norm.float_type is dtype.float32
    assert isinstance(step, nn.TrainOneStepCell)
    assert step.training
    plain = Net()
    built(plain, "O2", cast_model_type=dtype.float32, loss_scale_manager=None)
    assert plain.fc.float_type is None
    assert runner.build_train_network is amp.build_train_network


def test_what_is_refused():
    with pytest.raises(ConfigError) as caught:
        built(Net(), "O0", keep_batchnorm=True)
    assert caught.value.rows["nearest"] == "keep_batchnorm_fp32"
    with pytest.raises(ConfigError, match="Float16 or Float32"):
        built(Net(), "O2", cast_model_type=dtype.int32)
    with pytest.raises(ConfigError, match="unknown amp_level"):
        built(Net(), "O1")
    with pytest.raises(ConfigError, match="needs a GPU or Ascend"):
        built(Net(), "auto")
