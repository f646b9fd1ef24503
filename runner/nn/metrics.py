"""Metrics, accumulated over the batches of an evaluation."""

from collections.abc import Iterable, Mapping
from typing import ClassVar, Self

import numpy as np

from runner.errors import ConfigError, known_names

__all__ = ["Accuracy", "Loss", "Metric"]


class Metric:
    """Base: `clear`, then `update` once per batch, then `eval`.

    `direction` is what a search does with it unless it is configured otherwise: "minimize" or "maximize".
    """

    direction: ClassVar[str] = "minimize"

    @classmethod
    def for_loss(cls, is_sum: bool) -> Self:
        """The metric of a run whose loss function adds up the samples of a batch (`is_sum`), or averages them."""
        return cls()

    def clear(self) -> None:
        """Reset the accumulated values."""
        raise NotImplementedError

    def update(self, loss: np.ndarray, output: np.ndarray, label: np.ndarray) -> None:
        """Add one batch: loss (scalar or per sample), output of the network (N, ...), label (N, ...)."""
        raise NotImplementedError

    def eval(self) -> float:
        """The value over all batches. Raises ConfigError when there were none."""
        raise NotImplementedError


class Mean(Metric):
    """Base of metrics that are a mean over samples."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.total, self.count = 0.0, 0

    def eval(self) -> float:
        if not self.count:
            raise ConfigError("a metric without data", metric=type(self).__name__)
        return self.total / self.count


class Accuracy(Mean):
    """Share of samples whose largest output (N, C) is that of the label: class numbers (N,) or one-hot (N, C)."""

    direction = "maximize"

    def update(self, loss: np.ndarray, output: np.ndarray, label: np.ndarray) -> None:
        classes = label.argmax(-1) if label.ndim == output.ndim else label
        self.total += float((output.argmax(-1) == classes).sum())
        self.count += len(label)


class Loss(Mean):
    """Mean loss per sample; batches are weighted by their size, so that a smaller last one has no more weight.

    `summed`: the loss function sums the samples of a batch instead of averaging them.
    """

    def __init__(self, summed: bool = False) -> None:
        super().__init__()
        self.summed = summed

    @classmethod
    def for_loss(cls, is_sum: bool) -> Self:
        return cls(summed=is_sum)

    def update(self, loss: np.ndarray, output: np.ndarray, label: np.ndarray) -> None:
        self.total += float(np.mean(loss, dtype=np.float64)) * (1 if self.summed else len(label))
        self.count += len(label)


# A metric is a class above and its name here, which `eval.metrics`, `expect` and `hydra.sweeper.metric` then allow.
METRICS: dict[str, type[Metric]] = {"loss": Loss, "accuracy": Accuracy}
ALIASES = {"acc": "accuracy"}  # of the reference


def get_metrics(wanted: Mapping[str, Metric] | Iterable[str] | str | None) -> dict[str, Metric]:
    """Metrics of one or several names, or of a dict of names and metrics; sets are sorted alphabetically.

    Raises ConfigError for an unknown name, and for a value of a dict that is not a metric.
    """
    if isinstance(wanted, Mapping):
        for name, metric in wanted.items():
            if not isinstance(metric, Metric):
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
