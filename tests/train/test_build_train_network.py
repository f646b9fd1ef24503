"""`amp.build_train_network`: the cell of a training step for loops of the user, in both modes."""

import numpy as np
import pytest
from both_modes import MODES
from tables import table

import runner
from runner import FixedLossScaleManager, Tensor, amp, context, dtype as dt, nn, ops
from runner.errors import ConfigError

RNG = np.random.default_rng(3)
X, Y = RNG.normal(size=(4, 3)).astype(np.float32), RNG.normal(size=(4, 2)).astype(np.float32)
W = RNG.normal(size=(2, 3)).astype(np.float32)


class Net(nn.Cell):
    """Notes the element types that its parts compute with."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(3, 2, weight_init=Tensor(W), has_bias=False)
        self.norm = nn.BatchNorm1d(2)
        self.types = []

    def construct(self, x):
        y = self.dense(x)
        z = self.norm(y)
        self.types = [y.dtype, z.dtype]
        return y


@pytest.fixture(params=MODES)
def mode(request):
    modes = {"pynative": context.PYNATIVE_MODE, "graph": context.GRAPH_MODE}
    context.set_context(mode=modes[request.param])
    return request.param


def step(level, **options):
    """The network, what a step returns, and the weight after it."""
    net = Net()
    optimizer = nn.SGD([net.dense.weight], 0.1)
    cell = amp.build_train_network(net, optimizer, nn.MSELoss(), level, **options)
    return net, cell, cell(Tensor(X), Tensor(Y))


def expected():
    """Loss and weight after the step, in Float64."""
    x, y, w = (array.astype(np.float64) for array in (X, Y, W))
    error = x @ w.T - y
    return np.mean(error**2), w - 0.1 * (2 / error.size * error.T @ x)


def test_names():
    assert runner.build_train_network is amp.build_train_network is runner.train.amp.build_train_network


def test_levels(mode):
    loss, weight = expected()
    for level, options, types, tolerance in [
        ("O0", {}, [dt.float32, dt.float32], 1e-6),
        ("O0", {"loss_scale_manager": FixedLossScaleManager(64.0)}, [dt.float32, dt.float32], 1e-6),
        ("O0", {"cast_model_type": dt.float16}, [dt.float16, dt.float16], 5e-3),
        ("O2", {}, [dt.float16, dt.float32], 5e-3),
        ("O2", {"loss_scale_manager": None, "keep_batchnorm_fp32": False}, [dt.float16, dt.float16], 5e-3),
        ("O3", {}, [dt.float16, dt.float16], 5e-3),
        ("O3", {"cast_model_type": dt.float32}, [dt.float32, dt.float32], 1e-6),
    ]:
        net, cell, outputs = step(level, **options)
        assert net.types == types, (level, options)
        first = outputs[0] if isinstance(outputs, tuple) else outputs
        assert first.dtype is dt.float32
        np.testing.assert_allclose(first.asnumpy(), loss, rtol=tolerance)
        is_scaled = isinstance(cell, nn.TrainOneStepWithLossScaleCell)
        assert is_scaled == (options.get("loss_scale_manager", level == "O2" or None) is not None), options
        if is_scaled and level == "O2":  # the first scale, 2^24, overflows Float16: the step is skipped
            assert bool(outputs[1].asnumpy())
            np.testing.assert_array_equal(net.dense.weight.asnumpy(), W)
        else:
            np.testing.assert_allclose(net.dense.weight.asnumpy(), weight, rtol=tolerance, atol=tolerance)


def test_a_network_that_returns_the_loss(mode):
    class WithLoss(nn.Cell):
        def __init__(self):
            super().__init__()
            self.net, self.loss = Net(), nn.MSELoss()

        def construct(self, x, y):
            return self.loss(self.net(x), y)

    net = WithLoss()
    cell = amp.build_train_network(net, nn.SGD([net.net.dense.weight], 0.1))
    np.testing.assert_allclose(cell(Tensor(X), Tensor(Y)).asnumpy(), expected()[0], rtol=1e-6)
    assert cell.training


@table(
    ["arguments", "message"],
    [
        ({"level": "O1"}, "unknown amp_level"),
        ({"level": "auto"}, "amp_level auto needs a GPU"),
        ({"loss_scale_manager": 128.0}, "not a loss scale manager"),
        ({"loss_fn": ops.Square()}, "loss_fn is a cell"),
        ({"cast_model_type": dt.int32}, "a network computes in Float16 or Float32"),
        ({"keep_batchnorm_fp32": 1}, "keep_batchnorm_fp32 must be True or False"),
        ({"optimizer": 3}, "takes a cell and an optimizer"),
    ],
)
def test_refusals(arguments, message):
    net = Net()
    given = {"optimizer": nn.SGD([net.dense.weight], 0.1), **arguments}
    with pytest.raises(ConfigError, match=message):
        amp.build_train_network(net, **given)
