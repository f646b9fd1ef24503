"""The state of a sweep according to its journal: its jobs and the status of each."""

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner.config.schema import changed_keys
from runner.errors import ConfigError, DataError, changed_rows
from runner.experiment import code
from runner.experiment.sweep import journal
from runner.host.json import flat, read_optional, without_lists

SEARCH = "hydra.sweeper."
Jobs = dict[int, tuple[str, ...]]  # the overrides of each job by its number
STATUS_FILE, SUMMARY_FILE = "status.json", "summary.json"


@dataclass(frozen=True)
class Outcome:
    """The status and results of one job of a sweep.

    `status` is ok, failed, interrupted, killed or missing (never started), `error` the text of its error, `folder` None
    for a job that never started.
    """

    number: int
    overrides: tuple[str, ...]
    status: str
    exit_code: int
    folder: Path | None = None
    error: str | None = None
    loss: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)

    def value(self, metric: str) -> float | None:
        """A metric as in `expect`: the loss of the training, others of the evaluation; None without a finite result."""
        found = self.loss if metric == "loss" else self.metrics.get(metric)
        return found if self.status == "ok" and found is not None and math.isfinite(found) else None


class SweepState:
    """The state of a sweep, updated with each new row of its journal."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.header: dict[str, Any] = {}
        self.jobs: Jobs = {}
        self.started: dict[int, dict[str, Any]] = {}
        self.ended: dict[int, dict[str, Any]] = {}
        self.submitted: dict[int, str] = {}  # ids in Slurm's queue
        self.trials: dict[int, dict[str, Any]] = {}
        self.code: dict[str, str] | None = None  # sha256 of the user's files, by name; None in older journals
        self._failed: set[int] = set()  # since the last resume
        self._offset = 0

    def update(self) -> list[dict[str, Any]]:
        """Read and return the new rows. Raises the errors of `journal.read`, and DataError for another version."""
        rows, self._offset = journal.read(self.folder, self._offset)
        for row in rows:
            self._take(row)
        path, found = self.folder / journal.NAME, self.header.get("version")
        if not self.jobs and not self.header:
            raise ConfigError(
                "not a sweep directory", path=self.folder, reason="the sweep was killed before its first row"
            )
        if found != journal.VERSION:
            raise DataError("not a journal of this version", file=path, expected=journal.VERSION, found=found)
        return rows

    def outcome(self, number: int) -> Outcome:
        """The status and results of a job."""
        row = self.ended.get(number) or self.started.get(number) or {}
        folder = self.folder / row["folder"] if row else None
        overrides = self.jobs.get(number, ())
        if number not in self.ended:
            return Outcome(number, overrides, "killed" if row else "missing", 1, folder)
        results: dict[str, Any] = {
            "error": row.get("error"),
            "loss": row.get("loss"),
            "metrics": row.get("metrics") or {},
        }
        return Outcome(number, overrides, row["status"], row["exit_code"], folder, **results)

    @property
    def search(self) -> dict[str, Any] | None:
        """The settings of a search (`metric`, `direction`, ...); None for a sweep over given values."""
        config = flat(self.header.get("config") or {})
        settings = {key.removeprefix(SEARCH): value for key, value in config.items() if key.startswith(SEARCH)}
        return settings if {"metric", "direction"} <= settings.keys() else None

    def outcomes(self) -> list[Outcome]:
        """The outcomes of all jobs, in order."""
        return [self.outcome(number) for number in sorted(self.jobs)]

    def failed(self) -> bool:
        """Whether a job has failed since the sweep was started or resumed; interrupted jobs do not count."""
        return bool(self._failed)

    def done(self) -> frozenset[int]:
        """The numbers of the finished jobs."""
        return frozenset(number for number, row in self.ended.items() if row["status"] == "ok")

    def _take(self, row: dict[str, Any]) -> None:
        match row["event"]:
            case "sweep":
                self.header = row
                self.code = row.get(code.HASHES)
            case "jobs":
                self.jobs |= {row["first"] + place: tuple(lines) for place, lines in enumerate(row["overrides"])}
            case "resume":
                self._failed = set()
                self.code = row.get(code.HASHES, self.code)
            case "submit":
                if row["cluster"] == "slurm":
                    self.submitted[row["job"]] = row["id"]
            case "start":
                self.started[row["job"]] = row
                self.ended.pop(row["job"], None)
            case "trial":
                self.trials[row["job"]] = row
            case "end":
                self.ended[row["job"]] = row
                if row["status"] in ("failed", "killed"):
                    self._failed.add(row["job"])


def settle(state: SweepState, numbers: Iterable[int], what: str) -> None:
    """Write the `end` rows of jobs that could not write their own; `what` is the reason. Raises StorageError.

    `status.json` is authoritative: a job may have been killed between writing it and writing its row.
    """
    for number in numbers:
        started = state.started.get(number, {"folder": str(number)})  # it may have died before its `start` row
        folder = state.folder / started["folder"]
        if read_optional(folder / STATUS_FILE).get("status") == "ok":
            end(state.folder, number, folder, summary=read_optional(folder / SUMMARY_FILE))
        else:
            end(state.folder, number, folder, "killed", 1, error=what)


def end(
    sweep: Path,
    number: int,
    folder: Path,
    status: str = "ok",
    exit_code: int = 0,
    *,
    error: str | None = None,
    summary: dict[str, Any] | None = None,
) -> None:
    """Write the `end` row of a job. Raises StorageError."""
    known = {name: (summary or {}).get(name) for name in ("loss", "metrics")}
    if isinstance(known["metrics"], dict):
        known["metrics"] = without_lists(known["metrics"])
    if not journal.are_results(*known.values()):  # the summary is damaged
        known = dict.fromkeys(known)
    place = relative(folder, sweep)
    journal.append(sweep, "end", job=number, folder=place, status=status, exit_code=exit_code, error=error, **known)


def relative(folder: Path, sweep: Path) -> str:
    """A job's folder as in the journal: relative to the sweep's, which may be moved."""
    return os.path.relpath(folder, sweep)


def refuse_changes(what: str, was: dict[str, Any], now: dict[str, Any]) -> None:
    """Raise ConfigError with a row for every key that differs between two configs; `sweep.*` may change."""
    before, after = flat(was), flat(now)
    changed = {name for name in changed_keys(before, after) if not name.startswith("sweep.")}
    if rows := {name: row for name, row in changed_rows(before, after).items() if name in changed}:
        raise ConfigError(what, **rows, hint="--force resumes anyway")


def varying(jobs: Sequence[tuple[str, ...]]) -> set[str]:
    """The overrides that not all jobs share."""
    common = set.intersection(*map(set, jobs)) if len(jobs) > 1 else set()
    return {line for job in jobs for line in job} - common
