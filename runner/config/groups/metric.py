"""The metrics of configs: the keys of a metric are below `metrics.NAME`."""

from typing import Any, Protocol, runtime_checkable

from runner import register
from runner.config.groups.record import Records, Settings
from runner.nn.metrics import METRICS as BUILT_IN


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


def direction(name: str) -> str:
    """What a search does with a metric unless it is configured otherwise: minimize or maximize."""
    return str(getattr(register.metric[name].source, "direction", "minimize"))
