"""The metrics of configs: the keys of a metric are below `metrics.NAME`."""

from typing import Any

from runner import register
from runner.config.groups.record import Records, Settings
from runner.nn.metric_base import AnyMetric, direction_of, is_scalar
from runner.nn.metrics import METRICS as BUILT_IN
from runner.validation.rules import Rule
from runner.validation.validate import Invalid, validate


class MetricSettings(Settings):
    """A metric of the evaluation."""

    def metric(self, **facts: Any) -> AnyMetric:
        """The metric. Raises ConfigError when the registered object makes none."""
        return self.create(AnyMetric, **facts)  # type: ignore[type-abstract]


for _name, _kind in BUILT_IN.items():
    register.metric(_name)(_kind)

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
