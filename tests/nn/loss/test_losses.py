"""Losses and their gradients in both modes, against their definition in Float64."""

import numpy as np
import pytest
from both_modes import MODES, nodes_of, relative, step_of
from loss_values import REDUCE, RNG, check, normal, value_and_slope
from tables import table

from runner import nn
from runner.core.values import Tensor
from runner.dataset import NumpySlicesDataset
from runner.errors import ConfigError, ShapeError
from runner.nn.loss.losses import LossInput
from runner.train.model import Model

EXTREME = np.array([0, 1e-30, 1e-3, 1, 10, 20, 60, 88, 104, 1e4, 1e30], np.float32)
EXTREME = np.concatenate([EXTREME, -EXTREME])


# Softmax cross-entropy


def smoothed_entropy(labels, smoothing, weights, reduction):
    weights = np.ones(labels.shape[1]) if weights is None else np.asarray(weights, np.float64)
    targets = labels * (1 - smoothing) + smoothing / labels.shape[1]

    def function(x):
        top = x.max(1, keepdims=True)
        logarithms = x - top - np.log(np.exp(x - top).sum(1, keepdims=True))
        return REDUCE[reduction](-(targets * logarithms).sum(1) * (labels * weights).sum(1))

    return function


@table("mode", MODES)
@table("reduction", REDUCE)
@table("sparse", [False, True])
@table(("smoothing", "weights"), [(0.1, None), (0.0, [1, 0, 2.5, 0.25]), (0.3, (0.5, 1, 2, 3)), (0.0, None)])
def test_smoothing_and_class_weights(smoothing, weights, sparse, reduction, mode):
    logits, numbers = normal(6, 4) * 5, RNG.integers(0, 4, 6).astype(np.int32)
    one_hot = np.eye(4, dtype=np.float32)[numbers]
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse, reduction, label_smoothing=smoothing, class_weights=weights)
    assert loss.reduction == reduction
    check(
        loss,
        smoothed_entropy(one_hot, smoothing, weights, reduction),
        logits,
        numbers if sparse else one_hot,
        mode,
        1e-5,
    )


@table("mode", MODES)
def test_the_weight_of_a_distribution_is_its_mean_weight(mode):
    logits, labels = normal(3, 4), RNG.dirichlet(np.ones(4), 3).astype(np.float32)
    weights = [1.0, 2.0, 0.0, 4.0]
    loss = nn.SoftmaxCrossEntropyWithLogits(reduction="mean", label_smoothing=0.2, class_weights=weights)
    check(loss, smoothed_entropy(labels, 0.2, weights, "mean"), logits, labels, mode)


@table("mode", MODES)
def test_smoothed_loss_of_extreme_logits(mode):
    logits = np.array([[1e4, -1e4, 0], [80, -80, 0], [1e30, 1e30, 1e30]], np.float32)
    loss = nn.SoftmaxCrossEntropyWithLogits(True, "none", label_smoothing=0.1)
    value, slope = value_and_slope(loss, logits, np.array([1, 0, 2], np.int32), mode)
    one_hot = np.eye(3)[[1, 0, 2]]
    assert relative(value, smoothed_entropy(one_hot, 0.1, None, "none")(logits.astype(np.float64))) < 1e-6
    assert np.isfinite(slope).all()


@table("mode", MODES)
@table("sparse", [False, True])
@table("reduction", REDUCE)
def test_the_graph_without_options_is_that_of_the_plain_loss(reduction, sparse, mode):
    labels = np.array([0, 2, 1], np.int32) if sparse else np.eye(3, dtype=np.float32)
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse, reduction, label_smoothing=0, class_weights=None)
    names = [node.op.name for node in nodes_of(loss.construct, mode, normal(3, 3), labels)]
    hot, reduce = ["OneHot"] * sparse, {"none": [], "mean": ["ReduceMean"], "sum": ["ReduceSum"]}[reduction]
    plain = [*hot, "SoftmaxCrossEntropyWithLogits", *reduce]
    assert names == (["SparseSoftmaxCrossEntropyWithLogits"] if sparse and reduction == "mean" else plain)


