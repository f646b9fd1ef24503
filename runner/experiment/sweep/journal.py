"""`sweep.jsonl`: the command of a sweep and the results of its jobs, one row per event.

| event | keys |
|---|---|
| `sweep` | `version`, `call` (the command line), `config` (of all jobs), `config_sha256`, `threads` of a job, |
|         | `code_sha256` of the user's files by name, `code_given` and `code_folder` as in `manifest.json` |
| `jobs` | `first` (a number), `overrides` of this job and of those that follow |
| `resume` | `overrides` of the resumed sweep, `code_sha256` |
| `submit` | `job`, `cluster`, and its `id` there |
| `start` | `job`, `folder` (below the sweep's), `pid` |
| `end` | `job`, `folder`, `status` (ok, failed, interrupted, killed), `exit_code`, `error`, `loss`, `metrics` |
| `trial` | `job`, `params` proposed by a search, `state` (complete, failed) and `value` reported to it |

Each row has a `time` and is synced to the disk. Jobs write their own rows, from any process. Metrics that are arrays
are only in the job's own `summary.json`.
"""

import fcntl
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner import rundir
from runner.config.schema import changed_keys
from runner.errors import ConfigError, DataError, changed_rows
from runner.experiment import manifest
from runner.host import files
from runner.host.console import now
from runner.host.json import fits, flat, parse_data, read_optional, without_lists

VERSION = 1
MAX_BYTES = 1 << 28
# Required keys of a row.
KEYS: Mapping[str, Mapping[str, type]] = {
    "sweep": {"version": int, "call": dict, "config": dict, "config_sha256": str, "threads": int},
    "jobs": {"first": int, "overrides": list},
    "resume": {"overrides": list},
    "submit": {"job": int, "cluster": str, "id": str},
    "start": {"job": int, "folder": str},
    "end": {"job": int, "folder": str, "status": str, "exit_code": int},
    "trial": {"job": int, "params": dict, "state": str},
}

# Keys that rows of older versions do not have.
OPTIONAL: Mapping[str, type] = {"code_sha256": dict, "code_given": list}


def append(folder: Path, event: str, /, **values: Any) -> None:
    """Append a row to the journal of the sweep in `folder` and sync it.

    Safe for concurrent processes. First removes an incomplete last row, left by a full disk or a power cut. Raises
    StorageError.
    """
    path = folder / rundir.SWEEP
    row = {"event": event, **values, "time": now()}
    with files.storage_errors("cannot append to a file", path, "open"):
        handle = files.open_unlinked(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        with os.fdopen(handle, "r+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            _cut_torn_end(path, file.fileno())
            files.before_operation("write", path)
            line = json.dumps(row, allow_nan=False).encode() + b"\n"
            if file.write(line) != len(line):
                raise OSError("incomplete write")
            files.before_operation("fsync", path)
            os.fsync(file.fileno())


def read(folder: Path, offset: int = 0) -> tuple[list[dict[str, Any]], int]:
    """The complete rows from a byte offset on, and the offset of their end; an incomplete last line is ignored.

    Raises ConfigError when this is not the folder of a sweep, DataError for an invalid line, StorageError.
    """
    path = folder / rundir.SWEEP
    if not path.exists():
        raise ConfigError("not a sweep directory", path=folder, missing=rundir.SWEEP, hint="runner ls lists runs")
    content = files.read_bytes(path, MAX_BYTES)
    end = content.rfind(b"\n") + 1
    lines = content[offset:end].split(b"\n")[:-1]
    before = content.count(b"\n", 0, offset)
    return [_row(path, before + number, line) for number, line in enumerate(lines, 1)], end


def _row(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        row = parse_data(line)
    except DataError as error:
        raise _damaged(path, number, "not JSON").add(found=error.rows["reason"]) from None
    keys = KEYS.get(str(row.get("event"))) if isinstance(row, dict) else None
    if keys is None:
        raise _damaged(path, number, "not an event of a sweep")
    optional = {key: kind for key, kind in OPTIONAL.items() if key in row}
    for key, kind in {**keys, **optional}.items():
        if not fits(row.get(key), kind):
            raise _damaged(path, number, f"{key} is not {kind.__name__}")
    if row["event"] == "end" and not are_results(row.get("loss"), row.get("metrics")):
        raise _damaged(path, number, "loss and metrics of a job are not numbers")
    if row["event"] == "trial" and not _is_trial_result(row["state"], row.get("value")):
        raise _damaged(path, number, "state and value of a trial do not match")
    if row["event"] == "jobs" and not fits(row["overrides"], [[str]]):
        raise _damaged(path, number, "overrides are not lists of text")
    return dict(row)


def are_results(loss: object, metrics: object) -> bool:
    """Whether they are the loss of a job and its metrics by name; a job that failed has None."""
    is_group = metrics is None or isinstance(metrics, dict)
    return is_group and fits([loss, *(metrics or {}).values()], [(float, None)])  # type: ignore[attr-defined]


def _is_trial_result(state: str, value: object) -> bool:
    if state == "complete":
        return fits(value, float)
    return state == "failed" and value is None


def _damaged(path: Path, number: int, reason: str) -> DataError:
    hint = "the folders of the jobs are intact: runner resume continues each of them"
    return DataError("a damaged line in the journal of a sweep", file=f"{path}:{number}", reason=reason, hint=hint)


def _cut_torn_end(path: Path, handle: int) -> None:
    size = os.fstat(handle).st_size
    if size and os.pread(handle, 1, size - 1) != b"\n":
        files.before_operation("truncate", path)
        os.ftruncate(handle, os.pread(handle, size, 0).rfind(b"\n") + 1)


# The state of a sweep according to its journal: its jobs and the status of each.

SEARCH = "hydra.sweeper."
Jobs = dict[int, tuple[str, ...]]  # the overrides of each job by its number


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
        rows, self._offset = read(self.folder, self._offset)
        for row in rows:
            self._take(row)
        path, found = self.folder / rundir.SWEEP, self.header.get("version")
        if not self.jobs and not self.header:
            raise ConfigError(
                "not a sweep directory", path=self.folder, reason="the sweep was killed before its first row"
            )
        if found != VERSION:
            raise DataError("not a journal of this version", file=path, expected=VERSION, found=found)
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
                self.code = row.get(manifest.HASHES)
            case "jobs":
                self.jobs |= {row["first"] + place: tuple(lines) for place, lines in enumerate(row["overrides"])}
            case "resume":
                self._failed = set()
                self.code = row.get(manifest.HASHES, self.code)
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
        if rundir.is_finished(folder):
            end(state.folder, number, folder, summary=read_optional(folder / rundir.SUMMARY))
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
    if not are_results(*known.values()):  # the summary is damaged
        known = dict.fromkeys(known)
    place = relative(folder, sweep)
    append(sweep, "end", job=number, folder=place, status=status, exit_code=exit_code, error=error, **known)


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
