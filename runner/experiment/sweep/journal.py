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
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.errors import ConfigError, DataError
from runner.host import files, json as json_data
from runner.host.console import now

NAME = "sweep.jsonl"
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
    path = folder / NAME
    row = {"event": event, **values, "time": now()}
    with files.storage_errors("cannot append to a file", path, "open"):
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
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
    path = folder / NAME
    if not path.exists():
        raise ConfigError("not a sweep directory", path=folder, missing=NAME, hint="runner ls lists runs")
    content = files.read_bytes(path, MAX_BYTES)
    end = content.rfind(b"\n") + 1
    lines = content[offset:end].split(b"\n")[:-1]
    before = content.count(b"\n", 0, offset)
    return [_row(path, before + number, line) for number, line in enumerate(lines, 1)], end


def _row(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        row = json_data.parse_data(line)
    except DataError as error:
        raise _damaged(path, number, "not JSON").add(found=error.rows["reason"]) from None
    keys = KEYS.get(str(row.get("event"))) if isinstance(row, dict) else None
    if keys is None:
        raise _damaged(path, number, "not an event of a sweep")
    optional = {key: kind for key, kind in OPTIONAL.items() if key in row}
    for key, kind in {**keys, **optional}.items():
        if type(row.get(key)) is not kind:
            raise _damaged(path, number, f"{key} is not {kind.__name__}")
    if row["event"] == "end" and not are_results(row.get("loss"), row.get("metrics")):
        raise _damaged(path, number, "loss and metrics of a job are not numbers")
    if row["event"] == "trial" and not _is_trial_result(row["state"], row.get("value")):
        raise _damaged(path, number, "state and value of a trial do not match")
    for lines in row["overrides"] if row["event"] == "jobs" else ():
        if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
            raise _damaged(path, number, "overrides are not lists of text")
    return dict(row)


def are_results(loss: object, metrics: object) -> bool:
    """Whether they are the loss of a job and its metrics by name; a job that failed has None."""
    values = list(metrics.values()) if isinstance(metrics, dict) else [metrics]
    return all(value is None or type(value) in (int, float) for value in (loss, *values))


def _is_trial_result(state: str, value: object) -> bool:
    if state == "complete":
        return isinstance(value, float | int) and math.isfinite(value)
    return state == "failed" and value is None


def _damaged(path: Path, number: int, reason: str) -> DataError:
    hint = "the folders of the jobs are intact: runner resume continues each of them"
    return DataError("a damaged line in the journal of a sweep", file=f"{path}:{number}", reason=reason, hint=hint)


def _cut_torn_end(path: Path, handle: int) -> None:
    size = os.fstat(handle).st_size
    if size and os.pread(handle, 1, size - 1) != b"\n":
        files.before_operation("truncate", path)
        os.ftruncate(handle, os.pread(handle, size, 0).rfind(b"\n") + 1)
