"""The losses of r1.2 beyond cross-entropy and differences of values, in both modes, against Float64."""

import numpy as np
import pytest
from both_modes import MODES, relative, step_of
from loss_values import REDUCE, RNG, check, normal, value_and_slope
from tables import table

from runner import nn, ops
from runner.core.values import Tensor
from runner.errors import ConfigError, ShapeError
from runner.nn.loss.losses import _Loss


@table("mode", MODES)
@table("reduction", REDUCE)
@table("weight", [None, 2.0, [1.0, 0.0, 3.0]])
def test_binary_cross_entropy_of_probabilities(weight, reduction, mode):
    x = RNG.uniform(0.05, 0.95, (4, 3)).astype(np.float32)
    y = RNG.uniform(0, 1, (4, 3)).astype(np.float32)
    w = 1.0 if weight is None else np.asarray(weight)
    loss = nn.BCELoss(weight, reduction)
    check(loss, lambda a: REDUCE[reduction](-w * (y * np.log(a) + (1 - y) * np.log(1 - a))), x, y, mode)


@pytest.mark.parametrize("mode", MODES)
def test_certain_probabilities(mode):
    """MindSpore 2.10 prints these numbers for BCELoss()(x, y)."""
    x, y = np.array([0, 1, 0, 1, 0.3, 0.7], np.float32), np.array([0, 1, 1, 0, 0.2, 1], np.float32)
    value, slope = value_and_slope(nn.BCELoss(), x, y, mode)
    assert np.allclose(value, [0, 0, 27.631021, 27.631021, 0.52613455, 0.35667497], rtol=2e-7)
    assert np.isfinite(slope).all()
    assert np.allclose(slope[2:], [-1e12, 1e12, 0.47619051, -1.4285715], rtol=1e-6)


@table("mode", MODES)
def test_absolute_and_root_mean_square(mode):
    x, y = normal(4, 3), normal(4, 3)
    check(nn.RMSELoss(), lambda a: np.sqrt(np.mean((a - y) ** 2)), x, y, mode)
    for reduction, reduce in REDUCE.items():
        check(nn.MAELoss(reduction), lambda a, reduce=reduce: reduce(abs(a - y)), x, y, mode)


def dice(a, b, smooth=1e-5):
    return 1 - 2 * (a * b).sum() / ((a * a).sum() + (b * b).sum() + smooth)


@table("mode", MODES)
@table("smooth", [1e-5, 1.0])
def test_dice(smooth, mode):
    x, y = RNG.uniform(0, 1, (2, 3, 4)).astype(np.float32), (normal(2, 3, 4) > 0).astype(np.float32)
    check(nn.DiceLoss(smooth), lambda a: dice(a, y, smooth), x, y, mode)


@table("mode", MODES)
@table("ignored", [None, 1])
@table("activation", ["softmax", "sigmoid", None])
@table("weights", [None, [[0.5], [2.0], [1.0]], [[0.5, 1.0], [2.0, 0.0], [1.0, 3.0]]])
def test_dice_of_classes(weights, activation, ignored, mode):
    x, y = normal(2, 3, 4), (normal(2, 3, 4) > 0).astype(np.float32)
    given = None if weights is None else Tensor(np.array(weights, np.float32))

    def expected(a):
        if activation == "softmax":  # over the last axis, as the activation of that name
            a = np.exp(a) / np.exp(a).sum(-1, keepdims=True)
        elif activation == "sigmoid":
            a = 1 / (1 + np.exp(-a))
        factors = np.ones((3, 1)) if weights is None else np.array(weights)
        losses = [dice(a[:, k], y[:, k]) * factors[k] for k in range(3) if k != ignored]
        return np.sum(losses, axis=0)[0] / 3 if weights is None else np.sum(losses, axis=0) / 3

    check(nn.MultiClassDiceLoss(given, ignored, activation), expected, x, y, mode)


@table("mode", MODES)
@table("reduction", REDUCE)
@table("gamma", [0.0, 1.0, 2.0, 1.5])
@table("weight", [None, [1.0, 2.0, 0.5]])
@table("shape", [(4, 3), (2, 3, 4), (2, 3, 2, 2)])
@table("is_distribution", [False, True])
def test_focal(is_distribution, shape, weight, gamma, reduction, mode):
    x = normal(*shape)
    numbers = RNG.integers(0, 3, (shape[0], 1, *shape[2:])).astype(np.int32)
    hot = np.moveaxis(np.eye(3)[numbers[:, 0]], -1, 1)
    if is_distribution:
        hot = hot * 0.9 + 0.05

    def expected(a):
        factors = np.ones(3) if weight is None else np.array(weight)
        logarithms = a - a.max(1, keepdims=True)
        logarithms = logarithms - np.log(np.exp(logarithms).sum(1, keepdims=True))
        each = -((1 - np.exp(logarithms)) ** gamma) * hot * logarithms * factors.reshape(1, 3, *[1] * (a.ndim - 2))
        flat = each.reshape(*a.shape[:2], -1)
        return REDUCE[reduction](flat.mean(2) if is_distribution else flat.sum(1).mean(1))

    labels = hot.astype(np.float32) if is_distribution else numbers
    check(nn.FocalLoss(weight, gamma, reduction), expected, x, labels, mode, 3e-6)


