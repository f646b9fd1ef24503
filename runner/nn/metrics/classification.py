"""Metrics of classification: one class of several, one logit for two classes, or several labels per sample.

`Classifier` reads outputs and targets as labels. Accuracy, precision, recall and the F scores count them; then the
confusion matrix with the figures that follow from it, and the ROC curve.
"""

from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from runner.errors import ConfigError, ShapeError, known_names
from runner.nn.cell import Cell
from runner.nn.loss.losses import ANY_NUMBERS, LossInput
from runner.nn.metrics.base import Mean, Metric, is_one_hot, of_arrays, require_data, require_shapes, without_units
from runner.validation.arguments import flag, one_of, whole
from runner.validation.rules import Rule

# How outputs and targets are read: as classes, one logit for two of them, or several labels.

EvalType = Literal["classification", "multilabel"]
Threshold = Annotated[float, Rule(above=0, below=1)]
EVAL_TYPES = ("classification", "multilabel")
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
    (N, C). With more axes see `classes_last`. With `eval_type` "multilabel" each of them is a logit of its own, and
    targets (N, L) are 0 or 1; by default (None) so if the loss function has the `activation` "sigmoid", as
    `BCEWithLogitsLoss`. A single output per sample, (N,) or (N, 1), is a logit, and counts as 1 if its probability is
    above `threshold`: so do predictions that are 1 already, and those of 0 do not. With a loss function that takes
    probabilities or values, as `BCELoss` or `MSELoss`, outputs are compared with `threshold` itself.
    """

    def __init__(self, eval_type: EvalType | None, threshold: float) -> None:
        if eval_type is not None:
            one_of({}, EVAL_TYPES, eval_type=eval_type)
        self.is_fixed, self.is_multilabel = eval_type is not None, eval_type == "multilabel"
        require_probability(threshold)
        self.threshold, self.limit = threshold, ANY_NUMBERS.limit(threshold)

    def attach(self, loss_fn: Cell) -> None:
        """Take the default, and what outputs are, from the loss function."""
        outputs = LossInput.of(loss_fn)
        self.limit = outputs.limit(self.threshold)
        if not self.is_fixed:
            self.is_multilabel = outputs.activation == "sigmoid"

    def __call__(self, metric: Metric, output: np.ndarray, target: np.ndarray) -> Labels:
        """The labels of a batch. Raises ShapeError, and ConfigError for targets that are no labels."""
        if not self.is_multilabel:
            output, target = classes_last(output, target)
        is_single = output.ndim == 1 or output.shape[-1] == 1
        if is_single or self.is_multilabel:
            fits = without_units(output.shape) == without_units(target.shape)
            require_shapes(metric, fits, output, target, _ALLOWED)
            labels = 1 if is_single else output.shape[-1]
            require_range(metric, target, 1, "0 or 1")
            return Labels((output > self.limit).reshape(-1, labels), (target > 0.5).reshape(-1, labels), labels, True)
        predicted, true, classes = output.argmax(-1), target, output.shape[-1]
        if target.shape == output.shape:
            true = target.argmax(-1)
        fits = without_units(true.shape) == without_units(predicted.shape)
        require_shapes(metric, fits, output, target, _ALLOWED)
        require_range(metric, true, classes - 1, f"class numbers from 0 to {classes - 1}")
        return Labels(predicted.ravel(), true.ravel().astype(np.int64), classes, False)


def classes_last(output: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Output and target with the axis of the classes last.

    Of outputs with more than two axes it is the axis that the targets do not have: the last one of (N, T, C), or axis
    1 of (N, C, T), as in MindSpore r1.2; the last one if both fit. Of targets of the same shape it is the axis along
    which they are one-hot.
    """
    if output.ndim < 3:
        return output, target
    if target.shape == output.shape:
        if not is_one_hot(target, -1) and is_one_hot(target, 1):
            return np.moveaxis(output, 1, -1), np.moveaxis(target, 1, -1)
        return output, target
    is_last = without_units(target.shape) == without_units(output.shape[:-1])
    if not is_last and target.shape == (len(output), *output.shape[2:]):
        output = np.moveaxis(output, 1, -1)
    return output, target


def require_probability(threshold: float) -> None:
    """Raise ConfigError unless a threshold is a number between 0 and 1."""
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 < threshold < 1:
        raise ConfigError("threshold must be a probability", given=repr(threshold), allowed="above 0, below 1")


