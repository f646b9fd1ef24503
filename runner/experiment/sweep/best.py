"""What a search was for: its best job, at the end of the table and in `best.json`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.experiment.sweep.state import Outcome, relative, varying
from runner.host.files import write_json

NAME = "best.json"


def best(outcomes: Sequence[Outcome], search: Mapping[str, Any]) -> Outcome | None:
    """The job with the best value of the metric, of equal ones the first; None when no job has one."""
    metric, sign = str(search["metric"]), -1 if search["direction"] == "maximize" else 1
    able = [(sign * value, one.number, one) for one in outcomes if (value := one.value(metric)) is not None]
    return min(able, key=lambda found: found[:2])[2] if able else None


def sentence(found: Outcome, outcomes: Sequence[Outcome], search: Mapping[str, Any]) -> str:
    """Which it is, its value, and what it does not share with all others."""
    metric = str(search["metric"])
    own = varying([one.overrides for one in outcomes])
    return " ".join(
        [f"best: job {found.number}, {metric} {found.value(metric):.4f} ", *filter(own.__contains__, found.overrides)]
    )


def write(folder: Path, found: Outcome, search: Mapping[str, Any]) -> None:
    """Leave the answer in the folder of the sweep, for programs. Raises StorageError."""
    metric = str(search["metric"])
    place = found.folder and relative(found.folder, folder)
    answer = {"job": found.number, "folder": place, "overrides": list(found.overrides)}
    write_json(
        folder / NAME, {"metric": metric, "direction": search["direction"], "value": found.value(metric), **answer}
    )