@pytest.mark.parametrize("mode", MODES)
def test_the_example_of_the_reference(mode):
    """Its documentation of FocalLoss prints this number."""
    logits = np.array([[0.8, 1.4], [0.5, 0.9], [1.2, 0.9]], np.float32)
    loss = nn.FocalLoss(weight=Tensor(np.array([1, 2], np.float32)), gamma=2.0)
    value, _ = value_and_slope(loss, logits, np.array([[1], [1], [0]], np.int32), mode)
    assert np.allclose(value, 0.12516622, rtol=3e-7)


@table("mode", MODES)
@table("reduction", REDUCE)
@table("margin", [0.0, 0.5, -0.9])
def test_cosine(margin, reduction, mode):
    x, other = normal(6, 3), normal(6, 3)
    labels = np.array([1, -1, 1, -1, 0, -1], np.int32)

    def expected(a):
        cosine = (a * other).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(other, axis=1)
        each = np.where(labels == 1, 1 - cosine, np.where(labels == -1, np.maximum(cosine - margin, 0), 0.0))
        return REDUCE[reduction](each)

    check(nn.CosineEmbeddingLoss(margin, reduction), expected, x, (other, labels), mode, 5e-6)


# A loss of a script


class Weighted(_Loss):
    """A subclass as r1.2 has them; it ends with `get_loss`."""

    def __init__(self, reduction="mean"):
        super(Weighted, self).__init__(reduction)  # noqa: UP008  as scripts do
        self.abs = ops.Abs()

    def construct(self, base, target, weights=1.0):
        return self.get_loss(self.abs(base - target), weights)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("reduction", [*REDUCE, None])
def test_get_loss(reduction, mode):
    loss, (x, y, w) = Weighted(reduction), (normal(3, 2) for _ in range(3))
    assert (bool(loss.reduce), loss.average) == (reduction not in (None, "none"), reduction != "sum")
    reduce = REDUCE[reduction or "none"]
    for weights, factor in (((), 1.0), ((w,), w.astype(np.float64))):
        check(loss, lambda a, factor=factor: np.asarray(reduce(abs(a - y) * factor)), x, (y, *weights), mode)
    half = step_of(lambda a: loss.get_loss(a, 2.0), mode)(x.astype(np.float16))[0]
    assert half.dtype == np.float16
    assert relative(half, np.asarray(reduce(2.0 * x.astype(np.float16).astype(np.float64)))) < 1e-3
    assert loss.get_axis(Tensor(x)) == (0, 1)


X, Y = Tensor(np.zeros((2, 3), np.float32)), Tensor(np.zeros((2, 4), np.float32))


@table(
    ("make", "error", "text"),
    [
        (lambda: nn.MAELoss("average"), ConfigError, "unknown reduction\n  given    average"),
        (lambda: nn.BCELoss(-1.0), ConfigError, "weight must be finite numbers of at least 0"),
        (lambda: nn.BCELoss([1.0, 2.0])(X, X), ShapeError, "weight must be one number, or one per label"),
        (lambda: nn.BCELoss()(X, Y), ShapeError, "output and target of a loss have different shapes"),
        (lambda: nn.RMSELoss()(X, Y), ShapeError, "output and target of a loss have different shapes"),
        (lambda: nn.DiceLoss(0.0), ConfigError, "smooth must be a number above 0\n  loss   DiceLoss"),
        (lambda: nn.DiceLoss()(X, Y), ShapeError, "output and target of a loss have different shapes"),
        (lambda: nn.MultiClassDiceLoss(X[0]), ConfigError, "weights must be a tensor of two axes"),
        (lambda: nn.MultiClassDiceLoss(activation="gelu"), ConfigError, "activation is not one of the choices"),
        (lambda: nn.MultiClassDiceLoss(activation=3), ConfigError, "activation must be a name, a cell or None"),
        (lambda: nn.MultiClassDiceLoss(Y)(X, X), ShapeError, "there must be weights of each class"),
        (lambda: nn.MultiClassDiceLoss()(X[0], X[0]), ShapeError, "a dice loss of classes needs an axis of classes"),
        (lambda: nn.FocalLoss(gamma=-1), ConfigError, "gamma must be a number of at least 0\n  loss   FocalLoss"),
        (lambda: nn.FocalLoss()(X, Y), ShapeError, "the target does not fit the output"),
        (lambda: nn.FocalLoss()(X[0], X[0]), ShapeError, "output and target of a focal loss"),
        (lambda: nn.FocalLoss([1.0, 2.0])(X, X), ShapeError, "there must be one weight per class"),
        (lambda: nn.CosineEmbeddingLoss(1.5), ConfigError, "margin must be from -1 to 1"),
        (lambda: nn.CosineEmbeddingLoss()(X, X, X), ShapeError, "a cosine loss needs a label for each row"),
        (lambda: nn.CosineEmbeddingLoss()(X, Y, X[:, 0]), ShapeError, "outputs of a cosine loss have different"),
    ],
)
def test_arguments_and_operands_that_do_not_fit(make, error, text):
    with pytest.raises(error) as caught:
        make()
    assert str(caught.value).startswith(f"{error.__name__}: {text}")