def require_range(metric: Metric, target: np.ndarray, last: int, allowed: str) -> None:
    """Raise ConfigError unless all targets are from 0 to `last`."""
    if target.size and not (target.min() >= 0 and target.max() <= last):
        wrong = target[~((target >= 0) & (target <= last))][0]
        rows = {"metric": type(metric).__name__, "given": wrong, "allowed": allowed}
        raise ConfigError("a target of a metric is no label", **rows)


# Right predictions: of all samples, of the k most probable classes, of each class.

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


# The confusion matrix, and the figures that follow from true and false positives and negatives.

MAX_CLASSES = 512  # of a confusion matrix: 262,144 numbers in files of the run
NORMS = ("no_norm", "target", "prediction", "all")
REDUCTIONS = ("none", "mean", "sum", "mean_batch", "sum_batch", "mean_channel", "sum_channel")


class ConfusionMatrix(Metric):
    """How often each class is predicted as each: row k, column m counts samples of class k that were predicted as m.

    With `num_classes` C the value is Float64 (C, C), as in MindSpore r1.2. Outputs (N, C, ...) are scores of classes
    for targets (N, ...); outputs of the shape of the targets are class numbers if they are integers, otherwise
    probabilities, of which those of at least `threshold` are class 1. Without it outputs and targets are those of
    `Classifier`, with `eval_type` and `threshold`, and the value is int64: (C, C), for one logit per sample (2, 2), for
    L labels (L, 2, 2), a matrix for each.

    `normalize` divides by the sum of each row ("target"), of each column ("prediction") or of all ("all"); what is
    divided by 0 is 0. Raises ConfigError for more than MAX_CLASSES classes and for targets that are no labels,
    ShapeError for shapes that do not fit.
    """

    is_scalar = False

    def __init__(
        self,
        num_classes: int | None = None,
        normalize: Literal["no_norm", "target", "prediction", "all"] = "no_norm",
        threshold: Threshold = 0.5,
        *,
        eval_type: EvalType | None = None,
    ) -> None:
        one_of({}, NORMS, normalize=normalize)
        self.num_classes, self.normalize, self.threshold = num_classes, normalize, threshold
        self.classifier = Classifier(eval_type, threshold)
        if num_classes is not None:
            whole({}, 1, num_classes=num_classes)
            _require_few(num_classes)
        self.clear()

    def attach(self, loss_fn: Cell) -> None:
        self.classifier.attach(loss_fn)

    def clear(self) -> None:
        self.count, self.matrix = 0, np.zeros((1, 1), np.int64)

    @of_arrays
    def update(self, output: np.ndarray, target: np.ndarray) -> None:
        if self.num_classes is None:
            found = self.classifier(self, output, target)
        else:
            found = self._numbers(output, target, self.num_classes)
        _require_few(found.classes)
        self.count += len(found.true)
        self.matrix = self.matrix + _confusions(found)

    def _numbers(self, output: np.ndarray, target: np.ndarray, classes: int) -> Labels:
        """Predicted and true class numbers, as MindSpore r1.2 reads them."""
        predicted = output
        if output.ndim == target.ndim + 1:
            predicted = output.argmax(1)
        elif output.dtype.kind == "f":
            predicted = (output >= self.threshold).astype(np.int64)
        allowed = "class numbers (N, ...) for outputs (N, C, ...) or (N, ...)"
        require_shapes(self, predicted.shape == target.shape, output, target, allowed)
        for numbers in (predicted, target):
            require_range(self, numbers, classes - 1, f"class numbers from 0 to {classes - 1}")
        return Labels(predicted.ravel().astype(np.int64), target.ravel().astype(np.int64), classes, False)

    def eval(self) -> np.ndarray:
        require_data(self, self.count)
        if self.normalize == "no_norm":
            return self.matrix if self.num_classes is None else self.matrix.astype(np.float64)
        axes = {"target": (-1,), "prediction": (-2,), "all": (-2, -1)}[self.normalize]
        shares: np.ndarray = self.matrix / np.maximum(self.matrix.sum(axes, keepdims=True), 1)
        return shares


def _require_few(classes: int) -> None:
    if classes > MAX_CLASSES:
        repair = "precision, recall and f1 have no limit"
        raise ConfigError("too many classes for a confusion matrix", given=classes, allowed=MAX_CLASSES, repair=repair)


