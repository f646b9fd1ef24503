"""The confusion matrix and the figures that follow from it, against scikit-learn and sums over single samples."""

import math

import numpy as np
import pytest
from sklearn import metrics as sk
from tables import table

from runner import Tensor, nn
from runner.errors import ConfigError, ShapeError

RNG = np.random.default_rng(5)
CUTS = [(40,), (16, 16, 8), (1,) * 40, (39, 1)]
CLASSES = 6
SCORES = np.round(RNG.standard_normal((40, CLASSES)), 1).astype(np.float32)  # with ties
NUMBERS = RNG.integers(0, CLASSES - 1, 40).astype(np.int32)  # the last class has no sample
TARGETS = {
    "int32": NUMBERS,
    "column": NUMBERS[:, None],
    "float": NUMBERS.astype(np.float32),
    "one-hot": np.eye(CLASSES, dtype=np.float32)[NUMBERS],
}
LOGITS = RNG.standard_normal(40).astype(np.float32)
ANSWERS = RNG.integers(0, 2, 40).astype(np.float32)
LABEL_LOGITS = RNG.standard_normal((40, 4)).astype(np.float32)
LABELS = (RNG.random((40, 4)) < [0.5, 0.2, 0.9, 0.0]).astype(np.float32)  # the last label is never true
PREDICTED, TRUE = RNG.integers(0, 2, (4, 3, 5)), RNG.integers(0, 2, (4, 3, 5))
TRUE[0], TRUE[1, 1] = 0, 1  # without positives, without negatives
NORMS = {"no_norm": None, "target": "true", "prediction": "pred", "all": "all"}
# The figures from the counts of one sample, by the definitions of https://en.wikipedia.org/wiki/Confusion_matrix.
DEFINITIONS = {
    "sensitivity": lambda tp, fp, tn, fn: tp / (tp + fn),
    "specificity": lambda tp, fp, tn, fn: tn / (tn + fp),
    "precision": lambda tp, fp, tn, fn: tp / (tp + fp),
    "negative predictive value": lambda tp, fp, tn, fn: tn / (tn + fn),
    "miss rate": lambda tp, fp, tn, fn: fn / (fn + tp),
    "fall out": lambda tp, fp, tn, fn: fp / (fp + tn),
    "false discovery rate": lambda tp, fp, tn, fn: fp / (fp + tp),
    "false omission rate": lambda tp, fp, tn, fn: fn / (fn + tn),
    "prevalence threshold": lambda tp, fp, tn, fn: (
        math.sqrt(fp / (fp + tn)) / (math.sqrt(tp / (tp + fn)) + math.sqrt(fp / (fp + tn)))
    ),
    "threat score": lambda tp, fp, tn, fn: tp / (tp + fn + fp),
    "accuracy": lambda tp, fp, tn, fn: (tp + tn) / (tp + tn + fp + fn),
    "balanced accuracy": lambda tp, fp, tn, fn: (tp / (tp + fn) + tn / (tn + fp)) / 2,
    "f1 score": lambda tp, fp, tn, fn: 2 * tp / (2 * tp + fp + fn),
    "matthews correlation coefficient": lambda tp, fp, tn, fn: (
        (tp * tn - fp * fn) / math.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    ),
    "fowlkes mallows index": lambda tp, fp, tn, fn: math.sqrt(tp / (tp + fp) * tp / (tp + fn)),
    "informedness": lambda tp, fp, tn, fn: tp / (tp + fn) + tn / (tn + fp) - 1,
    "markedness": lambda tp, fp, tn, fn: tp / (tp + fp) + tn / (tn + fn) - 1,
}
OTHER_NAMES = {
    "TPR": "sensitivity",
    "csi": "threat score",
    "F1": "f1 score",
    "deltap": "markedness",
    "for": "false omission rate",
}


def over(cut, metric, output, target):
    edges = np.cumsum(cut)[:-1]
    for batch in zip(np.split(output, edges), np.split(target, edges), strict=True):
        metric.update(*batch)
    return metric.eval()


