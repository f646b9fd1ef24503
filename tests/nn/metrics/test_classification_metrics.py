"""Metrics of classification against scikit-learn, in whatever batches the samples come."""

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
LOGITS = RNG.standard_normal(40).astype(np.float32)
ANSWERS = RNG.integers(0, 2, 40).astype(np.float32)
LABEL_LOGITS = RNG.standard_normal((40, 4)).astype(np.float32)
LABELS = (RNG.random((40, 4)) < [0.5, 0.2, 0.9, 0.0]).astype(np.float32)  # the last label is never true
SCORE_METRICS = {"precision": (nn.Precision, sk.precision_score), "recall": (nn.Recall, sk.recall_score)}
SCORE_METRICS["f1"] = (nn.F1, sk.f1_score)


def over(cut, metric, output, target):
    edges = np.cumsum(cut)[:-1]
    for batch in zip(np.split(output, edges), np.split(target, edges), strict=True):
        metric.update(*batch)
    return metric.eval()


def one_hot(numbers):
    return np.eye(CLASSES, dtype=np.float32)[numbers]


TARGETS = {
    "int32": NUMBERS,
    "int64": NUMBERS.astype(np.int64),
    "column": NUMBERS[:, None],
    "float": NUMBERS.astype(np.float32),
    "one-hot": one_hot(NUMBERS),
}


@table("cut", CUTS)
@table("kind", SCORE_METRICS)
@table("average", ["macro", "micro"])
@table("target", TARGETS)
def test_several_classes(target, average, kind, cut):
    metric, oracle = SCORE_METRICS[kind]
    expected = oracle(NUMBERS, SCORES.argmax(1), average=average, zero_division=0)
    made = over(cut, metric(average=average), SCORES, TARGETS[target])
    assert type(made) is float
    assert made == pytest.approx(expected, abs=1e-12)


@table("target", TARGETS)
@table("k", [1, 2, 3, 5])
@table("cut", CUTS)
def test_the_class_is_among_the_best(cut, k, target):
    order = np.array([sorted(range(CLASSES), key=lambda c: (-row[c], c)) for row in SCORES])  # the first of equal ones
    expected = np.mean([number in row[:k] for number, row in zip(NUMBERS, order, strict=True)])
    made = over(cut, nn.TopKCategoricalAccuracy(k), SCORES, TARGETS[target])
    assert made == pytest.approx(expected, abs=1e-12)
    if k == 1:
        assert made == over(cut, nn.Accuracy(), SCORES, TARGETS[target])


def test_best_classes_against_scikit_learn_without_ties():
    scores = RNG.permutation(40 * CLASSES).reshape(40, CLASSES).astype(np.float32)
    for k in (1, 2, 5):
        expected = sk.top_k_accuracy_score(NUMBERS, scores, k=k, labels=range(CLASSES))
        assert over((40,), nn.TopKCategoricalAccuracy(k), scores, NUMBERS) == pytest.approx(expected)


@pytest.mark.parametrize("fill", [0.0, np.nan])
def test_outputs_that_are_all_equal_do_not_contain_every_class(fill):
    made = over((40,), nn.TopKCategoricalAccuracy(2), np.full_like(SCORES, fill), NUMBERS)
    assert made == (0 if np.isnan(fill) else np.mean(NUMBERS < 2))


@table("cut", CUTS)
@table("threshold", [0.5, 0.2, 0.9])
@table("kind", [*SCORE_METRICS, "accuracy"])
@table("columns", [((), ()), ((1,), ()), ((1,), (1,)), ((), (1,))])
@table("dtype", [np.float32, np.int32, bool])
def test_one_logit(dtype, columns, kind, threshold, cut):
    output, target = LOGITS.reshape(40, *columns[0]), ANSWERS.astype(dtype).reshape(40, *columns[1])
    metric, oracle = SCORE_METRICS.get(kind, (nn.Accuracy, sk.accuracy_score))
    predicted = 1 / (1 + np.exp(-LOGITS.astype(np.float64))) > threshold
    made = over(cut, metric(threshold=threshold), output, target)
    options = {} if kind == "accuracy" else {"zero_division": 0}
    assert made == pytest.approx(oracle(ANSWERS, predicted, **options), abs=1e-12)


class OfLogarithms(nn.Cell):
    activation, takes = "sigmoid", "log_probabilities"


@table("threshold", [0.5, 0.2, 0.9])
@table(("loss", "form"), [(nn.BCELoss(), np.array), (nn.MSELoss(), np.array), (OfLogarithms(), np.log)], ids=str)
def test_outputs_are_what_the_loss_takes(loss, form, threshold):
    probabilities = 1 / (1 + np.exp(-LOGITS.astype(np.float64)))
    metric = nn.Accuracy(threshold=threshold)
    metric.attach(loss)
    made = over((40,), metric, form(probabilities), ANSWERS)
    assert made == pytest.approx(sk.accuracy_score(ANSWERS, probabilities > threshold))