def _confusions(found: Labels) -> np.ndarray:
    """How often each pair (true, predicted) occurs: (C, C), for several labels (L, 2, 2)."""
    width = 2 if found.is_binary else found.classes
    pairs = (found.true.astype(np.int64) * width + found.predicted).reshape(len(found.true), -1)
    counts = np.stack([np.bincount(column, minlength=width * width) for column in pairs.T])
    return counts.reshape((-1, width, width) if len(counts) > 1 else (width, width))


def _share(part: np.ndarray, total: np.ndarray) -> np.ndarray:
    """part / total, NaN where total is 0."""
    share: np.ndarray = np.divide(part, total, out=np.full(np.shape(total), np.nan), where=total != 0)
    return share


def _threshold_of_prevalence(tp: np.ndarray, fp: np.ndarray, tn: np.ndarray, fn: np.ndarray) -> np.ndarray:
    hits, rejections = _share(tp, tp + fn), _share(tn, tn + fp)
    return _share(np.sqrt(hits * (1 - rejections)) + rejections - 1, hits + rejections - 1)


def _correlation(tp: np.ndarray, fp: np.ndarray, tn: np.ndarray, fn: np.ndarray) -> np.ndarray:
    return _share(tp * tn - fp * fn, np.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)))


Figure = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], np.ndarray]
# Figures of true positives, false positives, true negatives and false negatives, each with its names.
FIGURES: dict[tuple[str, ...], Figure] = {
    ("sensitivity", "recall", "hit_rate", "true_positive_rate", "tpr"): lambda tp, fp, tn, fn: _share(tp, tp + fn),
    ("specificity", "selectivity", "true_negative_rate", "tnr"): lambda tp, fp, tn, fn: _share(tn, tn + fp),
    ("precision", "positive_predictive_value", "ppv"): lambda tp, fp, tn, fn: _share(tp, tp + fp),
    ("negative_predictive_value", "npv"): lambda tp, fp, tn, fn: _share(tn, tn + fn),
    ("miss_rate", "false_negative_rate", "fnr"): lambda tp, fp, tn, fn: _share(fn, tp + fn),
    ("fall_out", "false_positive_rate", "fpr"): lambda tp, fp, tn, fn: _share(fp, tn + fp),
    ("false_discovery_rate", "fdr"): lambda tp, fp, tn, fn: _share(fp, tp + fp),
    ("false_omission_rate", "for"): lambda tp, fp, tn, fn: _share(fn, tn + fn),
    ("prevalence_threshold", "pt"): _threshold_of_prevalence,
    ("threat_score", "critical_success_index", "ts", "csi"): lambda tp, fp, tn, fn: _share(tp, tp + fp + fn),
    ("accuracy", "acc"): lambda tp, fp, tn, fn: _share(tp + tn, tp + fp + tn + fn),
    ("balanced_accuracy", "ba"): lambda tp, fp, tn, fn: (_share(tp, tp + fn) + _share(tn, tn + fp)) / 2,
    ("f1_score", "f1"): lambda tp, fp, tn, fn: _share(2 * tp, 2 * tp + fp + fn),
    ("matthews_correlation_coefficient", "mcc"): _correlation,
    ("fowlkes_mallows_index", "fm"): lambda tp, fp, tn, fn: np.sqrt(_share(tp, tp + fp) * _share(tp, tp + fn)),
    ("informedness", "bookmaker_informedness", "bm"): lambda tp, fp, tn, fn: (
        _share(tp, tp + fn) + _share(tn, tn + fp) - 1
    ),
    ("markedness", "deltap", "mk"): lambda tp, fp, tn, fn: _share(tp, tp + fp) + _share(tn, tn + fn) - 1,
}