@table("cut", CUTS)
@table("norm", NORMS)
@table("shape", [(40,), (20, 2), (5, 2, 4)])
def test_with_a_number_of_classes(shape, norm, cut):
    """As MindSpore r1.2: classes along axis 1, class numbers, or probabilities of class 1."""
    metric = nn.ConfusionMatrix(CLASSES, norm)
    scores, target = np.moveaxis(SCORES.reshape(*shape, CLASSES), -1, 1), NUMBERS.reshape(shape)
    half = len(target) // 2
    metric.update(scores[:half].tolist(), Tensor(target[:half]))
    metric.update(scores[half:], target[half:])
    made = metric.eval()
    expected = sk.confusion_matrix(NUMBERS, SCORES.argmax(1), labels=range(CLASSES), normalize=NORMS[norm])
    assert made.dtype == np.float64
    np.testing.assert_allclose(made, expected, rtol=1e-12)
    numbers = over(cut, nn.ConfusionMatrix(CLASSES, norm), SCORES.argmax(1), NUMBERS)
    np.testing.assert_allclose(numbers, expected, rtol=1e-12)


@table("threshold", [0.5, 0.3])
def test_probabilities_of_class_one(threshold):
    shares = (np.arange(40) % 11 / 10).reshape(8, 5)
    made = nn.ConfusionMatrix(num_classes=2, normalize="no_norm", threshold=threshold)(shares, ANSWERS.reshape(8, 5))
    assert np.array_equal(made, sk.confusion_matrix(ANSWERS, shares.ravel() >= threshold))


@table("cut", CUTS)
@table("target", TARGETS)
def test_confusion_matrix_of_classes(target, cut):
    made = over(cut, nn.ConfusionMatrix(), SCORES, TARGETS[target])
    expected = sk.confusion_matrix(NUMBERS, SCORES.argmax(1), labels=range(CLASSES))
    assert made.dtype == np.int64
    assert np.array_equal(made, expected)


@table("cut", CUTS)
def test_confusion_matrices_of_logits(cut):
    made = over(cut, nn.ConfusionMatrix(), LOGITS[:, None], ANSWERS)
    assert np.array_equal(made, sk.confusion_matrix(ANSWERS, LOGITS > 0))
    made = over(cut, nn.ConfusionMatrix(eval_type="multilabel", threshold=0.3), LABEL_LOGITS, LABELS)
    expected = sk.multilabel_confusion_matrix(LABELS, np.log(0.3 / 0.7) < LABEL_LOGITS)
    assert np.array_equal(made, expected)


def test_a_matrix_has_a_limit():
    with pytest.raises(ConfigError, match="too many classes for a confusion matrix\n  given    513\n  allowed  512"):
        nn.ConfusionMatrix().update(np.zeros((1, 513)), np.zeros(1, np.int32))


