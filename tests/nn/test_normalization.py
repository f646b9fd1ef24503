"""BatchNorm1d and BatchNorm2d: when they use which statistics, in both modes, their parameters and what they refuse."""

import numpy as np
import pytest
from both_modes import MODES, nodes_of, relative, step_of
from tables import table

from runner import nn, ops
from runner.core.gradients import gradients
from runner.core.values import Tensor
from runner.errors import ConfigError, ShapeError
from runner.observe.graph.listing import attribute_text

BOTH = pytest.mark.parametrize("mode", MODES)
X = np.random.default_rng(4).normal(3.0, 2.0, (6, 2, 4, 3)).astype(np.float32)


def normalised(x: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    spread = (x.shape[1],) + (1,) * (x.ndim - 2)
    return (x.astype(np.float64) - mean.reshape(spread)) / np.sqrt(variance.reshape(spread) + 1e-5)


def of_batch(x: np.ndarray) -> np.ndarray:
    axes = tuple(k for k in range(x.ndim) if k != 1)
    return normalised(x, x.astype(np.float64).mean(axes), x.astype(np.float64).var(axes))


@BOTH
@table(("kind", "x"), [(nn.BatchNorm1d, X[:, :, 0, 0]), (nn.BatchNorm2d, X)])
@table("fixed", [None, True, False])
@table("training", [True, False])
def test_which_statistics_are_used_and_moved(kind, x, fixed, training, mode):
    cell = kind(2, momentum=0.75, moving_mean_init=0.5, moving_var_init=4.0, use_batch_statistics=fixed)
    cell.set_train(training)
    made = step_of(cell.construct, mode)(x)[0]
    batch = training if fixed is None else fixed
    expected = of_batch(x) if batch else normalised(x, np.full(2, 0.5), np.full(2, 4.0))
    assert relative(made, expected) < 1e-6
    axes = tuple(k for k in range(x.ndim) if k != 1)
    moved = batch and training
    mean = 0.75 * 0.5 + 0.25 * x.astype(np.float64).mean(axes) if moved else np.full(2, 0.5)
    variance = 0.75 * 4.0 + 0.25 * x.astype(np.float64).var(axes, ddof=1) if moved else np.full(2, 4.0)
    assert relative(cell.moving_mean.asnumpy(), mean) < 1e-6
    assert relative(cell.moving_variance.asnumpy(), variance) < 1e-6


@BOTH
def test_a_layer_that_is_used_twice_in_a_step_moves_twice(mode):
    class Twice(nn.Cell):
        def __init__(self):
            super().__init__()
            self.bn = nn.BatchNorm2d(2, momentum=0.5)

        def construct(self, x, y):
            return self.bn(x) + self.bn(y)

    cell = Twice().set_train()
    step_of(cell.construct, mode)(X, X + 8.0)
    mean = X.astype(np.float64).mean((0, 2, 3))
    assert relative(cell.bn.moving_mean.asnumpy(), 0.25 * mean + 0.5 * (mean + 8.0)) < 1e-6


@BOTH
def test_momentum_one_keeps_the_moving_statistics(mode):
    cell = nn.BatchNorm2d(2, momentum=1.0).set_train()
    step_of(cell.construct, mode)(X)
    assert cell.moving_mean.asnumpy().tolist() == [0.0, 0.0]
    assert cell.moving_variance.asnumpy().tolist() == [1.0, 1.0]


@table(
    ("momentum", "of_operator"), [(0.9, "0.1"), (0.99, "0.01"), (0.997, "0.003"), (0.3, "0.7"), (0, "1.0"), (1, "0.0")]
)
def test_the_momentum_of_the_operator_prints_in_the_users_digits(momentum, of_operator):
    """It was 1.0 - 0.9 = 0.09999999999999998, in errors and in files of graphs."""
    x = np.zeros((2, 2), np.float32)
    (node,) = nodes_of(nn.BatchNorm1d(2, momentum=momentum).set_train(), "graph", x)
    assert f"momentum={of_operator})" in repr(node.op)
    assert attribute_text(node.op.momentum) == of_operator


def test_parameters_and_defaults_are_the_references():
    cell = nn.SequentialCell(nn.BatchNorm2d(3), nn.BatchNorm1d(3, affine=False))
    names = ["moving_mean", "moving_variance", "gamma", "beta"]
    assert [p.name for p in cell.get_parameters()] == [f"{k}.{name}" for k in (0, 1) for name in names]
    assert [p.name for p in cell.trainable_params()] == ["0.gamma", "0.beta"]
    assert [p.asnumpy().tolist() for p in cell[0].get_parameters()] == [[0.0] * 3, [1.0] * 3, [1.0] * 3, [0.0] * 3]
    op = cell[0].bn_train
    assert (op.is_training, op.epsilon, op.momentum) == (True, 1e-5, 0.1)
    given = nn.BatchNorm2d(2, gamma_init=2.0, beta_init=Tensor(np.float32([1, 2])))
    assert given.gamma.asnumpy().tolist() == [2.0, 2.0]
    assert given.beta.asnumpy().tolist() == [1.0, 2.0]


@BOTH
def test_weight_decay_leaves_gamma_and_beta_alone(mode):
    """With a loss that does not depend on any parameter, only weight decay moves them."""

    class Norm(nn.Cell):
        def __init__(self):
            super().__init__()
            self.bn, self.fc = nn.BatchNorm1d(2, gamma_init=3.0, beta_init=5.0), nn.Dense(2, 1, weight_init=1.0)

        def construct(self, x):
            return self.fc(self.bn(x)) * 0.0

    network = Norm()
    step = nn.TrainOneStepCell(network, nn.Momentum(network.trainable_params(), 0.5, 0.0, weight_decay=0.5))
    step_of(step.set_train().construct, mode)(X[:, :, 0, 0])
    assert network.bn.gamma.asnumpy().tolist() == [3.0, 3.0]
    assert network.bn.beta.asnumpy().tolist() == [5.0, 5.0]
    assert network.fc.weight.asnumpy().tolist() == [[0.75, 0.75]]


@BOTH
def test_what_is_not_affine_is_not_learnt_but_passes_gradients(mode):
    class Norm(nn.Cell):
        def __init__(self):
            super().__init__()
            self.fc, self.bn = nn.Dense(2, 2, "normal"), nn.BatchNorm1d(2, affine=False)

        def construct(self, x):
            y = self.bn(self.fc(x))
            return gradients(y * y * y, self.trainable_params())

    made = step_of(Norm().set_train().construct, mode)(X[:, :, 0, 0])
    assert [a.shape for a in made] == [(2, 2), (2,)]
    assert float(np.abs(made[0]).max()) > 1e-3
    assert float(np.abs(made[1]).max()) < 1e-2 * float(np.abs(made[0]).max())  # a shift is taken out again


@pytest.mark.parametrize("stem", ["cifar", "imagenet"])
@BOTH
def test_global_means(stem, mode):
    """The two ways in which networks of MindSpore end: AvgPool2d over the image, ReduceMean over its axes."""
    pool, means = nn.AvgPool2d(kernel_size=4, stride=4), ops.ReduceMean(keep_dims=True)
    x = np.random.default_rng(0).normal(size=(2, 3, 4, 4)).astype(np.float32)

    def mean(value):
        return pool(value) if stem == "cifar" else means(value, (2, 3))

    made = step_of(mean, mode)(x)[0]
    assert made.shape == (2, 3, 1, 1)
    assert relative(made, x.astype(np.float64).mean((2, 3), keepdims=True)) < 1e-6


@BOTH
@pytest.mark.parametrize(
    ("kind", "shape", "takes"), [(nn.BatchNorm1d, (2, 3, 4, 4), "(N, C)"), (nn.BatchNorm2d, (2, 3), "(N, C, H, W)")]
)
def test_other_axes(kind, shape, takes, mode):
    with pytest.raises(ShapeError) as caught:
        step_of(kind(3).construct, mode)(np.zeros(shape, np.float32))
    assert caught.value.what == f"{kind.__name__} takes {takes}"
    assert {"x", "operands", "scope", "line"} <= caught.value.rows.keys()


@BOTH
def test_other_channels(mode):
    with pytest.raises(ShapeError, match="scale needs one element per channel of x"):
        step_of(nn.BatchNorm2d(4).construct, mode)(X)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"num_features": 0}, "num_features must be a whole number of at least 1"),
        ({"num_features": 2.0}, "num_features must be a whole number of at least 1"),
        ({"eps": 0.0}, "eps must be a number above 0.0"),
        ({"eps": 2.0}, "eps must be at most 1.0"),
        ({"momentum": -0.1}, "momentum must be a number of at least 0.0"),
        ({"momentum": 1.1}, "momentum must be at most 1.0"),
        ({"momentum": "0.9"}, "momentum must be a number of at least 0.0"),
        ({"affine": 1}, "affine must be True or False"),
        ({"use_batch_statistics": "yes"}, "use_batch_statistics must be True or False"),
    ],
)
def test_bad_arguments(arguments, what):
    with pytest.raises(ConfigError) as caught:
        nn.BatchNorm2d(**{"num_features": 3, **arguments})
    assert caught.value.what == what
    assert caught.value.rows["layer"] == "BatchNorm2d"
    assert caught.value.rows["given"] == repr(next(iter(arguments.values())))
