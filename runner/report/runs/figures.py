"""What `runner ls` shows of a run: names, state, loss and metrics, and any key of its config."""

from functools import cached_property
from typing import Any

from runner.host.json import without_lists
from runner.report.record import RunRecord
from runner.report.runs.tail import last_events
from runner.report.values import is_number

EVALUATION = ("event", "epoch", "global_step")  # of an `eval` event; its other names are metrics
TEST_LOSS = "eval.loss"
# Of metrics that no summary lists, since no run with them has ended.
LARGER_IS_BETTER = frozenset({"accuracy", "top_5", "precision", "recall", "f1", "r2"})


class RunFigures:
    """The figures of a run, read when first used; those of an unfinished run are from the end of its metrics."""

    def __init__(self, run: RunRecord) -> None:
        self.run = run

    @cached_property
    def values(self) -> dict[str, Any]:
        """`run_dir`, `status`, `started`, ...: an object of `runner ls --json`. What is not known is None."""
        said, summary = self.run.status, self._summary
        names = ("started", "finished", "exit_code", "experiment", "network", "dataset", "mode", "device")
        return {
            "run_dir": str(self.run.folder),
            "status": self.run.state,
            **{name: _plain(said.get(name)) for name in names},
            "steps": _number(summary.get("steps")),
            "loss": _number(summary.get("loss")),
            "metrics": self.metrics,
            "seconds": _number(summary.get("train_seconds")),
            "steps_per_second": _number(summary.get("steps_per_second")),
        }

    @cached_property
    def metrics(self) -> dict[str, float]:
        """The metrics of the last evaluation that are numbers; `eval.loss` is the loss on the evaluated split."""
        found = self._summary.get("metrics")
        numbers = {name: value for name, value in found.items() if is_number(value)} if isinstance(found, dict) else {}
        return {TEST_LOSS if name == "loss" else name: value for name, value in numbers.items()}

    @property
    def names(self) -> set[str]:
        """Everything that `value` knows of this run."""
        return {*self.values, *self.metrics, *self.run.config} - {"metrics"}

    def value(self, name: str) -> Any:
        """A figure, a metric, or a key of the config; for a group, such as `optimizer`, the name of its option."""
        for known in (self.values, self.metrics, self.run.config):
            if name in known:
                return known[name]
        return self.run.config.get(f"{name}.name")

    @cached_property
    def _summary(self) -> dict[str, Any]:
        """`summary.json`; for a run without it, the same names from the end of `metrics.jsonl`."""
        if not self.run.status or self.run.summary:
            return self.run.summary if self.run.status else {}
        found: dict[str, Any] = {}
        for event in last_events(self.run.folder / "metrics.jsonl"):
            if event["event"] == "eval":
                metrics = {name: value for name, value in event.items() if name not in EVALUATION}
                found["metrics"] = without_lists(metrics)
            else:
                found |= {"steps": event["global_step"], "loss": event["loss"]}
        return found


def _plain(value: object) -> object:
    return value if value is None or is_number(value) else str(value)


def _number(value: object) -> object:
    return value if is_number(value) else None