@table(
    ("make", "text"),
    [
        (lambda: nn.ConfusionMatrix(0), "num_classes must be a whole number of at least 1\n  given  0"),
        (
            lambda: nn.ConfusionMatrix(2, "label"),
            "normalize is not one of the choices\n  given    'label'\n  allowed  no_norm, target, prediction, all",
        ),
        (lambda: nn.ConfusionMatrix(600), "too many classes for a confusion matrix\n  given    600\n  allowed  512"),
        (
            lambda: nn.ConfusionMatrix(2)(np.array([0, 2]), np.array([0, 1])),
            "a target of a metric is no label\n  metric   ConfusionMatrix\n  given    2\n  allowed  class",
        ),
        (
            lambda: nn.ConfusionMatrix(2)(np.zeros((3, 2)), np.zeros(2, int)),
            "a metric cannot compare these shapes\n  metric   ConfusionMatrix\n  output   (3, 2)\n  target   (2,)",
        ),
        (
            lambda: nn.ConfusionMatrixMetric(metric_name="sensitvity"),
            "unknown figure of a confusion matrix\n  given    sensitvity\n  allowed  sensitivity, recall, hit_rate",
        ),
        (lambda: nn.ConfusionMatrixMetric(decrease="min"), "decrease is not one of the choices\n  given    'min'"),
        (
            lambda: nn.ConfusionMatrixMetric().update(np.full((2, 3), 0.5), np.zeros((2, 3))),
            "a value of a metric is not 0 or 1\n  metric  ConfusionMatrixMetric",
        ),
        (
            lambda: nn.ConfusionMatrixMetric().update(np.zeros(3), np.zeros(3)),
            "a metric cannot compare these shapes\n  metric   ConfusionMatrixMetric\n  output   (3,)",
        ),
        (
            lambda: nn.ConfusionMatrixMetric(calculation_method=True).update(np.zeros((2, 3)), np.zeros((2, 3))),
            "a figure of each sample needs several elements per channel\n  output  (2, 3)",
        ),
        (
            lambda: nn.ConfusionMatrixMetric(True, "tpr", True, "sum_batch").update(PREDICTED, TRUE),
            "a batch has several values after the reduction\n  decrease  sum_batch\n  values    (3,)",
        ),
        (lambda: nn.ConfusionMatrixMetric().eval(), "a metric without data\n  metric  ConfusionMatrixMetric"),
    ],
)
def test_what_makes_no_sense(make, text):
    with pytest.raises(ConfigError) as caught:
        make()
    kind = "ShapeError" if isinstance(caught.value, ShapeError) else "ConfigError"
    assert str(caught.value).startswith(f"{kind}: {text}")


def counts(predicted, true):
    pairs = list(zip(predicted.ravel().tolist(), true.ravel().tolist(), strict=True))
    return [pairs.count(pair) for pair in ((1, 1), (1, 0), (0, 0), (0, 1))]


def value_of(name, predicted, true):
    try:
        return DEFINITIONS[name](*counts(predicted, true))
    except ZeroDivisionError:
        return math.nan


@table("name", [*DEFINITIONS, *OTHER_NAMES])
@table("skip_channel", [True, False])
@table("cut", [(4,), (1, 3), (1,) * 4])
def test_figures_of_all_counts(cut, skip_channel, name):
    """The value with the first channel and without it: `skip_channel` False leaves it out, as MindSpore r1.2 does."""
    used = slice(None) if skip_channel else slice(1, None)
    expected = value_of(OTHER_NAMES.get(name, name), PREDICTED[:, used], TRUE[:, used])
    made = over(cut, nn.ConfusionMatrixMetric(skip_channel, name), PREDICTED, TRUE)
    assert made.shape == (1,)
    assert made[0] == pytest.approx(expected, rel=1e-12)


@table("name", DEFINITIONS)
@table("decrease", ["mean", "sum"])
def test_figures_of_each_sample(decrease, name):
    with np.errstate(invalid="ignore"):
        metric = nn.ConfusionMatrixMetric(True, name, True, decrease)
        made = over((2, 2), metric, PREDICTED, TRUE)
    total = weight = 0
    for start in (0, 2):
        batch = range(start, start + 2)
        rows = [[value_of(name, PREDICTED[n, c], TRUE[n, c]) for c in range(3)] for n in batch]
        rows = [[value for value in row if not math.isnan(value)] for row in rows]
        if decrease == "mean":
            means = [sum(row) / len(row) for row in rows if row]
            value, found = (sum(means) / len(means) if means else 0, len(means))
        else:
            value, found = sum(map(sum, rows)), sum(map(len, rows))
        total, weight = total + value * found, weight + found
    assert made == pytest.approx(total / weight, rel=1e-12)


def test_figures_that_mindspore_computes():
    """The example of its documentation, and one that MindSpore 2.10 computed."""
    x, y = np.array([[[0], [1]], [[1], [0]]]), np.array([[[0], [1]], [[0], [1]]])
    metric = nn.ConfusionMatrixMetric(skip_channel=True, metric_name="tpr", calculation_method=False, decrease="mean")
    assert metric(x, y).tolist() == [0.5]
    assert np.isnan(nn.ConfusionMatrixMetric()(np.zeros((2, 2)), np.zeros((2, 2)))).tolist() == [True]