class ConfusionMatrixMetric(Metric):
    """A figure that follows from true and false positives and negatives, such as "sensitivity"; FIGURES has the names.

    Outputs and targets are 0 and 1, (N, C) or (N, C, ...): C channels of each sample. `skip_channel` False leaves the
    first channel out, True uses all, as MindSpore r1.2 does in spite of its documentation. By default the counts of
    all samples and channels are summed, and the value is the figure of the sums, (1,). With `calculation_method` the
    figure is computed for each sample and channel, and `decrease` reduces those of a batch to one number: "mean" and
    "sum", the others only for a batch whose reduction leaves one. The value is then the mean of these numbers,
    weighted by how many values each has that are numbers; outputs need elements within the channels. A figure without
    samples to divide by is NaN and is omitted from such means.

    Raises ConfigError for an unknown name and values that are not 0 or 1, ShapeError for shapes that do not fit.
    """

    direction = "maximize"
    is_scalar = False

    def __init__(
        self,
        skip_channel: bool = True,
        metric_name: str = "sensitivity",
        calculation_method: bool = False,
        decrease: str = "mean",
    ) -> None:
        flag({}, skip_channel=skip_channel, calculation_method=calculation_method)
        one_of({}, REDUCTIONS, decrease=decrease)
        known = {name: figure for names, figure in FIGURES.items() for name in names}
        chosen = str(metric_name).replace(" ", "_").lower()
        if chosen not in known:
            raise ConfigError("unknown figure of a confusion matrix", given=metric_name, **known_names(chosen, known))
        self.skip_channel, self.metric_name, self.decrease = skip_channel, metric_name, decrease
        self.calculation_method, self.figure = calculation_method, known[chosen]
        self.clear()

    def clear(self) -> None:
        self.counts = np.zeros(4)  # true positives, false positives, true negatives, false negatives
        self.batches, self.total, self.weight = 0, 0.0, 0.0

    @of_arrays
    def update(self, output: np.ndarray, target: np.ndarray) -> None:
        fits = output.ndim > 1 and output.shape == target.shape
        require_shapes(self, fits, output, target, "equal shapes (N, C, ...)")
        for values in (output, target):
            if not ((values == 0) | (values == 1)).all():
                raise ConfigError("a value of a metric is not 0 or 1", metric=type(self).__name__)
        counts = _counts(output, target, self.skip_channel)
        self.batches += 1
        if not self.calculation_method:
            self.counts += counts.sum((0, 1))
            return
        if output.ndim == 2 or (output.ndim == 3 and output.shape[-1] == 1):
            rows = {"output": output.shape, "repair": "calculation_method=False"}
            raise ShapeError("a figure of each sample needs several elements per channel", **rows)
        value, found = _reduced(self.figure(*np.moveaxis(counts, -1, 0)), self.decrease)
        if value.size != 1 or found.size != 1:
            rows = {"decrease": self.decrease, "values": value.shape, "repair": 'decrease="mean" or "sum"'}
            raise ShapeError("a batch has several values after the reduction", **rows)
        self.total += value.item() * int(found.item())
        self.weight += int(found.item())

    def eval(self) -> float | np.ndarray:
        require_data(self, self.batches)
        if not self.calculation_method:
            return np.atleast_1d(self.figure(*self.counts[:, None]))
        require_data(self, int(self.weight))
        return self.total / self.weight


def _counts(output: np.ndarray, target: np.ndarray, skip_channel: bool) -> np.ndarray:
    """True and false positives, true and false negatives: Float64 (N, C, 4)."""
    if not skip_channel and output.shape[1] > 1:
        output, target = output[:, 1:], target[:, 1:]
    shape = (*output.shape[:2], -1)
    predicted, true = output.reshape(shape) == 1, target.reshape(shape) == 1
    parts = predicted & true, predicted & ~true, ~predicted & ~true, ~predicted & true
    return np.stack([part.sum(-1).astype(np.float64) for part in parts], axis=-1)


def _reduced(values: np.ndarray, how: str) -> tuple[np.ndarray, np.ndarray]:
    """Values (N, C) without the NaNs, reduced as `decrease` says, and how many values each number comes from."""
    found = (~np.isnan(values)).astype(np.float64)
    values = np.nan_to_num(values, nan=0.0)
    operation, _, axis = how.partition("_")
    if how == "none":
        return values, found
    for one in {"batch": (0,), "channel": (1,)}.get(axis, (1, 0)):
        values, found = values.sum(one), found.sum(one)
        if operation == "mean":
            values = np.where(found > 0, values / np.maximum(found, 1), 0.0)
            found = found if axis or one == 0 else (found > 0).astype(np.float64)
    return values, found


# The receiver operating characteristic, and the area under a curve.

Curve = tuple[np.ndarray, np.ndarray, np.ndarray]


