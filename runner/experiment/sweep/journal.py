"""`sweep.jsonl`: what a sweep was asked for and how its jobs ended, one row for each event.

| event | keys |
|---|---|
| `sweep` | `version`, `call` (what was typed), `config` (of all jobs), `config_sha256`, `threads` of a job |
| `jobs` | `first` (a number), `overrides` of this job and of those that follow |
| `resume` | `overrides` with which it goes on |
| `start` | `job`, `folder` (below the sweep's), `pid` |
| `end` | `job`, `folder`, `status` (ok, failed, interrupted, killed), `exit_code`, `error`, `loss`, `metrics` |
| `trial` | `job`, `params` that a search had proposed, `state` (complete, failed) and `value` that it was told |

Each has a `time`, and counts when it is on the disk. Jobs write their own rows, from whatever process they run in.
"""

import fcntl
import json
import math
import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from runner.errors import ConfigError, DataError
from runner.host import files

NAME = "sweep.jsonl"
VERSION = 1
MAX_BYTES = 1 << 28
# What a row must have to be one of ours.
KEYS: Mapping[str, Mapping[str, type]] = {
    "sweep": {"version": int, "call": dict, "config": dict, "config_sha256": str, "threads": int},
    "jobs": {"first": int, "overrides": list},
    "resume": {"overrides": list},
    "start": {"job": int, "folder": str},
    "end": {"job": int, "folder": str, "status": str, "exit_code": int},
    "trial": {"job": int, "params": dict, "state": str},
}


def append(folder: Path, event: str, /, **values: Any) -> None:
    """Add a row to the journal of the sweep in `folder`, and return when it is on the disk.

    Other processes may do the same at the same time. What a full disk or a power cut left of a row goes first. Raises
    StorageError.
    """
    path = folder / NAME
    row = {"event": event, **values, "time": datetime.now().astimezone().isoformat(timespec="seconds")}
    try:
        files.before_operation("open", path)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        with os.fdopen(handle, "r+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            _cut_torn_end(path, file.fileno())
            files.before_operation("write", path)
            line = json.dumps(row, allow_nan=False).encode() + b"\n"
            if file.write(line) != len(line):
                raise OSError("the disk took only a part")
            files.before_operation("fsync", path)
            os.fsync(file.fileno())
    except OSError as reason:
        raise files.storage_error("cannot append to a file", path, reason) from reason


def read(folder: Path, offset: int = 0) -> tuple[list[dict[str, Any]], int]:
    """The whole rows from a byte on, and the byte behind them; a torn last line is no row.

    Raises ConfigError when this is not the folder of a sweep, DataError for a line that is no row, StorageError.
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
        row = json.loads(line)
    except (ValueError, RecursionError):
        raise _damaged(path, number, "not JSON") from None
    keys = KEYS.get(str(row.get("event"))) if isinstance(row, dict) else None
    if keys is None:
        raise _damaged(path, number, "not an event of a sweep")
    for key, kind in keys.items():
        if type(row.get(key)) is not kind:
            raise _damaged(path, number, f"{key} is not {kind.__name__}")
    if row["event"] == "trial" and not _is_told(row["state"], row.get("value")):
        raise _damaged(path, number, "state and value of a trial do not fit")
    for lines in row["overrides"] if row["event"] == "jobs" else ():
        if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
            raise _damaged(path, number, "overrides are not lists of text")
    return dict(row)


def _is_told(state: str, value: object) -> bool:
    if state == "complete":
        return isinstance(value, float | int) and math.isfinite(value)
    return state == "failed" and value is None


def _damaged(path: Path, number: int, reason: str) -> DataError:
    hint = "the jobs' folders are whole: runner resume goes on with each of them"
    return DataError("a damaged line in the journal of a sweep", file=f"{path}:{number}", reason=reason, hint=hint)


def _cut_torn_end(path: Path, handle: int) -> None:
    size = os.fstat(handle).st_size
    if size and os.pread(handle, 1, size - 1) != b"\n":
        files.before_operation("truncate", path)
        os.ftruncate(handle, os.pread(handle, size, 0).rfind(b"\n") + 1)
