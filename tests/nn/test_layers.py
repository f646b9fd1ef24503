"""Layers: their numbers in both modes against plain numpy, their defaults, and what they refuse."""

import numpy as np
import pytest
from both_modes import MODES, relative, step_of
from tables import table

from runner import nn
from runner.core.gradients import gradients
from runner.core.values import Tensor
from runner.errors import ConfigError, ShapeError
from runner.host import seed
from runner.nn.basic import ACTIVATIONS

RNG = np.random.default_rng(3)


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


@table("mode", MODES)
@table(
    ("options", "shape"),
    [
        ({}, (2, 4, 7, 6)),  # `same` is the default
        ({"pad_mode": "valid"}, (2, 4, 5, 4)),
        ({"pad_mode": "pad", "padding": 1}, (2, 4, 7, 6)),
        ({"pad_mode": "pad", "padding": (1, 0, 2, 0)}, (2, 4, 6, 6)),
        ({"stride": 2}, (2, 4, 4, 3)),
        ({"stride": (1, 3), "pad_mode": "valid"}, (2, 4, 5, 2)),
        ({"dilation": 2, "pad_mode": "valid"}, (2, 4, 3, 2)),
        ({"group": 2, "has_bias": True}, (2, 4, 7, 6)),
    ],
)
def test_conv2d_shapes(options, shape, mode):
    layer = nn.Conv2d(2, 4, 3, **options)
    assert step_of(layer.construct, mode)(normal(2, 2, 7, 6))[0].shape == shape


@pytest.mark.parametrize("mode", MODES)
def test_conv2d_of_size_one_is_a_matrix_product(mode):
    layer = nn.Conv2d(3, 2, 1, has_bias=True, bias_init="normal")
    x = normal(2, 3, 4, 5)
    weight, bias = layer.weight.asnumpy(), layer.bias.asnumpy()
    expected = np.einsum("kc,nchw->nkhw", weight[:, :, 0, 0].astype(np.float64), x) + bias[:, None, None]
    assert relative(step_of(layer.construct, mode)(x)[0], expected) < 1e-6


def test_conv2d_defaults_are_the_references():
    seed.set_seed(1)
    layer = nn.Conv2d(64, 64, 3)
    assert layer.conv2d.pad_mode == "same"
    assert not layer.has_bias
    assert layer.weight.shape == (64, 64, 3, 3)
    assert abs(layer.weight.asnumpy().std() - 0.01) < 2e-4
    biased = nn.Conv2d(2, 4, (3, 1), group=2, has_bias=True)
    assert biased.weight.shape == (4, 1, 3, 1)
    assert biased.bias.asnumpy().tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", [(5, 4), (2, 3, 4), (4,)])
def test_dense(shape, mode):
    layer = nn.Dense(4, 3, bias_init="normal")
    x = normal(*shape)
    expected = x.astype(np.float64) @ layer.weight.asnumpy().T + layer.bias.asnumpy()
    made = step_of(layer.construct, mode)(x)[0]
    assert made.shape == (*shape[:-1], 3)
    assert relative(made, expected) < 1e-6


@pytest.mark.parametrize("mode", MODES)
def test_dense_with_activation_and_without_bias(mode):
    layer = nn.Dense(4, 3, has_bias=False, activation="relu")
    x = normal(5, 4)
    assert [p.name for p in layer.get_parameters()] == ["weight"]
    expected = np.maximum(x.astype(np.float64) @ layer.weight.asnumpy().T, 0)
    assert relative(step_of(layer.construct, mode)(x)[0], expected) < 1e-6
    assert isinstance(nn.Dense(2, 2, activation=nn.Tanh()).activation, nn.Tanh)


@table("mode", MODES)
@table(
    ("layer", "expected"),
    [
        (nn.ReLU(), lambda x: np.maximum(x, 0)),
        (nn.Sigmoid(), lambda x: 1 / (1 + np.exp(-x))),
        (nn.Tanh(), np.tanh),
        (nn.Softmax(), lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True)),
        (nn.Softmax(0), lambda x: np.exp(x) / np.exp(x).sum(0, keepdims=True)),
        (nn.Flatten(), lambda x: x.reshape(3, 8)),
        (nn.MaxPool2d(), lambda x: x),
        (nn.AvgPool2d(), lambda x: x),
        (nn.SequentialCell(nn.ReLU(), nn.Flatten()), lambda x: np.maximum(x, 0).reshape(3, 8)),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, nn.Cell) else "",
)
def test_layers_without_parameters(layer, expected, mode):
    x = normal(3, 2, 2, 2)
    assert relative(step_of(layer.construct, mode)(x)[0], expected(x.astype(np.float64))) < 1e-6


