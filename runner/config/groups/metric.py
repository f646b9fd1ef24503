"""The metrics of configs: the keys of a metric are below `metrics.NAME`.

A metric of configs is one number wherever it can be, so that it can be expected and searched for, while the classes of
`runner.nn` have the defaults and the arrays of MindSpore r1.2.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from runner import nn, register
from runner.config.groups.record import Records, Settings
from runner.nn.metrics.base import AnyMetric, Metric, direction_of, is_scalar
from runner.nn.metrics.classification import Average, EvalType, Threshold
from runner.validation.rules import Invalid, Rule, validate

Make = TypeVar("Make", bound=Callable[..., Metric])


class MetricSettings(Settings):
    """A metric of the evaluation."""

    def metric(self, **facts: Any) -> AnyMetric:
        """The metric. Raises ConfigError when the registered object makes none."""
        return self.create(AnyMetric, **facts)  # type: ignore[type-abstract]


def _made_by(make: Make, direction: str, is_scalar: bool = True) -> Make:
    """A function that makes metrics, with what searches and expectations read of their classes."""
    make.direction, make.is_scalar = direction, is_scalar  # type: ignore[attr-defined]
    return make


def precision(eval_type: EvalType | None = None, average: Average = "macro", threshold: Threshold = 0.5) -> Metric:
    """Right predictions of a class / all predictions of it."""
    return nn.Precision(eval_type, average, threshold)


def recall(eval_type: EvalType | None = None, average: Average = "macro", threshold: Threshold = 0.5) -> Metric:
    """Right predictions of a class / its samples."""
    return nn.Recall(eval_type, average, threshold)


def f1(eval_type: EvalType | None = None, average: Average = "macro", threshold: Threshold = 0.5) -> Metric:
    """Harmonic mean of precision and recall."""
    return nn.F1(eval_type, average, threshold)


def confusion_matrix(eval_type: EvalType | None = None, threshold: Threshold = 0.5) -> Metric:
    """Numbers of samples by true class (rows) and predicted class (columns)."""
    return nn.ConfusionMatrix(threshold=threshold, eval_type=eval_type)


def mae() -> Metric:
    """Mean absolute error over all elements."""
    return nn.MAE(per_element=True)


def mse() -> Metric:
    """Mean squared error over all elements."""
    return nn.MSE(per_element=True)


BUILT_IN: dict[str, Callable[..., Metric]] = {
    "loss": nn.Loss,
    "accuracy": nn.Accuracy,
    "top_5": nn.TopKCategoricalAccuracy,
    "precision": _made_by(precision, "maximize"),
    "recall": _made_by(recall, "maximize"),
    "f1": _made_by(f1, "maximize"),
    "confusion_matrix": _made_by(confusion_matrix, "minimize", is_scalar=False),
    "mae": _made_by(mae, "minimize"),
    "mse": _made_by(mse, "minimize"),
    "r2": nn.R2,
}
for _name, _make in BUILT_IN.items():
    register.metric(_name)(_make)

METRICS = Records(register.metric, MetricSettings)


def direction(name: str) -> str:
    """What a search does with a metric unless it is configured otherwise: minimize or maximize."""
    return direction_of(register.metric[name].source)


def numbers() -> tuple[str, ...]:
    """The names of the metrics that are single numbers."""
    return tuple(name for name, entry in register.metric.items() if is_scalar(entry.source))


def single_number(metric: object) -> str:
    """The name of a metric that is a single number, and so can be expected or searched for.

    Raises Invalid, with the names of these, for a metric that is an array, and for what is no metric.
    """
    allowed = numbers()
    if isinstance(metric, str) and metric in register.metric and metric not in allowed:
        raise Invalid("this metric is an array, not a single number", ", ".join(allowed))
    name: str = validate(str, Rule(choices=allowed), metric)
    return name
