"""Comparison of two runs without dumps: configs, manifests, every loss, metrics and speed."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from runner.report.record import RunRecord, differing_keys

Row = dict[str, Any]
FIGURES = ("status", "steps_per_second", "train_seconds", "compile_seconds", "first_loss_seconds", "peak_rss_mb")


@dataclass(frozen=True)
class MetricTolerance:
    """Values agree if |a - b| <= atol + rtol * |b|."""

    rtol: float = 1e-4
    atol: float = 0.0


def compare_runs(a: RunRecord, b: RunRecord, tolerance: MetricTolerance) -> Row:
    """Compare two runs; B is the reference. Losses and metrics decide whether they are the same.

    {"same", "a", "b": paths, "rtol", "atol",
     "config", "manifest", "figures": [{"key", "a", "b"}, ...], differing keys only,
     "metrics": [{"metric", "a", "b", "abs", "rel", "differs"}, ...]; for arrays, "abs" and "rel" are the largest of
        their elements, "elements" and "differing" the numbers of all and of those that differ,
     "losses": as `compare_losses`, "notes": [text, ...]}

    A value that a run does not have is null.
    """
    x, y = ({**run.results, **run.arrays} for run in (a, b))
    metrics = [_metric(name, x.get(name), y.get(name), tolerance) for name in {**x, **y}]
    losses = compare_losses(a, b, tolerance)
    losses_agree = not losses["differing"] and not losses["only_a"] and not losses["only_b"]
    return {
        "same": losses_agree and bool(metrics) and not any(row["differs"] for row in metrics),
        "a": str(a.folder),
        "b": str(b.folder),
        "rtol": tolerance.rtol,
        "atol": tolerance.atol,
        "config": differing_values(a.config, b.config),
        "manifest": differing_values(a.manifest, b.manifest),
        "metrics": metrics,
        "losses": losses,
        "figures": differing_values(*({name: run.summary.get(name) for name in FIGURES} for run in (a, b))),
        "notes": [f"{side}: {note}" for side, run in (("A", a), ("B", b)) for note in run.notes],
    }


def compare_losses(a: RunRecord, b: RunRecord, tolerance: MetricTolerance) -> Row:
    """Compare the losses of the steps that both runs recorded.

    {"steps", "identical", "differing": counts, "only_a", "only_b": steps of one run, "max_abs", "max_rel": null without
     steps, "first": null or the first step that differs: {"global_step", "a", "b"}}
    """
    steps, left, right = np.intersect1d(a.metrics.steps, b.metrics.steps, return_indices=True)
    x, y = a.metrics.losses[left], b.metrics.losses[right]
    absolute = np.abs(x - y)
    outside = absolute > tolerance.atol + tolerance.rtol * np.abs(y)
    relative = np.divide(absolute, np.abs(y), out=np.where(absolute > 0, np.inf, 0.0), where=y != 0)
    first = int(np.argmax(outside)) if outside.any() else None
    return {
        "steps": len(steps),
        "identical": int(np.count_nonzero(absolute == 0)),
        "differing": int(np.count_nonzero(outside)),
        "only_a": len(np.setdiff1d(a.metrics.steps, steps)),
        "only_b": len(np.setdiff1d(b.metrics.steps, steps)),
        "max_abs": float(absolute.max()) if len(absolute) else None,
        "max_rel": _finite(float(relative.max())) if len(absolute) else None,
        "first": None if first is None else _step(steps[first], x[first], y[first]),
    }


def differing_values(a: dict[str, Any], b: dict[str, Any]) -> list[Row]:
    """A row for every key whose values differ."""
    return [{"key": key, "a": a.get(key), "b": b.get(key)} for key in differing_keys([a, b])]


def _metric(name: str, a: Any, b: Any, tolerance: MetricTolerance) -> Row:
    """The row of a number or an array."""
    x, y = ((None if one is None else np.asarray(one, np.float64)) for one in (a, b))
    if x is None or y is None or x.shape != y.shape:
        return {"metric": name, "a": a, "b": b, "abs": None, "rel": None, "differs": True}
    absolute = np.abs(x - y)
    relative = np.divide(absolute, np.abs(y), out=np.where(absolute > 0, np.inf, 0.0), where=y != 0)
    outside = absolute > tolerance.atol + tolerance.rtol * np.abs(y)
    largest = {"abs": float(absolute.max()), "rel": _finite(float(relative.max()))}
    counts = {"elements": x.size, "differing": int(outside.sum())} if x.ndim else {}
    return {"metric": name, "a": a, "b": b, **largest, "differs": bool(outside.any()), **counts}


def _finite(value: float) -> float | str:
    return value if np.isfinite(value) else "inf"


def _step(step: np.generic, a: np.generic, b: np.generic) -> Row:
    return {"global_step": int(step), "a": float(a), "b": float(b)}