@pytest.mark.parametrize("mode", MODES)
def test_pooling_layers(mode):
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    assert step_of(nn.MaxPool2d(2, 2).construct, mode)(x)[0].tolist() == [[[[5, 7], [13, 15]]]]
    assert step_of(nn.AvgPool2d(2, 2).construct, mode)(x)[0].tolist() == [[[[2.5, 4.5], [10.5, 12.5]]]]
    odd = x[:, :, :3, :3]
    assert step_of(nn.MaxPool2d(2, 2, "valid").construct, mode)(odd)[0].tolist() == [[[[5]]]]
    assert step_of(nn.MaxPool2d(2, 2, "same").construct, mode)(odd)[0].tolist() == [[[[5, 6], [9, 10]]]]
    assert step_of(nn.AvgPool2d(2, 2, "same").construct, mode)(odd)[0].tolist() == [[[[2.5, 4], [8.5, 10]]]]
    padded = {"pad_mode": "pad", "padding": 1}
    assert step_of(nn.MaxPool2d(2, 2, **padded).construct, mode)(-odd)[0].tolist() == [[[[0, -1], [-4, -5]]]]
    assert step_of(nn.AvgPool2d(2, 2, **padded).construct, mode)(odd)[0].tolist() == [[[[0, 0.75], [3, 7.5]]]]
    means = nn.AvgPool2d(2, 2, **padded, count_include_pad=False)
    assert step_of(means.construct, mode)(odd)[0].tolist() == [[[[0, 1.5], [6, 7.5]]]]
    wide = nn.AvgPool2d(2, 2, "pad", ceil_mode=True)
    assert step_of(wide.construct, mode)(odd)[0].tolist() == [[[[2.5, 4], [8.5, 10]]]]


# Dropout


@pytest.mark.parametrize("mode", MODES)
def test_dropout_draws_anew_each_step_and_nothing_in_inference(mode):
    layer = nn.Dropout(0.5).set_train()
    x = np.ones((50, 50), np.float32)
    run = step_of(layer.construct, mode)
    first, second = run(x)[0], run(x)[0]
    assert set(np.unique(first)) == {0.0, 2.0}
    assert 0.45 < (first > 0).mean() < 0.55
    assert not np.array_equal(first, second)
    assert layer.counter.asnumpy() == 2
    layer.set_train(False)
    assert np.array_equal(step_of(layer.construct, mode)(x)[0], x)
    assert layer.counter.asnumpy() == 2


@pytest.mark.parametrize("mode", MODES)
def test_dropout_that_keeps_everything(mode):
    layer = nn.Dropout(1.0).set_train()
    x = normal(3, 4)
    assert np.array_equal(step_of(layer.construct, mode)(x)[0], x)


@pytest.mark.parametrize("mode", MODES)
def test_the_gradient_of_dropout_goes_where_the_values_went(mode):
    layer, scale = nn.Dropout(0.8).set_train(), nn.Dense(4, 4, weight_init="ones", has_bias=False)

    def step(x):
        y = layer(scale(x))
        return (y, *gradients(y, [scale.weight]))

    y, slope = step_of(step, mode)(np.eye(4, dtype=np.float32))
    assert relative(slope, y.T) < 1e-6
    assert (y == 0).any()


def test_dropout_layers_differ_and_follow_the_seed():
    def masks():
        layers = [nn.Dropout(0.5).set_train() for _ in range(3)]
        x = np.ones((40, 40), np.float32)
        return [step_of(layer.construct, "pynative")(x)[0].tobytes() for layer in layers]

    seed.set_seed(5)
    first = masks()
    seed.set_seed(5)
    assert masks() == first
    seed.set_seed(6)
    assert not set(masks()) & set(first)
    assert len(set(first)) == 3


def test_dropout_layers_do_not_draw_each_others_masks_at_other_steps():
    layers = [nn.Dropout(0.5).set_train() for _ in range(4)]
    x = np.ones((20, 20), np.float32)
    runs = [step_of(layer.construct, "pynative") for layer in layers]
    masks = [run(x)[0].tobytes() for run in runs for _ in range(5)]
    assert len(set(masks)) == 20


# Refusals


