"""How metrics of classification read outputs and targets: classes, one logit for two of them, or several labels."""

import math
from typing import Annotated, Literal, NamedTuple

import numpy as np

from runner.errors import ConfigError
from runner.nn.cell import Cell
from runner.nn.metrics.base import Metric, is_one_hot, require_shapes, without_units
from runner.validation.arguments import one_of
from runner.validation.rules import Rule

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
    `BCEWithLogitsLoss`. A single output per sample, (N,) or (N, 1), is always a logit. A logit counts as 1 if its
    probability is above `threshold`: so do predictions that are 1 already, and those of 0 do not.
    """

    def __init__(self, eval_type: EvalType | None, threshold: float) -> None:
        if eval_type is not None:
            one_of({}, EVAL_TYPES, eval_type=eval_type)
        self.is_fixed, self.is_multilabel = eval_type is not None, eval_type == "multilabel"
        require_probability(threshold)
        self.limit = math.log(threshold / (1 - threshold))

    def attach(self, loss_fn: Cell) -> None:
        """Take the default from the loss function."""
        if not self.is_fixed:
            self.is_multilabel = getattr(loss_fn, "activation", None) == "sigmoid"

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