@table("cut", CUTS)
@table("threshold", [0.5, 0.3])
@table("kind", SCORE_METRICS)
@table("average", ["macro", "micro"])
@table("attached", [False, True])
def test_several_labels(attached, average, kind, threshold, cut):
    metric, oracle = SCORE_METRICS[kind]
    made = metric(None if attached else "multilabel", average=average, threshold=threshold)
    if attached:
        made.attach(nn.BCEWithLogitsLoss())
    predicted = 1 / (1 + np.exp(-LABEL_LOGITS.astype(np.float64))) > threshold
    expected = oracle(LABELS, predicted, average=average, zero_division=0)
    assert over(cut, made, LABEL_LOGITS, LABELS) == pytest.approx(expected, abs=1e-12)


@table("cut", CUTS)
@table("kind", SCORE_METRICS)
@table("target", ["int32", "one-hot"])
@table("convert", [Tensor, np.ndarray.tolist, np.asarray])
def test_a_value_per_class(convert, target, kind, cut):
    """As in MindSpore r1.2: an array, or with `eval(average=True)` the mean over all classes."""
    metric, oracle = SCORE_METRICS[kind]
    expected = oracle(NUMBERS, SCORES.argmax(1), labels=range(CLASSES), average=None, zero_division=0)
    made = metric("classification")
    for batch in zip(*(np.split(part, np.cumsum(cut)[:-1]) for part in (SCORES, TARGETS[target])), strict=True):
        made.update(*map(convert, batch))
    np.testing.assert_allclose(made.eval(), expected, rtol=1e-12, strict=True)
    assert made.eval(average=True) == pytest.approx(expected.mean(), abs=1e-12)
    assert not made.is_scalar
    assert metric(average="macro").is_scalar


@table("cut", CUTS)
@table("kind", SCORE_METRICS)
def test_a_value_per_sample_with_several_labels(kind, cut):
    """As in MindSpore r1.2, whose predictions are 0 and 1 already."""
    metric, oracle = SCORE_METRICS[kind]
    predicted = (LABEL_LOGITS > 0).astype(np.float32)
    made = metric("multilabel")
    values = over(cut, made, predicted, LABELS)
    expected = [oracle(true, row, zero_division=0) for true, row in zip(LABELS, predicted, strict=True)]
    np.testing.assert_allclose(values, expected, rtol=1e-12)
    assert made.eval(True) == pytest.approx(np.mean(expected), abs=1e-12)
    assert over(cut, nn.Accuracy("multilabel"), predicted, LABELS) == sk.accuracy_score(LABELS, predicted)


@table("beta", [0.5, 1, 3.0])
@table("average", ["macro", "micro", None])
def test_recall_has_more_weight_than_precision(average, beta):
    made = over((16, 16, 8), nn.Fbeta(beta, average=average), SCORES, NUMBERS)
    labels = range(CLASSES) if average is None else None
    options = {"beta": beta, "labels": labels, "average": average, "zero_division": 0}
    np.testing.assert_allclose(made, sk.fbeta_score(NUMBERS, SCORES.argmax(1), **options), rtol=1e-12)


@table("kind", [nn.Top1CategoricalAccuracy, nn.Top5CategoricalAccuracy])
@table("target", TARGETS)
def test_one_and_five_of_the_best(target, kind):
    k = 1 if kind is nn.Top1CategoricalAccuracy else 5
    expected = over((40,), nn.TopKCategoricalAccuracy(k), SCORES, TARGETS[target])
    assert over((39, 1), kind(), SCORES, TARGETS[target]) == expected


@table("kind", [nn.Accuracy, nn.Precision, nn.Recall, nn.F1, nn.ConfusionMatrix, nn.Top5CategoricalAccuracy])
@table("encode", [np.asarray, one_hot])
@table("shape", [(5, 8), (5, 2, 4), (40, 1)])
def test_classes_along_axis_one(shape, encode, kind):
    """As in MindSpore r1.2: images (N, C, H, W) of scores, with targets (N, H, W) or one-hot ones."""
    scores, target = SCORES.reshape(*shape, CLASSES), encode(NUMBERS.reshape(shape))
    moved = np.moveaxis(scores, -1, 1), np.moveaxis(target, -1, 1) if target.ndim > len(shape) else target
    assert np.array_equal(over((len(scores),), kind(), *moved), over((40,), kind(), SCORES, NUMBERS))


def test_the_last_axis_is_that_of_the_classes_when_two_fit():
    scores = np.random.default_rng(1).random((4, 3, 3))
    numbers = scores.argmax(-1)
    assert nn.Accuracy()(scores, numbers) == 1


def test_the_number_of_classes_is_the_same_in_all_batches():
    metric = nn.Precision()
    metric.update(SCORES, NUMBERS)
    with pytest.raises(ShapeError) as caught:
        metric.update(SCORES[:, :5], NUMBERS)
    text = "the number of classes changes between batches\n  metric  Precision\n  before  6\n  now     5"
    assert str(caught.value) == f"ShapeError: {text}"


