"""Metrics of classification: one class of several, one logit for two classes, or several labels per sample."""

import math
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np

from runner.errors import ConfigError
from runner.nn.cell import Cell
from runner.nn.metric_base import Mean, Metric, require_data, require_shapes, without_units
from runner.validation.arguments import one_of, whole
from runner.validation.rules import Rule

__all__ = ["F1", "Accuracy", "ConfusionMatrix", "Precision", "Recall", "TopKCategoricalAccuracy"]

EvalType = Literal["classification", "multilabel"]
Threshold = Annotated[float, Rule(above=0, below=1)]
EVAL_TYPES = ("classification", "multilabel")
AVERAGES = ("macro", "micro")
MAX_CLASSES = 512  # of a confusion matrix: 262,144 numbers in files of the run
_ALLOWED = "class numbers (N,) or one-hot (N, C) for (N, C), 0 and 1 (N,) for one logit, (N, L) for L labels"


class Labels(NamedTuple):
    """What is predicted and what is true: int64 class numbers (M,), or with `is_binary` bool (M, L)."""

    predicted: np.ndarray
    true: np.ndarray
    classes: int
    is_binary: bool


class Classifier:
    """How outputs become classes.

    Outputs (N, C) are the scores of C classes, of which the largest counts; targets are class numbers (N,) or one-hot
    (N, C). With `eval_type` "multilabel" each of them is a logit of its own, and targets (N, L) are 0 or 1; by default
    (None) so if the loss function has the `activation` "sigmoid", as `BCEWithLogitsLoss`. A single output per sample,
    (N,) or (N, 1), is always a logit. A logit counts as 1 if its probability is above `threshold`.
    """

    def __init__(self, eval_type: EvalType | None, threshold: float) -> None:
        if eval_type is not None:
            one_of({}, EVAL_TYPES, eval_type=eval_type)
        if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 < threshold < 1:
            raise ConfigError("threshold must be a probability", given=repr(threshold), allowed="above 0, below 1")
        self.is_fixed, self.is_multilabel = eval_type is not None, eval_type == "multilabel"
        self.limit = math.log(threshold / (1 - threshold))

    def attach(self, loss_fn: Cell) -> None:
        """Take the default from the loss function."""
        if not self.is_fixed:
            self.is_multilabel = getattr(loss_fn, "activation", None) == "sigmoid"

    def __call__(self, metric: Metric, output: np.ndarray, target: np.ndarray) -> Labels:
        """The labels of a batch. Raises ShapeError, and ConfigError for targets that are no labels."""
        is_single = output.ndim == 1 or output.shape[-1] == 1
        if is_single or self.is_multilabel:
            fits = without_units(output.shape) == without_units(target.shape)
            require_shapes(metric, fits, output, target, _ALLOWED)
            labels = 1 if is_single else output.shape[-1]
            _require_range(metric, target, 1, "0 or 1")
            return Labels((output > self.limit).reshape(-1, labels), (target > 0.5).reshape(-1, labels), labels, True)
        predicted, true, classes = output.argmax(-1), target, output.shape[-1]
        if target.shape == output.shape:
            true = target.argmax(-1)
        fits = without_units(true.shape) == without_units(predicted.shape)
        require_shapes(metric, fits, output, target, _ALLOWED)
        _require_range(metric, true, classes - 1, f"class numbers from 0 to {classes - 1}")
        return Labels(predicted.ravel(), true.ravel().astype(np.int64), classes, False)


class Accuracy(Mean):
    """Share of samples whose predicted class is right; with several labels, of samples all of whose labels are.

    Outputs and targets, `eval_type` and `threshold`: see `Classifier`. Sequences (N, T, C) count every position.
    """

    direction = "maximize"

    def __init__(self, eval_type: EvalType | None = None, threshold: Threshold = 0.5) -> None:
        super().__init__()
        self.classifier = Classifier(eval_type, threshold)

    def attach(self, loss_fn: Cell) -> None:
        self.classifier.attach(loss_fn)

    def update(self, output: np.ndarray, target: np.ndarray) -> None:
        found = self.classifier(self, output, target)
        right = found.predicted == found.true
        self.total += float((right.all(-1) if found.is_binary else right).sum())
        self.count += len(right)


class TopKCategoricalAccuracy(Mean):
    """Share of samples whose class is among the `k` largest of the outputs (N, C); targets (N,), or one-hot (N, C).

    Of equal outputs the first ones count, so that `k` = 1 is the accuracy. Raises ConfigError unless `k` is 1 or more.
    """

    direction = "maximize"

    def __init__(self, k: Annotated[int, Rule(low=1)] = 5) -> None:
        super().__init__()
        whole({}, 1, k=k)
        self.k, self.classifier = k, Classifier("classification", 0.5)

    def update(self, output: np.ndarray, target: np.ndarray) -> None:
        require_shapes(self, output.ndim > 1 and output.shape[-1] > 1, output, target, "outputs (N, C) of C classes")
        true = self.classifier(self, output, target).true[:, None]
        scores = output.reshape(len(true), -1)
        own = np.take_along_axis(scores, true, -1)
        before = np.arange(scores.shape[-1]) < true
        rank = (~(scores <= own) | ((scores == own) & before)).sum(-1)  # a NaN has no rank among the first
        self.total += float((rank < self.k).sum())
        self.count += len(true)


