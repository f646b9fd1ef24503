"""The best job of a search, printed below the table and written to `best.json`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.experiment.sweep.state import Outcome, relative, varying
from runner.host.files import write_json

NAME = "best.json"


def best(outcomes: Sequence[Outcome], search: Mapping[str, Any]) -> Outcome | None:
    """The job with the best value of the metric (the first of equal ones); None when no job has a value."""
    metric, sign = str(search["metric"]), -1 if search["direction"] == "maximize" else 1
    ranked = [(sign * value, one.number, one) for one in outcomes if (value := one.value(metric)) is not None]
    return min(ranked, key=lambda found: found[:2])[2] if ranked else None


def sentence(found: Outcome, outcomes: Sequence[Outcome], search: Mapping[str, Any]) -> str:
    """A line with the job's number, its value, and the overrides that not all jobs share."""
    metric = str(search["metric"])
    own = varying([one.overrides for one in outcomes])
    return " ".join(
        [f"best: job {found.number}, {metric} {found.value(metric):.4f} ", *filter(own.__contains__, found.overrides)]
    )


def write(folder: Path, found: Outcome, search: Mapping[str, Any]) -> None:
    """Write `best.json` into the folder of the sweep. Raises StorageError."""
    metric = str(search["metric"])
    path = found.folder and relative(found.folder, folder)
    job = {"job": found.number, "folder": path, "overrides": list(found.overrides)}
    write_json(folder / NAME, {"metric": metric, "direction": search["direction"], "value": found.value(metric), **job})