@table("mode", MODES)
@table("options", [{"label_smoothing": 0.1}, {"class_weights": [1, 2, 3]}])
@table("label", [3, -1, -4])
def test_a_label_that_is_no_class_is_no_silent_zero(label, options, mode):
    loss = nn.SoftmaxCrossEntropyWithLogits(True, "mean", **options)
    with pytest.raises(Exception, match="3"):
        step_of(loss.construct, mode)(normal(2, 3), np.array([0, label], np.int32))


# Binary cross-entropy


def binary_entropy(y, weight, pos_weight, reduction):
    def function(x):
        positive = pos_weight * y * np.logaddexp(0, -x)
        return REDUCE[reduction](weight * (positive + (1 - y) * np.logaddexp(0, x)))

    return function


@table("mode", MODES)
@table("reduction", REDUCE)
@table("shape", [(7,), (5, 1), (4, 3), (2, 3, 2)])
def test_binary_cross_entropy(shape, reduction, mode):
    logits, labels = normal(*shape) * 3, RNG.random(shape).astype(np.float32)
    check(nn.BCEWithLogitsLoss(reduction), binary_entropy(labels, 1, 1, reduction), logits, labels, mode)


@table("mode", MODES)
@table(
    ("weight", "pos_weight"),
    [(None, 3.0), (None, [1.0, 0.0, 9.0]), ([[1.0, 2.0, 0.5]], None), (Tensor([0.5, 0.5, 4.0]), (2.0, 3.0, 4.0))],
)
def test_weights_of_labels(weight, pos_weight, mode):
    logits, labels = normal(4, 3), RNG.integers(0, 2, (4, 3)).astype(np.float32)
    wide = [np.asarray(1.0 if given is None else given, np.float64) for given in (weight, pos_weight)]
    loss = nn.BCEWithLogitsLoss("mean", weight, pos_weight)
    check(loss, binary_entropy(labels, *wide, "mean"), logits, labels, mode)


@table("mode", MODES)
@table("label", [0.0, 1.0])
def test_extreme_logits_are_exact_element_by_element(label, mode):
    """Relative to each element, also where the loss is tiny; the slope at 0 is a half, with the sign of the label."""
    labels = np.full_like(EXTREME, label)
    value, slope = value_and_slope(nn.BCEWithLogitsLoss("none"), EXTREME, labels, mode)
    wide = EXTREME.astype(np.float64) * (1 if label == 0 else -1)
    expected = np.logaddexp(0, wide)
    probability = 1 / (1 + np.exp(-np.maximum(wide, -700)))
    tiny = float(np.finfo(np.float32).tiny)
    np.testing.assert_allclose(value, expected, rtol=1e-5, atol=tiny)
    np.testing.assert_allclose(slope, probability * (1 if label == 0 else -1), rtol=1e-5, atol=tiny)


# Differences of values


@table("mode", MODES)
@table("reduction", REDUCE)
@table("kind", [nn.MSELoss, nn.L1Loss])
def test_squared_and_absolute_errors(kind, reduction, mode):
    logits, labels = normal(3, 4), normal(3, 4)

    def expected(x):
        difference = x - labels.astype(np.float64)
        return REDUCE[reduction](difference**2 if kind is nn.MSELoss else np.abs(difference))

    loss = kind(reduction)
    assert loss.reduction == reduction
    check(loss, expected, logits, labels, mode)


@table("mode", MODES)
@table("reduction", REDUCE)
@table("beta", [1.0, 0.5, 0.01, 3])
def test_smooth_l1(beta, reduction, mode):
    labels = normal(40)
    logits = labels + np.linspace(-2, 2, 40, dtype=np.float32)

    def expected(x):
        d = np.abs(x - labels.astype(np.float64))
        return REDUCE[reduction](np.where(d < beta, d**2 / (2 * beta), d - beta / 2))

    check(nn.SmoothL1Loss(beta, reduction), expected, logits, labels, mode)