class ClassCounts(Metric):
    """Base of what follows from numbers per class: right predictions, all predictions, true ones.

    With one logit per sample the value is that of class 1. Otherwise `average` says which mean over classes or labels
    it is: "macro", that of their values, without classes that are neither true nor predicted; "micro", the value of
    the sums over all. A value without predictions or samples is 0. Outputs and targets, `eval_type` and `threshold`:
    see `Classifier`.
    """

    direction = "maximize"

    def __init__(
        self,
        eval_type: EvalType | None = None,
        average: Literal["macro", "micro"] = "macro",
        threshold: Threshold = 0.5,
    ) -> None:
        one_of({}, AVERAGES, average=average)
        self.average, self.classifier = average, Classifier(eval_type, threshold)
        self.clear()

    def attach(self, loss_fn: Cell) -> None:
        self.classifier.attach(loss_fn)

    def clear(self) -> None:
        self.count, self.is_binary = 0, False
        self.right = self.predicted = self.true = np.zeros(1, np.int64)

    def update(self, output: np.ndarray, target: np.ndarray) -> None:
        found = self.classifier(self, output, target)
        self.count, self.is_binary = self.count + len(found.true), found.is_binary
        both = found.predicted & found.true if found.is_binary else found.true[found.predicted == found.true]
        self.right = self.right + _totals(both, found)
        self.predicted = self.predicted + _totals(found.predicted, found)
        self.true = self.true + _totals(found.true, found)

    def shares(self, right: np.ndarray, predicted: np.ndarray, true: np.ndarray) -> np.ndarray:
        """The value of each class (K,) from the counts (K,)."""
        raise NotImplementedError

    def eval(self) -> float:
        require_data(self, self.count)
        counts = self.right, self.predicted, self.true
        if self.average == "micro":
            return float(self.shares(*(count.sum(keepdims=True) for count in counts))[0])
        shares = self.shares(*counts)
        return float(shares.mean() if self.is_binary else shares[self.predicted + self.true > 0].mean())


class Precision(ClassCounts):
    """Right predictions of a class / all predictions of it; see `ClassCounts`."""

    def shares(self, right: np.ndarray, predicted: np.ndarray, true: np.ndarray) -> np.ndarray:
        shares: np.ndarray = right / np.maximum(predicted, 1)
        return shares


class Recall(ClassCounts):
    """Right predictions of a class / its samples; see `ClassCounts`."""

    def shares(self, right: np.ndarray, predicted: np.ndarray, true: np.ndarray) -> np.ndarray:
        shares: np.ndarray = right / np.maximum(true, 1)
        return shares


class F1(ClassCounts):
    """Harmonic mean of precision and recall; see `ClassCounts`."""

    def shares(self, right: np.ndarray, predicted: np.ndarray, true: np.ndarray) -> np.ndarray:
        shares: np.ndarray = 2 * right / np.maximum(predicted + true, 1)
        return shares


class ConfusionMatrix(Metric):
    """Numbers of samples, int64 (C, C): row k, column m counts samples of class k that were predicted as m.

    One logit per sample gives (2, 2), L labels (L, 2, 2), a matrix for each. Outputs and targets, `eval_type` and
    `threshold`: see `Classifier`. Raises ConfigError for more than MAX_CLASSES classes.
    """

    is_scalar: ClassVar[bool] = False

    def __init__(self, eval_type: EvalType | None = None, threshold: Threshold = 0.5) -> None:
        self.classifier = Classifier(eval_type, threshold)
        self.clear()

    def attach(self, loss_fn: Cell) -> None:
        self.classifier.attach(loss_fn)

    def clear(self) -> None:
        self.count, self.matrix = 0, np.zeros((1, 1), np.int64)

    def update(self, output: np.ndarray, target: np.ndarray) -> None:
        found = self.classifier(self, output, target)
        if found.classes > MAX_CLASSES:
            repair = "precision, recall and f1 have no limit"
            raise ConfigError(
                "too many classes for a confusion matrix", given=found.classes, allowed=MAX_CLASSES, repair=repair
            )
        self.count += len(found.true)
        self.matrix = self.matrix + _confusions(found)

    def eval(self) -> np.ndarray:
        require_data(self, self.count)
        return self.matrix


def _confusions(found: Labels) -> np.ndarray:
    """How often each pair (true, predicted) occurs: (C, C), for several labels (L, 2, 2)."""
    width = 2 if found.is_binary else found.classes
    pairs = (found.true.astype(np.int64) * width + found.predicted).reshape(len(found.true), -1)
    counts = np.stack([np.bincount(column, minlength=width * width) for column in pairs.T])
    return counts.reshape((-1, width, width) if len(counts) > 1 else (width, width))


def _totals(values: np.ndarray, labels: Labels) -> np.ndarray:
    """Counts per class of class numbers (M,), or per label of bools (M, L)."""
    return values.sum(0, dtype=np.int64) if labels.is_binary else np.bincount(values, minlength=labels.classes)


def _require_range(metric: Metric, target: np.ndarray, last: int, allowed: str) -> None:
    """Raise ConfigError unless all targets are from 0 to `last`."""
    if target.size and not (target.min() >= 0 and target.max() <= last):
        wrong = target[~((target >= 0) & (target <= last))][0]
        rows = {"metric": type(metric).__name__, "given": wrong, "allowed": allowed}
        raise ConfigError("a target of a metric is no label", **rows)
