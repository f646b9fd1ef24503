"""Two runs side by side without their dumps: configs, what their numbers depend on, every loss, metrics, speed."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from runner.report.record import Record, differing

Row = dict[str, Any]
FIGURES = ("status", "steps_per_second", "train_seconds", "compile_seconds", "first_loss_seconds", "peak_rss_mb")


@dataclass(frozen=True)
class Bound:
    """Values agree when |a - b| <= atol + rtol * |b|."""

    rtol: float = 1e-4
    atol: float = 0.0

    def holds(self, a: float, b: float) -> bool:
        """Whether two numbers agree."""
        return bool(abs(a - b) <= self.atol + self.rtol * abs(b))


def likeness(a: Record, b: Record, bound: Bound) -> Row:
    """What two runs have in common; B is the reference. Metrics and losses decide, all else is told.

    {"same", "a", "b": paths, "rtol", "atol", "config", "manifest", "figures": [{"key", "a", "b"}, ...], those that
     differ, "metrics": [{"metric", "a", "b", "abs", "rel", "differs"}, ...],
     "losses": as `compared_losses`, "notes": [text, ...]}

    A value that a run does not have is null.
    """
    metrics = [_metric(name, a.results.get(name), b.results.get(name), bound) for name in {**a.results, **b.results}]
    losses = compared_losses(a, b, bound)
    whole = not losses["differing"] and not losses["only_a"] and not losses["only_b"]
    return {
        "same": whole and bool(metrics) and not any(row["differs"] for row in metrics),
        "a": str(a.folder),
        "b": str(b.folder),
        "rtol": bound.rtol,
        "atol": bound.atol,
        "config": pairs(a.config, b.config),
        "manifest": pairs(a.manifest, b.manifest),
        "metrics": metrics,
        "losses": losses,
        "figures": pairs(*({name: run.summary.get(name) for name in FIGURES} for run in (a, b))),
        "notes": [f"{side}: {note}" for side, run in (("A", a), ("B", b)) for note in run.notes],
    }


def compared_losses(a: Record, b: Record, bound: Bound) -> Row:
    """The losses of the steps that both runs wrote down.

    {"steps", "identical", "differing": counts, "only_a", "only_b": steps of one run, "max_abs", "max_rel": null without
     steps, "first": null or the first step that differs: {"global_step", "a", "b"}}
    """
    steps, left, right = np.intersect1d(a.metrics.steps, b.metrics.steps, return_indices=True)
    x, y = a.metrics.losses[left], b.metrics.losses[right]
    gap = np.abs(x - y)
    outside = gap > bound.atol + bound.rtol * np.abs(y)
    relative = np.divide(gap, np.abs(y), out=np.where(gap > 0, np.inf, 0.0), where=y != 0)
    first = int(np.argmax(outside)) if outside.any() else None
    return {
        "steps": len(steps),
        "identical": int(np.count_nonzero(gap == 0)),
        "differing": int(np.count_nonzero(outside)),
        "only_a": len(np.setdiff1d(a.metrics.steps, steps)),
        "only_b": len(np.setdiff1d(b.metrics.steps, steps)),
        "max_abs": float(gap.max()) if len(gap) else None,
        "max_rel": _finite(float(relative.max())) if len(gap) else None,
        "first": None if first is None else _step(steps[first], x[first], y[first]),
    }


def pairs(a: dict[str, Any], b: dict[str, Any]) -> list[Row]:
    """A row for every key whose values differ."""
    return [{"key": key, "a": a.get(key), "b": b.get(key)} for key in differing([a, b])]


def _metric(name: str, a: float | None, b: float | None, bound: Bound) -> Row:
    if a is None or b is None:
        return {"metric": name, "a": a, "b": b, "abs": None, "rel": None, "differs": True}
    gap = abs(a - b)
    relative = gap / abs(b) if b else _finite(np.inf if gap else 0.0)
    return {"metric": name, "a": a, "b": b, "abs": gap, "rel": relative, "differs": not bound.holds(a, b)}


def _finite(value: float) -> float | str:
    return value if np.isfinite(value) else "inf"


def _step(step: np.generic, a: np.generic, b: np.generic) -> Row:
    return {"global_step": int(step), "a": float(a), "b": float(b)}
