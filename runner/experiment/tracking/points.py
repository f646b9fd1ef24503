"""Rows of `metrics.jsonl` as points of curves, in the form that trackers receive."""

import json
import math
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from runner.host.json import flat, without_lists

POSITION_KEYS = {"event", "epoch", "step", "global_step"}  # all other keys are values
CHUNK = 1 << 18  # bytes per read: about 3000 rows


class Point(NamedTuple):
    """A value of a curve at a global step; `time` is when it was read, in seconds since 1970."""

    name: str
    value: float
    step: int
    time: float


def of_row(row: Mapping[str, Any]) -> list[Point]:
    """The single numbers of a row by name, prefixed with the event unless it is a step: `loss`, and `eval/loss`.

    >>> [point[:3] for point in of_row({"event": "eval", "epoch": 1, "global_step": 44, "accuracy": 0.5})]
    [('eval/accuracy', 0.5, 44)]
    """
    group = "" if row["event"] == "step" else f"{row['event']}/"
    now = time.time()
    numbers = without_lists({name: value for name, value in row.items() if name not in POSITION_KEYS})
    return [Point(group + name, float(value), row["global_step"], now) for name, value in numbers.items()]


def of_summary(summary: Mapping[str, Any]) -> list[Point]:
    """The numbers of `summary.json` as `summary/...`, at the last step."""
    values = {name: value for name, value in flat(dict(summary)).items() if type(value) in (int, float)}
    now, step = time.time(), int(summary.get("steps", 0))
    return [Point(f"summary/{name}", float(value), step, now) for name, value in values.items() if math.isfinite(value)]


class Tail:
    """Reads the new rows of a growing file; an incomplete last line is left for the next read."""

    def __init__(self, path: Path) -> None:
        self.path, self._offset = path, 0

    def new(self) -> Iterator[list[Point]]:
        """The points of new rows, about 3000 rows at a time. Raises OSError, and ValueError for an invalid row."""
        while content := self._read():
            yield [point for line in content.splitlines() for point in of_row(json.loads(line))]

    def _read(self) -> bytes:
        if not self.path.exists():
            return b""
        with open(self.path, "rb") as file:
            file.seek(self._offset)
            content = file.read(CHUNK)
        whole = content[: content.rfind(b"\n") + 1]
        self._offset += len(whole)
        return whole