class ROC(Metric):
    """The receiver operating characteristic: false and true positive rates, and the scores from which on they hold.

    Outputs and targets of one shape are scores, of which large ones mean the class `pos_label` (default 1), and class
    numbers; `eval` returns three arrays. Outputs (N, C, ...) for targets (N, ...) are scores of `class_num` classes;
    `eval` returns three lists with an array for each class against the others. The first score is above all others by
    1: there nothing is positive. The curve is that of all batches; MindSpore r1.2 keeps the last one only.

    Raises ConfigError for arguments that do not fit the shapes, and for a class of which there are no samples, or only.
    """

    is_scalar = False

    def __init__(self, class_num: int | None = None, pos_label: int | None = None) -> None:
        for name, value, least in (("class_num", class_num, 1), ("pos_label", pos_label, -(2**63))):
            if value is not None:
                whole({}, least, **{name: value})
        self.class_num, self.pos_label = class_num, pos_label
        self.clear()

    def clear(self) -> None:
        self.outputs: list[np.ndarray] = []  # (M,) or (M, C) of each batch
        self.targets: list[np.ndarray] = []  # (M,)

    @of_arrays
    def update(self, output: np.ndarray, target: np.ndarray) -> None:
        is_one = output.ndim == target.ndim
        fits = output.shape == target.shape if is_one else output.shape[:1] + output.shape[2:] == target.shape
        require_shapes(self, fits, output, target, "targets (N, ...) for scores (N, ...) or (N, C, ...)")
        classes = 1 if is_one else output.shape[1]
        if (self.class_num or 1) != classes:
            rows = {"given": self.class_num, "classes": classes, "output": output.shape, "target": target.shape}
            raise ConfigError("class_num is not the number of classes", **rows)
        if not is_one and self.pos_label is not None:
            raise ConfigError("pos_label is for one score per sample", given=self.pos_label, output=output.shape)
        if self.outputs and self.outputs[0].ndim != (1 if is_one else 2):
            raise ShapeError("the number of axes changes between batches", output=output.shape)
        self.outputs.append(output.ravel() if is_one else np.moveaxis(output, 1, -1).reshape(-1, classes))
        self.targets.append(target.ravel())

    def eval(self) -> tuple[Any, Any, Any]:
        require_data(self, sum(map(len, self.targets)))
        outputs, targets = np.concatenate(self.outputs), np.concatenate(self.targets)
        if outputs.ndim == 1:
            label = 1 if self.pos_label is None else self.pos_label
            return _curve(outputs, targets == label, label)
        curves = [_curve(scores, targets == number, number) for number, scores in enumerate(outputs.T)]
        return tuple([list(parts) for parts in zip(*curves, strict=True)])  # type: ignore[return-value]


def _curve(scores: np.ndarray, is_positive: np.ndarray, label: int) -> Curve:
    """False positive rates, true positive rates and thresholds (K,), for falling thresholds."""
    order = np.argsort(-scores, kind="stable")
    scores, is_positive = scores[order], is_positive[order]
    last = np.append(np.flatnonzero(np.diff(scores)), len(scores) - 1)  # of equal scores
    true = np.append(0, np.cumsum(is_positive)[last])
    false = np.append(0, np.cumsum(~is_positive)[last])
    for count, what in ((true[-1], "has no samples"), (false[-1], "has all samples")):
        if not count:
            raise ConfigError(f"a class without a curve: it {what}", metric="ROC", label=label)
    return false / false[-1], true / true[-1], np.append(scores[0] + 1, scores[last])


def auc(x: np.ndarray, y: np.ndarray, reorder: bool = False) -> float:
    """The area under a curve through the points (x, y), each (N,) or (N, 1), by the trapezoidal rule.

    With the false and true positive rates of `ROC` it is that under the receiver operating characteristic. x rises or
    falls, or is sorted first with `reorder`. Raises ShapeError for other shapes or a single point, ConfigError for x
    that rises and falls, and for what is no array.
    """
    flag({}, reorder=reorder)
    for name, values in (("x", x), ("y", y)):
        if not isinstance(values, np.ndarray):
            allowed = "an array, of which nn.ROC with several classes returns a list"
            raise ConfigError(f"{name} is no array", given=type(values).__name__, allowed=allowed)
    if not (len(x) == len(y) > 1 and all(a.ndim == 1 or a.shape[1:] == (1,) for a in (x, y))):
        raise ShapeError("no curve", x=x.shape, y=y.shape, allowed="(N,) for both, with N of at least 2")
    x, y = x.ravel(), y.ravel()
    if reorder:
        order = np.lexsort((y, x))
        x, y = x[order], y[order]
    steps = np.diff(x)
    if (steps < 0).any() and (steps > 0).any():
        raise ConfigError("x rises and falls", repair="auc(x, y, reorder=True)")
    return float((np.abs(steps) * (y[1:] + y[:-1]) / 2).sum())
