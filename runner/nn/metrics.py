"""Metrics of an evaluation: the loss, and the names of all."""

import sys
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

from runner.errors import ConfigError, known_names
from runner.host.lazy import reference_attribute
from runner.nn.cell import Cell
from runner.nn.metric_base import AnyMetric, Mean, attach, of_arrays

__all__ = ["Loss", "get_metric_fn", "names"]
__getattr__ = partial(reference_attribute, __name__)
__path__: list[str] = []  # MindSpore has modules below it: runner/mindspore/addresses.py


class Loss(Mean):
    """Mean loss per sample; batches are weighted by their size, so that a smaller last one has no more weight.

    `summed`: the loss function sums the samples of a batch instead of averaging them; by default (None) so if its
    attribute `reduction` is "sum". `update(loss)` without a target counts a batch as one sample, as MindSpore r1.2
    does.
    """

    indexes = (0, 2)

    def __init__(self, summed: bool | None = None) -> None:
        super().__init__()
        self.is_fixed, self.summed = summed is not None, bool(summed)

    def attach(self, loss_fn: Cell) -> None:
        if not self.is_fixed:
            self.summed = getattr(loss_fn, "reduction", None) == "sum"

    @of_arrays
    def update(self, loss: np.ndarray, target: np.ndarray | None = None) -> None:
        samples = 1 if target is None else len(target)
        self.total += float(np.mean(loss, dtype=np.float64)) * (1 if self.summed else samples)
        self.count += samples


# The metrics that `Model(metrics=...)` knows by name, and their classes in `runner.nn`, which load when they are named.
METRICS = {
    "loss": "Loss",
    "accuracy": "Accuracy",
    "acc": "Accuracy",
    "topk": "TopKCategoricalAccuracy",
    "top_1_accuracy": "Top1CategoricalAccuracy",
    "top_5_accuracy": "Top5CategoricalAccuracy",
    "top_5": "Top5CategoricalAccuracy",
    "precision": "Precision",
    "recall": "Recall",
    "F1": "F1",
    "f1": "F1",
    "confusion_matrix": "ConfusionMatrix",
    "confusion_matrix_metric": "ConfusionMatrixMetric",
    "roc": "ROC",
    "mae": "MAE",
    "mse": "MSE",
    "r2": "R2",
    "perplexity": "Perplexity",
    "bleu_score": "BleuScore",
    "dice": "Dice",
    "cosine_similarity": "CosineSimilarity",
    "hausdorff_distance": "HausdorffDistance",
    "mean_surface_distance": "MeanSurfaceDistance",
    "root_mean_square_distance": "RootMeanSquareDistance",
    "occlusion_sensitivity": "OcclusionSensitivity",
}


def metrics_for(
    loss_fn: Cell | None, wanted: Mapping[str, AnyMetric] | Iterable[str] | str | None
) -> dict[str, AnyMetric]:
    """As `get_metrics`, for outputs that this loss function is computed of."""
    found = get_metrics(wanted)
    if loss_fn is not None:
        attach(found.values(), loss_fn)
    return found


def names() -> list[str]:
    """The names that `get_metric_fn` takes, in alphabetical order; `Model(metrics=...)` takes all but "auc"."""
    return sorted([*METRICS, "auc"])


def get_metric_fn(name: str, *args: Any, **kwargs: Any) -> Any:
    """The metric of a name, made with these arguments; for "auc" the area under the curve of the arguments.

    Raises ConfigError for an unknown name.
    """
    if name not in METRICS and name != "auc":
        raise ConfigError("unknown metric", given=name, **known_names(name, METRICS))
    package = sys.modules["runner.nn"]  # an import would be a cycle; it is loaded, and its names load late
    return getattr(package, METRICS.get(name, name))(*args, **kwargs)


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
    chosen = [wanted] if isinstance(wanted, str) else list(wanted or ())
    if isinstance(wanted, set | frozenset):
        chosen.sort()
    if "auc" in chosen:
        repair = 'metrics={"roc"}, then nn.auc(fpr, tpr) of its value (fpr, tpr, thresholds)'
        raise ConfigError("auc is a function of a curve, no metric", repair=repair)
    return {name: get_metric_fn(name) for name in chosen}
