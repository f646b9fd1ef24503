"""The metrics of configs: the keys of a metric are below `metrics.NAME`."""

from typing import Any, Protocol, runtime_checkable

from runner import register
from runner.config.groups.record import Records, Settings
from runner.nn.metrics import METRICS as BUILT_IN
from runner.validation.rules import Rule
from runner.validation.validate import validate


@runtime_checkable
class AnyMetric(Protocol):
    """What an evaluation needs of a metric; `nn.Metric` has it."""

    def clear(self) -> None:
        """Reset the accumulated values."""

    def update(self, *inputs: Any) -> None:
        """Add one batch: the outputs of the network, and the targets."""

    def eval(self) -> Any:
        """The value over all batches."""


class MetricSettings(Settings):
    """A metric of the evaluation."""

    def metric(self, **facts: Any) -> AnyMetric:
        """The metric. Raises ConfigError when the registered object makes none."""
        return self.create(AnyMetric, **facts)  # type: ignore[type-abstract]


for _name, _kind in BUILT_IN.items():
    register.metric(_name)(_kind)

METRICS = Records(register.metric, MetricSettings)


def metric_name(value: object) -> str:
    """The name of a registered metric. Raises Invalid."""
    name: str = validate(str, Rule(choices=tuple(register.metric)), value)
    return name


def metric_names(value: object) -> tuple[str, ...]:
    """Names of registered metrics. Raises Invalid."""
    names: tuple[str, ...] = validate(tuple[str, ...], Rule(choices=tuple(register.metric)), value)
    return names


def direction(name: str) -> str:
    """What a search does with a metric unless it is configured otherwise: minimize or maximize."""
    return str(getattr(register.metric[name].source, "direction", "minimize"))