@table("mode", MODES)
def test_slopes_at_the_corners(mode):
    difference = np.array([0.0, 0.5, -0.5, 1e30, -1e30], np.float32)
    zeros = np.zeros(5, np.float32)
    assert value_and_slope(nn.SmoothL1Loss(0.5), difference, zeros, mode)[1].tolist() == [0, 1, -1, 1, -1]
    assert value_and_slope(nn.L1Loss("sum"), difference, zeros, mode)[1].tolist() == [0, 1, -1, 1, -1]


def test_defaults_are_those_of_the_reference():
    kinds = {
        nn.MSELoss: "mean",
        nn.L1Loss: "mean",
        nn.BCEWithLogitsLoss: "mean",
        nn.SmoothL1Loss: "none",
        nn.SoftmaxCrossEntropyWithLogits: "none",
    }
    assert {kind: kind().reduction for kind in kinds} == kinds
    assert nn.SmoothL1Loss().beta == 1


ELEMENTWISE = [nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.BCEWithLogitsLoss]


@table("mode", MODES)
@table("kind", ELEMENTWISE)
@table(("output", "target"), [((4, 1), (4,)), ((4,), (4, 1)), ((1, 3), (3,)), ((1, 1), (1,)), ((2, 1, 3), (2, 3))])
def test_axes_of_length_one_do_not_make_pairs(output, target, kind, mode):
    logits, labels = normal(*output), RNG.random(target).astype(np.float32)
    loss = kind(reduction="none")
    expected = step_of(loss.construct, mode)(logits, labels.reshape(output))[0]
    made = step_of(loss.construct, mode)(logits, labels)[0]
    assert made.shape == output
    assert np.array_equal(made, expected)


@table("mode", MODES)
@table("kind", ELEMENTWISE)
@table("dtype", [np.int32, np.int64, np.float32])
def test_integers_are_targets(dtype, kind, mode):
    logits, labels = normal(5), np.array([0, 1, 1, 0, 1])
    loss = kind(reduction="mean")
    made, expected = (step_of(loss.construct, mode)(logits, labels.astype(d))[0] for d in (dtype, np.float32))
    assert made == expected


@table("mode", MODES)
@table("kind", ELEMENTWISE)
@table(("output", "target"), [((4, 3), (4,)), ((4, 3), (3,)), ((4,), ()), ((4, 3), (4, 1)), ((2, 3), (3, 2))])
def test_other_shapes_are_errors(output, target, kind, mode):
    with pytest.raises(ShapeError) as caught:
        step_of(kind(reduction="mean").construct, mode)(normal(*output), normal(*target))
    text = "output and target of a loss have different shapes"
    assert str(caught.value).startswith(f"ShapeError: {text}\n  output  {output}\n  target  {target}\n")
    assert "hint" in str(caught.value)


@table(
    ("make", "text"),
    [
        (lambda: nn.L1Loss("avg"), "unknown reduction\n  given    avg\n  allowed  none, mean, sum"),
        (lambda: nn.SmoothL1Loss(1.0, "avg"), "unknown reduction\n  given    avg\n  allowed  none, mean, sum"),
        (lambda: nn.BCEWithLogitsLoss("avg"), "unknown reduction\n  given    avg\n  allowed  none, mean, sum"),
        (lambda: nn.SmoothL1Loss(0.0), "beta must be a number above 0\n  loss   SmoothL1Loss\n  given  0.0"),
        (
            lambda: nn.BCEWithLogitsLoss(pos_weight=-1.0),
            "pos_weight must be finite numbers of at least 0\n  given  -1.0",
        ),
        (lambda: nn.BCEWithLogitsLoss(weight=[]), "weight must be finite numbers of at least 0\n  given  []"),
        (lambda: nn.BCEWithLogitsLoss(weight="x"), "weight must be finite numbers of at least 0\n  given  'x'"),
        (
            lambda: nn.SoftmaxCrossEntropyWithLogits(class_weights=[1, np.nan]),
            "class_weights must be finite numbers of at least 0\n  given  [1, nan]",
        ),
        (
            lambda: nn.SoftmaxCrossEntropyWithLogits(label_smoothing=-0.1),
            "label_smoothing must be a number of at least 0\n  loss   SoftmaxCrossEntropyWithLogits\n  given  -0.1",
        ),
        (lambda: nn.SoftmaxCrossEntropyWithLogits(label_smoothing=1), "label_smoothing must be below 1\n  given  1"),
    ],
)
def test_arguments_that_make_no_sense(make, text):
    with pytest.raises(ConfigError) as caught:
        make()
    assert str(caught.value) == f"ConfigError: {text}"