@table("cut", CUTS)
@table("threshold", [0.5, 0.3])
def test_all_labels_of_a_sample_count(threshold, cut):
    predicted = 1 / (1 + np.exp(-LABEL_LOGITS.astype(np.float64))) > threshold
    made = over(cut, nn.Accuracy("multilabel", threshold), LABEL_LOGITS, LABELS)
    assert made == pytest.approx(sk.accuracy_score(LABELS, predicted), abs=1e-12)


@table("kind", [nn.Accuracy, nn.Precision, nn.Recall, nn.F1, nn.ConfusionMatrix])
def test_every_position_of_a_sequence_counts(kind):
    scores, numbers = SCORES.reshape(5, 8, CLASSES), NUMBERS.reshape(5, 8)
    assert np.array_equal(over((2, 3), kind(), scores, numbers), over((40,), kind(), SCORES, NUMBERS))
    assert np.array_equal(over((2, 3), kind(), scores, one_hot(numbers)), over((40,), kind(), SCORES, NUMBERS))


@table("kind", [nn.Precision, nn.Recall, nn.F1])
def test_nothing_predicted_and_nothing_true_is_zero(kind):
    assert over((3,), kind(), np.full(3, -1.0), np.zeros(3)) == 0
    assert over((3,), kind(average="micro"), np.full(3, -1.0), np.zeros(3)) == 0


@table("kind", [nn.Accuracy, nn.TopKCategoricalAccuracy, nn.Precision, nn.Recall, nn.F1, nn.ConfusionMatrix])
def test_clear_forgets(kind):
    metric = kind()
    metric.update(SCORES, NUMBERS)
    metric.clear()
    with pytest.raises(ConfigError) as caught:
        metric.eval()
    assert str(caught.value) == f"ConfigError: a metric without data\n  metric  {kind.__name__}"
    assert np.array_equal(over((40,), metric, SCORES, NUMBERS), over((40,), kind(), SCORES, NUMBERS))


@table(
    ("metric", "output", "target"),
    [
        (nn.Accuracy(), SCORES, NUMBERS[:-1]),
        (nn.F1(), SCORES, ANSWERS.reshape(20, 2)),
        (nn.Recall("multilabel"), LABEL_LOGITS, LABELS[:, :3]),
        (nn.Precision(), LOGITS, one_hot(NUMBERS)),
        (nn.TopKCategoricalAccuracy(), LOGITS, ANSWERS),
        (nn.ConfusionMatrix(), SCORES, LABELS),
    ],
)
def test_shapes_that_do_not_fit(metric, output, target):
    with pytest.raises(ShapeError) as caught:
        metric.update(output, target)
    text = f"a metric cannot compare these shapes\n  metric   {type(metric).__name__}\n"
    assert str(caught.value).startswith(f"ShapeError: {text}  output   {output.shape}\n  target   {target.shape}\n")


@table(
    ("metric", "output", "target", "given", "allowed"),
    [
        (nn.Accuracy(), SCORES, np.full(40, -1), "-1", "class numbers from 0 to 5"),
        (nn.ConfusionMatrix(), SCORES, NUMBERS + 2, "6", "class numbers from 0 to 5"),
        (nn.F1(), LOGITS, ANSWERS * 2 - 1, "-1.0", "0 or 1"),
        (nn.F1("multilabel"), LABEL_LOGITS, LABELS * 2, "2.0", "0 or 1"),
        (nn.F1(), LOGITS, np.full(40, np.nan), "nan", "0 or 1"),
    ],
)
def test_targets_that_are_no_labels(metric, output, target, given, allowed):
    with pytest.raises(ConfigError) as caught:
        metric.update(output, target)
    rows = f"  metric   {type(metric).__name__}\n  given    {given}\n  allowed  {allowed}"
    assert str(caught.value) == f"ConfigError: a target of a metric is no label\n{rows}"


@table(
    ("make", "text"),
    [
        (
            lambda: nn.F1(average="marco"),
            "average is not one of the choices\n  given    'marco'\n  allowed  macro, micro\n  nearest  macro",
        ),
        (
            lambda: nn.Accuracy("multi"),
            "eval_type is not one of the choices\n  given    'multi'\n  allowed  classification, multilabel",
        ),
        (lambda: nn.Recall(threshold=1), "threshold must be a probability\n  given    1\n  allowed  above 0, below 1"),
        (lambda: nn.Fbeta(0), "beta must be a number above 0\n  given  0"),
        (lambda: nn.TopKCategoricalAccuracy(0), "k must be a whole number of at least 1\n  given  0"),
    ],
)
def test_arguments_that_make_no_sense(make, text):
    with pytest.raises(ConfigError) as caught:
        make()
    assert str(caught.value).startswith(f"ConfigError: {text}")
