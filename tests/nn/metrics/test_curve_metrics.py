"""The receiver operating characteristic against scikit-learn, and numbers that MindSpore 2.10 computed."""

import numpy as np
import pytest
from sklearn import metrics as sk
from tables import table

from runner import Tensor, nn
from runner.errors import ConfigError, ShapeError

RNG = np.random.default_rng(3)
SCORES = np.round(RNG.random((60, 4)), 1)  # with ties
NUMBERS = RNG.integers(0, 4, 60)
CUTS = [(60,), (20, 20, 20), (59, 1)]


def over(cut, metric, output, target):
    edges = np.cumsum(cut)[:-1]
    for batch in zip(np.split(output, edges), np.split(target, edges), strict=True):
        metric.update(*batch)
    return metric.eval()


def expected_curve(scores, is_positive):
    false, true, thresholds = sk.roc_curve(is_positive, scores, drop_intermediate=False)
    thresholds[0] = thresholds[1] + 1  # infinite in scikit-learn
    return false, true, thresholds


@table("cut", CUTS)
@table("label", [None, 0, 2])
@table("shape", [(60,), (60, 1), (30, 2)])
def test_one_score_per_sample(shape, label, cut):
    metric = nn.ROC(pos_label=label)
    output, target = SCORES[:, 0].reshape(shape), NUMBERS.reshape(shape)
    made = over(cut if len(output) == 60 else (10, 20), metric, output, target)
    is_positive = (1 if label is None else label) == NUMBERS
    for part, expected in zip(made, expected_curve(SCORES[:, 0], is_positive), strict=True):
        np.testing.assert_allclose(part, expected, rtol=1e-12)
    assert nn.auc(*made[:2]) == pytest.approx(sk.roc_auc_score(is_positive, SCORES[:, 0]))


@table("cut", CUTS)
@table("shape", [(60,), (20, 3)])
def test_several_classes(shape, cut):
    output = np.moveaxis(SCORES.reshape(*shape, 4), -1, 1)
    made = over(cut if len(output) == 60 else (5, 15), nn.ROC(class_num=4), output, NUMBERS.reshape(shape))
    assert [type(part) for part in made] == [list] * 3
    for number in range(4):
        for part, expected in zip(made, expected_curve(SCORES[:, number], number == NUMBERS), strict=True):
            np.testing.assert_allclose(part[number], expected, rtol=1e-12)


def test_the_example_of_mindspore():
    metric = nn.ROC(pos_label=2)
    metric.clear()
    metric.update(Tensor(np.array([[3, 0, 1], [1, 3, 0], [1, 0, 2]])), [[0, 2, 1], [1, 2, 1], [0, 0, 1]])
    false, true, thresholds = metric.eval()
    assert thresholds.tolist() == [4, 3, 2, 1, 0]
    assert nn.auc(false, true) == pytest.approx(0.5357142857142857)  # MindSpore 2.10 computes this
    metric.clear()
    with pytest.raises(ConfigError, match="a metric without data"):
        metric.eval()


@table("falling", [False, True])
@table("column", [False, True])
def test_the_area_under_any_curve(column, falling):
    x, y = np.sort(RNG.random(9)), RNG.standard_normal(9)
    order = slice(None, None, -1 if falling else 1)
    shape = (9, 1) if column else (9,)
    assert nn.auc(x[order].reshape(shape), y[order].reshape(shape)) == pytest.approx(sk.auc(x, y))
    mixed = RNG.permutation(9)
    assert nn.auc(x[mixed], y[mixed], reorder=True) == pytest.approx(sk.auc(x, y))


@table(
    ("make", "text"),
    [
        (
            lambda: nn.ROC(class_num=3)(SCORES, NUMBERS),
            "ConfigError: class_num is not the number of classes\n  given    3\n  classes  4",
        ),
        (lambda: nn.ROC()(SCORES, NUMBERS), "ConfigError: class_num is not the number of classes\n  classes  4"),
        (lambda: nn.ROC(4, 1)(SCORES, NUMBERS), "ConfigError: pos_label is for one score per sample\n  given   1"),
        (
            lambda: nn.ROC()(SCORES[:, 0], NUMBERS[:-1]),
            "ShapeError: a metric cannot compare these shapes\n  metric   ROC\n  output   (60,)\n  target   (59,)",
        ),
        (
            lambda: nn.ROC()(SCORES[:, 0], NUMBERS * 0),
            "ConfigError: a class without a curve: it has no samples\n  metric  ROC\n  label   1",
        ),
        (
            lambda: nn.ROC(pos_label=0)(SCORES[:, 0], NUMBERS * 0),
            "ConfigError: a class without a curve: it has all samples\n  metric  ROC\n  label   0",
        ),
        (lambda: nn.ROC(class_num=0), "ConfigError: class_num must be a whole number of at least 1\n  given  0"),
        (lambda: nn.auc([0, 1], np.zeros(2)), "ConfigError: x is no array\n  given    list"),
        (lambda: nn.auc(np.zeros(3), np.zeros(2)), "ShapeError: no curve\n  x        (3,)\n  y        (2,)"),
        (lambda: nn.auc(np.zeros(1), np.zeros(1)), "ShapeError: no curve\n  x        (1,)\n  y        (1,)"),
        (
            lambda: nn.auc(np.array([0, 2, 1]), np.zeros(3)),
            "ConfigError: x rises and falls\n  repair  auc(",
        ),
    ],
)
def test_what_makes_no_sense(make, text):
    with pytest.raises(ConfigError) as caught:
        make()
    assert str(caught.value).startswith(text)


def test_all_batches_have_one_form():
    metric = nn.ROC(class_num=1)
    metric.update(SCORES[:, 0], NUMBERS)
    with pytest.raises(ShapeError, match="the number of axes changes between batches"):
        metric.update(SCORES[:, :1], NUMBERS)