@table("mode", MODES)
@table(
    ("loss", "text"),
    [
        (
            nn.SoftmaxCrossEntropyWithLogits(class_weights=[1, 2]),
            "there must be one weight per class\n  class weights  (2,)\n  logits         (4, 3)",
        ),
        (
            nn.BCEWithLogitsLoss(pos_weight=[1, 2]),
            "pos_weight must be one number, or one per label\n  pos weight  (2,)\n  logits      (4, 3)",
        ),
        (
            nn.BCEWithLogitsLoss(weight=np.ones((2, 4, 3))),
            "weight must be one number, or one per label\n  weight  (2, 4, 3)\n  logits  (4, 3)",
        ),
    ],
)
def test_weights_of_another_number(loss, text, mode):
    with pytest.raises(ShapeError) as caught:
        step_of(loss.construct, mode)(normal(4, 3), np.zeros((4, 3), np.float32))
    assert str(caught.value).startswith(f"ShapeError: {text}")


@table("mode", [0, 1])
def test_cells_outside_of_a_network(mode):
    from runner import context

    with context.preserved():
        context.set_context(mode=mode)
        loss = nn.BCEWithLogitsLoss()(Tensor([[0.0], [0.0]]), Tensor([0, 1]))
    assert loss.asnumpy() == pytest.approx(np.log(2), rel=1e-6)


@table("level", ["O2", "O3"])
@table("mode", [0, 1])
@table(
    ("loss", "kind"),
    [
        (nn.MSELoss(), "values"),
        (nn.L1Loss(), "values"),
        (nn.SmoothL1Loss(reduction="mean"), "values"),
        (nn.BCEWithLogitsLoss(pos_weight=[1.0, 2.0, 3.0]), "answers"),
        (nn.SoftmaxCrossEntropyWithLogits(True, "mean", label_smoothing=0.1, class_weights=[1, 2, 3]), "classes"),
    ],
)
def test_mixed_precision_learns_too(kind, loss, mode, level):
    rng = np.random.default_rng(4)
    x = rng.normal(size=(64, 4)).astype(np.float32)
    values = (x @ rng.normal(size=(4, 3))).astype(np.float32)
    answers, classes = (values > 0).astype(np.float32), values.argmax(1).astype(np.int32)
    data = NumpySlicesDataset((x, {"values": values, "answers": answers, "classes": classes}[kind]), shuffle=False)
    network = nn.Dense(4, 3, weight_init="zeros")
    optimizer = nn.Momentum(network.trainable_params(), 0.05, 0.9)
    model = Model(network, loss, optimizer, {"loss"}, mode=mode, amp_level=level)
    before = model.eval(data.batch(16))["loss"]
    model.train(10, data.batch(16), dataset_sink_mode=False)
    assert model.eval(data.batch(16))["loss"] < 0.7 * before


# What losses declare of the outputs that they take


def declaring(**attributes):
    return type("Declared", (nn.Cell,), attributes)()


@table(
    ("attributes", "words"),
    [
        ({"activation": "softmx"}, "activation of a loss is unknown"),
        ({"activation": "softmax", "takes": "logit"}, "what a loss takes is unknown"),
        ({"activation": "softmax", "takes": "values"}, "what a loss takes is unknown"),
        ({"takes": "probabilities"}, "such a loss needs an activation"),
    ],
)
def test_what_a_loss_declares(attributes, words):
    with pytest.raises(ConfigError, match=words):
        LossInput.of(declaring(**attributes))
    assert LossInput.of(declaring()) == (None, None)
    assert LossInput.of(declaring(activation="sigmoid")) == ("sigmoid", "logits")
