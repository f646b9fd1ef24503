"""The confusion matrix, and the figures that follow from true and false positives and negatives."""

from collections.abc import Callable
from typing import Literal

import numpy as np

from runner.errors import ConfigError, ShapeError, known_names
from runner.nn.cell import Cell
from runner.nn.metrics.base import Metric, of_arrays, require_data, require_shapes
from runner.nn.metrics.classifier import Classifier, EvalType, Labels, Threshold, require_range
from runner.validation.arguments import flag, one_of, whole

__all__ = ["ConfusionMatrix", "ConfusionMatrixMetric"]

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