@table(
    ("make", "error", "text"),
    [
        (
            lambda: nn.Conv2d(0, 4, 3),
            ConfigError,
            "in_channels must be a whole number of at least 1\n  layer  Conv2d\n  given  0",
        ),
        (
            lambda: nn.Conv2d(1, 2.0, 3),
            ConfigError,
            "out_channels must be a whole number of at least 1\n  layer  Conv2d\n  given  2.0",
        ),
        (
            lambda: nn.Conv2d(3, 4, 3, group=2),
            ConfigError,
            "group must divide in_channels\n  layer        Conv2d\n  in channels  3\n  group        2",
        ),
        (
            lambda: nn.Conv2d(1, 2, (3, 0)),
            ShapeError,
            "kernel_size must be a positive int, or two of them\n  given  (3, 0)",
        ),
        (lambda: nn.Conv2d(1, 2, 3, stride=0), ShapeError, "stride must be a positive int, or two of them\n  given  0"),
        (
            lambda: nn.Conv2d(1, 2, 3, dilation=(1, 2, 3)),
            ShapeError,
            "dilation must be a positive int, or two of them\n  given  (1, 2, 3)",
        ),
        (
            lambda: nn.Conv2d(1, 2, 3, padding=1),
            ShapeError,
            "pad needs pad_mode='pad'\n  pad       (1, 1, 1, 1)\n  pad mode  same",
        ),
        (
            lambda: nn.Conv2d(1, 2, 3, pad_mode="full"),
            ShapeError,
            "unknown pad_mode\n  given    full\n  allowed  same, valid, pad",
        ),
        (
            lambda: nn.Dense(True, 3),
            ConfigError,
            "in_channels must be a whole number of at least 1\n  layer  Dense\n  given  True",
        ),
        (
            lambda: nn.Dense(2, 3, activation="rely"),
            ConfigError,
            f"unknown activation\n  given    rely\n  allowed  {', '.join(ACTIVATIONS)}\n  nearest  relu",
        ),
        (
            lambda: nn.Dense(2, 3, weight_init=Tensor([1.0])),
            ShapeError,
            "the initial value has another shape\n  given     (1,)\n  expected  (3, 2)",
        ),
        (lambda: nn.MaxPool2d(0), ShapeError, "kernel_size must be a positive int, or two of them\n  given  0"),
        (lambda: nn.Dropout(0), ConfigError, "keep_prob out of range\n  given    0.0\n  allowed  above 0, at most 1"),
        (lambda: nn.Dropout(1.5), ConfigError, "keep_prob out of range\n  given    1.5\n  allowed  above 0, at most 1"),
        (
            lambda: nn.SoftmaxCrossEntropyWithLogits(reduction="avg"),
            ConfigError,
            "unknown reduction\n  given    avg\n  allowed  none, mean, sum",
        ),
        (
            lambda: nn.MSELoss("avg"),
            ConfigError,
            "unknown reduction\n  given    avg\n  allowed  none, mean, sum",
        ),
    ],
)
def test_arguments_that_make_no_sense(make, error, text):
    with pytest.raises(error) as caught:
        make()
    assert str(caught.value) == f"{error.__name__}: {text}"


# Losses


@table("mode", MODES)
@table(("reduction", "reduce"), [("none", lambda a: a), ("mean", np.mean), ("sum", np.sum)])
@table("sparse", [False, True])
def test_softmax_cross_entropy(sparse, reduction, reduce, mode):
    logits, numbers = normal(6, 4), RNG.integers(0, 4, 6).astype(np.int32)
    wide = logits.astype(np.float64)
    per_sample = np.log(np.exp(wide).sum(1)) - wide[np.arange(6), numbers]
    labels = numbers if sparse else np.eye(4, dtype=np.float32)[numbers]
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=sparse, reduction=reduction)
    made = step_of(loss.construct, mode)(logits, labels)[0]
    assert made.shape == np.shape(reduce(per_sample))
    assert relative(made, np.asarray(reduce(per_sample))) < 1e-6


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("reduction", "reduce"), [("none", lambda a: a), ("mean", np.mean), ("sum", np.sum)])
def test_squared_error(reduction, reduce, mode):
    a, b = normal(3, 4), normal(3, 4)
    made = step_of(nn.MSELoss(reduction).construct, mode)(a, b)[0]
    assert relative(made, np.asarray(reduce((a.astype(np.float64) - b) ** 2))) < 1e-6


@pytest.mark.parametrize("mode", MODES)
def test_with_eval_cell(mode):
    network, loss = nn.Dense(4, 3), nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    x, labels = normal(5, 4), np.array([0, 1, 2, 0, 1], np.int32)
    value, output, label = step_of(nn.WithEvalCell(network, loss).construct, mode)(x, labels)
    assert value.shape == ()
    assert relative(output, x @ network.weight.asnumpy().T) < 1e-5
    assert label.tolist() == labels.tolist()
