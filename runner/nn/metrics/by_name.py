"""Metrics by name: those that `Model(metrics=...)` knows; `runner/config/groups/entries.py` has those of configs."""

from collections.abc import Iterable, Mapping
from typing import Any

from runner.errors import ConfigError, known_names
from runner.nn.metrics.base import AnyMetric, Metric, checked_metrics
from runner.nn.metrics.classification import (
    F1,
    ROC,
    Accuracy,
    ConfusionMatrix,
    ConfusionMatrixMetric,
    Precision,
    Recall,
    Top1CategoricalAccuracy,
    Top5CategoricalAccuracy,
    TopKCategoricalAccuracy,
    auc,
)
from runner.nn.metrics.images import (
    Dice,
    HausdorffDistance,
    MeanSurfaceDistance,
    OcclusionSensitivity,
    RootMeanSquareDistance,
)
from runner.nn.metrics.regression import (
    MAE,
    MSE,
    R2,
    CosineSimilarity,
    Loss,
)
from runner.nn.metrics.text import (
    BleuScore,
    Perplexity,
)

METRICS: dict[str, type[Metric]] = {
    "loss": Loss,
    "accuracy": Accuracy,
    "acc": Accuracy,
    "topk": TopKCategoricalAccuracy,
    "top_1_accuracy": Top1CategoricalAccuracy,
    "top_5_accuracy": Top5CategoricalAccuracy,
    "top_5": Top5CategoricalAccuracy,
    "precision": Precision,
    "recall": Recall,
    "F1": F1,
    "f1": F1,
    "confusion_matrix": ConfusionMatrix,
    "confusion_matrix_metric": ConfusionMatrixMetric,
    "roc": ROC,
    "mae": MAE,
    "mse": MSE,
    "r2": R2,
    "perplexity": Perplexity,
    "bleu_score": BleuScore,
    "dice": Dice,
    "cosine_similarity": CosineSimilarity,
    "hausdorff_distance": HausdorffDistance,
    "mean_surface_distance": MeanSurfaceDistance,
    "root_mean_square_distance": RootMeanSquareDistance,
    "occlusion_sensitivity": OcclusionSensitivity,
}


def names() -> list[str]:
    """The names that `get_metric_fn` takes, in alphabetical order; `Model(metrics=...)` takes all but "auc"."""
    return sorted([*METRICS, "auc"])


def get_metric_fn(name: str, *args: Any, **kwargs: Any) -> Any:
    """The metric of a name, made with these arguments; for "auc" the area under the curve of the arguments.

    Raises ConfigError for an unknown name.
    """
    if name == "auc":
        return auc(*args, **kwargs)
    if name not in METRICS:
        raise ConfigError("unknown metric", given=name, **known_names(name, METRICS))
    return METRICS[name](*args, **kwargs)


def get_metrics(wanted: Mapping[str, AnyMetric] | Iterable[str] | str | None) -> dict[str, AnyMetric]:
    """Metrics of one or several names, or of a dict of names and metrics; sets are sorted alphabetically.

    Raises ConfigError for an unknown name, and for a value of a dict that is not a metric.
    """
    if isinstance(wanted, Mapping):
        return checked_metrics(wanted)
    chosen = [wanted] if isinstance(wanted, str) else list(wanted or ())
    if isinstance(wanted, set | frozenset):
        chosen.sort()
    if "auc" in chosen:
        repair = 'metrics={"roc"}, then nn.auc(fpr, tpr) of its value (fpr, tpr, thresholds)'
        raise ConfigError("auc is a function of a curve, no metric", repair=repair)
    return {name: get_metric_fn(name) for name in chosen}
