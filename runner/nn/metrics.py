"""Metrics of an evaluation: the loss, and the names of all."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import ClassVar

import numpy as np

from runner.errors import ConfigError, known_names
from runner.host.lazy import reference_attribute
from runner.nn.cell import Cell
from runner.nn.classification_metrics import F1, Accuracy, ConfusionMatrix, Precision, Recall, TopKCategoricalAccuracy
from runner.nn.metric_base import AnyMetric, Mean, Metric, attach, is_scalar
from runner.nn.regression_metrics import MAE, MSE, R2

__all__ = ["Loss"]
__getattr__ = partial(reference_attribute, __name__)
__path__: list[str] = []  # MindSpore has modules below it: runner/mindspore/addresses.py


class Loss(Mean):
    """Mean loss per sample; batches are weighted by their size, so that a smaller last one has no more weight.

    `summed`: the loss function sums the samples of a batch instead of averaging them; by default (None) so if its
    attribute `reduction` is "sum".
    """

    indexes: ClassVar = (0, 2)

    def __init__(self, summed: bool | None = None) -> None:
        super().__init__()
        self.is_fixed, self.summed = summed is not None, bool(summed)

    def attach(self, loss_fn: Cell) -> None:
        if not self.is_fixed:
            self.summed = getattr(loss_fn, "reduction", None) == "sum"

    def update(self, loss: np.ndarray, target: np.ndarray) -> None:
        self.total += float(np.mean(loss, dtype=np.float64)) * (1 if self.summed else len(target))
        self.count += len(target)


# A metric is a class and its name here, which `eval.metrics`, `expect` and `hydra.sweeper.metric` then allow.
METRICS: dict[str, type[Metric]] = {
    "loss": Loss,
    "accuracy": Accuracy,
    "top_5": TopKCategoricalAccuracy,
    "precision": Precision,
    "recall": Recall,
    "f1": F1,
    "confusion_matrix": ConfusionMatrix,
    "mae": MAE,
    "mse": MSE,
    "r2": R2,
}
# Names of the reference.
ALIASES = {"acc": "accuracy", "top_1_accuracy": "accuracy", "top_5_accuracy": "top_5", "F1": "f1"}


def scalar_names(metrics: Mapping[str, object]) -> tuple[str, ...]:
    """The names of the metrics, or classes of metrics, whose value is a single number."""
    return tuple(name for name, kind in metrics.items() if is_scalar(kind))


def metrics_for(
    loss_fn: Cell | None, wanted: Mapping[str, AnyMetric] | Iterable[str] | str | None
) -> dict[str, AnyMetric]:
    """As `get_metrics`, for outputs that this loss function is computed of; None: for those of a cell of the user."""
    found = get_metrics(wanted)
    if loss_fn is not None:
        attach(found.values(), loss_fn)
    return found


def get_metrics(wanted: Mapping[str, AnyMetric] | Iterable[str] | str | None) -> dict[str, AnyMetric]:
    """Metrics of one or several names, or of a dict of names and metrics; sets are sorted alphabetically.

    Raises ConfigError for an unknown name, and for a value of a dict that is not a metric.
    """
    if isinstance(wanted, Mapping):
        for name, metric in wanted.items():
            if isinstance(metric, type) or not isinstance(metric, AnyMetric):
                allowed = "objects of runner.nn.Metric"
                raise ConfigError("not a metric", name=name, given=repr(metric), allowed=allowed)
        return dict(wanted)
    names = [wanted] if isinstance(wanted, str) else list(wanted or ())
    if isinstance(wanted, set | frozenset):
        names.sort()
    known = {**METRICS, **{alias: METRICS[name] for alias, name in ALIASES.items()}}
    for name in names:
        if name not in known:
            raise ConfigError("unknown metric", given=name, **known_names(name, known))
    return {name: known[name]() for name in names}
