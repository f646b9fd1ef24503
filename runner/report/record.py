"""What a run left in its folder. Whatever is missing or damaged is empty, and `notes` say so: nothing here raises."""

import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from runner.errors import DataError, StorageError
from runner.host import files
from runner.host.json_file import flat

STATES = ("ok", "running", "interrupted", "failed", "killed", "broken")
MOST_BYTES = 16 << 20  # of one file that is read as a whole
MOST_LINE = 1 << 16  # bytes of one event


@dataclass(frozen=True)
class Metrics:
    """`metrics.jsonl`: global steps (n,) int64 ascending, their losses (n,) float64, and the `eval` events as they are.

    `damaged` counts lines that are no events; `torn` tells that the last line has no end, as a kill or a run that goes
    on may leave it.
    """

    steps: np.ndarray
    losses: np.ndarray
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    damaged: int = 0
    torn: bool = False


class Record:
    """The files of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def status(self) -> dict[str, Any]:
        """`status.json`."""
        return self._object("status.json")

    @cached_property
    def state(self) -> str:
        """One of STATES: `killed` says running, but its process is gone; `broken` has no status that can be read."""
        said = str(self.status.get("status", "broken"))
        if said == "running" and not is_alive(self.status.get("pid")):
            return "killed"
        return said if said in STATES else "broken"

    @cached_property
    def config(self) -> dict[str, Any]:
        """The resolved config by dotted keys; of a job that never began, what its overrides set."""
        return self._dotted("config.json") or self._overridden()

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """`manifest.json` by dotted keys."""
        return self._dotted("manifest.json")

    @cached_property
    def summary(self) -> dict[str, Any]:
        """`summary.json`."""
        return self._object("summary.json")

    @cached_property
    def overrides(self) -> list[str]:
        """What the user typed, from Hydra's record: a list of YAML, one override a line."""
        text = self._bytes(".hydra/overrides.yaml").decode(errors="replace")
        return [_unquoted(line[2:].strip()) for line in text.splitlines() if line.startswith("- ")]

    @cached_property
    def metrics(self) -> Metrics:
        """`metrics.jsonl`."""
        steps: list[int] = []
        losses: list[float] = []
        evaluations: list[dict[str, Any]] = []
        damaged, torn = 0, False
        for line in self._lines("metrics.jsonl"):
            row = _event(line)
            torn = not line.endswith(b"\n")
            if row is None:
                damaged += not torn
            elif row["event"] == "eval":
                evaluations.append(row)
            else:
                steps.append(row["global_step"])
                losses.append(row["loss"])
        order = np.argsort(np.asarray(steps, np.int64), kind="stable")
        return Metrics(
            np.asarray(steps, np.int64)[order], np.asarray(losses, np.float64)[order], evaluations, damaged, torn
        )

    @cached_property
    def results(self) -> dict[str, float]:
        """The loss of the last step, and the metrics of the last evaluation, by name (`eval.loss` is that of the test
        split)."""
        found: dict[str, float] = {}
        if len(self.metrics.losses):
            found["loss"] = float(self.metrics.losses[-1])
        for name, value in (self.metrics.evaluations or [{}])[-1].items():
            if name not in ("event", "epoch", "global_step") and is_number(value):
                found["eval.loss" if name == "loss" else name] = value
        return found

    @cached_property
    def step(self) -> int:
        """The last step that was written down; 0 when there is none."""
        return int(self.metrics.steps[-1]) if len(self.metrics.steps) else 0

    @property
    def name(self) -> str:
        """Of the experiment, or of the network."""
        return str(self.status.get("experiment") or self.status.get("network") or "run")

    @property
    def notes(self) -> list[str]:
        """What a reader should know before believing the rest."""
        notes = {
            "running": f"it is still running; this is as far as step {self.step}",
            "killed": f"its process is gone without an end; this is as far as step {self.step}",
            "interrupted": f"it was interrupted after step {self.step}; runner resume goes on with it",
            "broken": "its status.json is missing or damaged; this is what else could be read",
        }
        found = [notes[self.state]] if self.state in notes else []
        if self.metrics.damaged:
            found.append(f"{self.metrics.damaged} lines of metrics.jsonl are damaged and left out")
        if self.metrics.torn and self.state != "running":
            found.append("the last line of metrics.jsonl is torn")
        return found

    def _overridden(self) -> dict[str, Any]:
        pairs = (line.lstrip("+").partition("=") for line in self.overrides)
        return {key: _value(value) for key, equals, value in pairs if equals}

    def _dotted(self, name: str) -> dict[str, Any]:
        try:
            return flat(self._object(name))
        except RecursionError:
            return {}

    def _object(self, name: str) -> dict[str, Any]:
        try:
            found = json.loads(self._bytes(name))
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def _bytes(self, name: str) -> bytes:
        try:
            return files.read_bytes(self.folder / name, MOST_BYTES)
        except (DataError, StorageError):
            return b""

    def _lines(self, name: str) -> Iterator[bytes]:
        path = self.folder / name
        try:
            if not path.is_file():  # a pipe would wait for its writer
                return
            with open(path, "rb") as file:
                while line := file.readline(MOST_LINE):
                    yield line
        except OSError:
            return


def is_alive(pid: object) -> bool:
    """Whether a process has this number."""
    if not isinstance(pid, int) or isinstance(pid, bool) or not 0 < pid < 1 << 31:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def is_number(value: object) -> bool:
    """Whether it is a finite number, and not a truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def places(folder: Path) -> Iterator[Path]:
    """The runs in a folder, itself included: those with a `status.json`, or with Hydra's records only, which were
    killed at their start."""
    for place, folders, names in os.walk(folder, onerror=None):
        if "status.json" in names or (".hydra" in folders and "multirun.yaml" not in names):
            folders.clear()
            yield Path(place)


def differing(values: Sequence[dict[str, Any]]) -> list[str]:
    """The keys whose values are not the same in all of some flat configs, in the order of the first that has them."""
    keys = dict.fromkeys(key for one in values for key in one)
    return [key for key in keys if any(one.get(key) != values[0].get(key) for one in values)]


def _event(line: bytes) -> dict[str, Any] | None:
    """A whole event; None for anything else."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict) or row.get("event") not in ("step", "eval"):
        return None
    step = row.get("global_step")
    whole = isinstance(step, int) and not isinstance(step, bool) and 0 <= step < 1 << 62
    return row if whole and (row["event"] == "eval" or is_number(row.get("loss"))) else None


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'") if len(text) > 1 and text[0] == text[-1] == "'" else text
