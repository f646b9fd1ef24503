"""Metrics of classification: one class of several, one logit for two classes, or several labels per sample."""

from typing import Annotated, Literal

import numpy as np

from runner.errors import ConfigError, ShapeError
from runner.nn.cell import Cell
from runner.nn.metrics.base import Mean, Metric, of_arrays, require_data, require_shapes
from runner.nn.metrics.classifier import Classifier, EvalType, Labels, Threshold, classes_last
from runner.validation.arguments import flag, one_of, whole
from runner.validation.rules import Rule

__all__ = [
    "F1",
    "Accuracy",
    "Fbeta",
    "Precision",
    "Recall",
    "Top1CategoricalAccuracy",
    "Top5CategoricalAccuracy",
    "TopKCategoricalAccuracy",
]

Average = Literal["macro", "micro"]
AVERAGES = ("macro", "micro")


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

    @of_arrays
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

    @of_arrays
    def update(self, output: np.ndarray, target: np.ndarray) -> None:
        output, target = classes_last(output, target)
        require_shapes(self, output.ndim > 1 and output.shape[-1] > 1, output, target, "outputs (N, C) of C classes")
        true = self.classifier(self, output, target).true[:, None]
        scores = output.reshape(len(true), -1)
        own = np.take_along_axis(scores, true, -1)
        before = np.arange(scores.shape[-1]) < true
        rank = (~(scores <= own) | ((scores == own) & before)).sum(-1)  # a NaN has no rank among the first
        self.total += float((rank < self.k).sum())
        self.count += len(true)


class Top1CategoricalAccuracy(TopKCategoricalAccuracy):
    """`TopKCategoricalAccuracy` of the largest output."""

    def __init__(self) -> None:
        super().__init__(1)


class Top5CategoricalAccuracy(TopKCategoricalAccuracy):
    """`TopKCategoricalAccuracy` of the five largest outputs."""

    def __init__(self) -> None:
        super().__init__(5)


class ClassCounts(Metric):
    """Base of what follows from numbers per class: right predictions, all predictions, true ones.

    With one logit per sample the value is that of class 1. Otherwise, without `average`, it is an array as in
    MindSpore r1.2: a value per class, with several labels one per sample. `average` says which mean over classes or
    labels the value is: "macro", that of their values, without classes that are neither true nor predicted; "micro",
    the value of the sums over all. A value without predictions or samples is 0. Outputs and targets, `eval_type` and
    `threshold`: see `Classifier`.
    """

    direction = "maximize"

    def __init__(
        self, eval_type: EvalType | None = None, average: Average | None = None, threshold: Threshold = 0.5
    ) -> None:
        if average is not None:
            one_of({}, AVERAGES, average=average)
        self.average, self.classifier = average, Classifier(eval_type, threshold)
        self.is_scalar = average is not None
        self.clear()

    def attach(self, loss_fn: Cell) -> None:
        self.classifier.attach(loss_fn)

    def clear(self) -> None:
        self.count, self.classes, self.is_binary = 0, 0, False
        self.right = self.predicted = self.true = np.zeros(1, np.int64)
        self.samples: list[np.ndarray] = []  # int64 (3, N) of each batch with several labels: the counts per sample

    @of_arrays
    def update(self, output: np.ndarray, target: np.ndarray) -> None:
        found = self.classifier(self, output, target)
        if self.count and found.classes != self.classes:
            rows = {"metric": type(self).__name__, "before": self.classes, "now": found.classes}
            raise ShapeError("the number of classes changes between batches", **rows)
        self.count, self.is_binary, self.classes = self.count + len(found.true), found.is_binary, found.classes
        both = found.predicted & found.true if found.is_binary else found.true[found.predicted == found.true]
        self.right = self.right + _totals(both, found)
        self.predicted = self.predicted + _totals(found.predicted, found)
        self.true = self.true + _totals(found.true, found)
        if self.average is None and found.is_binary and found.classes > 1:
            self.samples.append(np.stack([part.sum(1) for part in (both, found.predicted, found.true)]))

    def shares(self, right: np.ndarray, predicted: np.ndarray, true: np.ndarray) -> np.ndarray:
        """The values (K,) of counts (K,)."""
        raise NotImplementedError

    def eval(self, average: bool = False) -> float | np.ndarray:
        """The value. With `average` an array is replaced by the mean of all its values."""
        flag({}, average=average)
        require_data(self, self.count)
        counts = self.right, self.predicted, self.true
        if self.average == "micro":
            return float(self.shares(*(count.sum(keepdims=True) for count in counts))[0])
        shares = self.shares(*(np.concatenate(self.samples, axis=1) if self.samples else counts))
        if self.average == "macro":
            return float(shares.mean() if self.is_binary else shares[self.predicted + self.true > 0].mean())
        return float(shares.mean()) if average or (self.is_binary and self.classes == 1) else shares


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


class Fbeta(ClassCounts):
    """Weighted harmonic mean of precision and recall, in which recall has `beta` times the weight; see `ClassCounts`.

    Raises ConfigError unless `beta` is above 0.
    """

    def __init__(
        self,
        beta: float,
        eval_type: EvalType | None = None,
        average: Average | None = None,
        threshold: Threshold = 0.5,
    ) -> None:
        if isinstance(beta, bool) or not isinstance(beta, int | float) or not 0 < beta < np.inf:
            raise ConfigError("beta must be a number above 0", given=repr(beta))
        self.beta = beta
        super().__init__(eval_type, average, threshold)

    def shares(self, right: np.ndarray, predicted: np.ndarray, true: np.ndarray) -> np.ndarray:
        weight = self.beta**2
        either = np.where(right > 0, weight * true + predicted, 1)  # nothing right: 0
        shares: np.ndarray = (1 + weight) * right / either
        return shares


class F1(Fbeta):
    """Harmonic mean of precision and recall; see `ClassCounts`."""

    def __init__(
        self, eval_type: EvalType | None = None, average: Average | None = None, threshold: Threshold = 0.5
    ) -> None:
        super().__init__(1.0, eval_type, average, threshold)


def _totals(values: np.ndarray, labels: Labels) -> np.ndarray:
    """Counts per class of class numbers (M,), or per label of bools (M, L)."""
    return values.sum(0, dtype=np.int64) if labels.is_binary else np.bincount(values, minlength=labels.classes)
