"""The files of a run directory. Missing or damaged files read as empty, and `notes` lists them; nothing here raises."""

import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from runner.config.commands import STATES
from runner.errors import DataError, StorageError
from runner.host import files, json
from runner.host.files import is_removed
from runner.host.json import flat
from runner.host.process import may_be_alive
from runner.report.values import array_of, is_count, is_number

MAX_FILE_BYTES = 16 << 20  # of a file that is read as a whole
MAX_LINE_BYTES = 4 << 20  # of one event; the largest confusion matrix has 2 MB


@dataclass(frozen=True)
class Metrics:
    """`metrics.jsonl`: global steps (n,) int64 ascending, their losses (n,) float64 and epochs (n,) int64 (0 for a
    step that says none), and the `eval` events unchanged.

    `damaged` counts the lines that are not events. `torn`: the last line is incomplete, because the run was killed or
    is still writing.
    """

    steps: np.ndarray
    losses: np.ndarray
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    damaged: int = 0
    torn: bool = False
    epochs: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))


class RunRecord:
    """The content of one run directory; each file is read when first accessed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def status(self) -> dict[str, Any]:
        """`status.json`."""
        return self._object("status.json")

    @cached_property
    def state(self) -> str:
        """One of STATES. `killed`: status running, but its process does not exist; `broken`: no readable status."""
        status = str(self.status.get("status", "broken"))
        if status == "running" and not may_be_alive(self.status):
            return "killed"
        return status if status in STATES else "broken"

    @cached_property
    def config(self) -> dict[str, Any]:
        """The resolved config by dotted keys; for a job that never began, the values of its overrides."""
        return self._dotted("config.json") or self._override_values()

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """`manifest.json` by dotted keys."""
        return self._dotted("manifest.json")

    @cached_property
    def command(self) -> str | None:
        """The command of the script that records the run; None for a run with a config."""
        words = self._object("script.json").get("words")
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            return None
        return shlex.join(["python", *words])

    @property
    def checkpoint_prefix(self) -> str:
        """The prefix of the names of checkpoints."""
        settings = {} if self.command else self.config
        return str(settings.get("checkpoint.prefix", "CKP"))

    @cached_property
    def summary(self) -> dict[str, Any]:
        """`summary.json`."""
        return self._object("summary.json")

    @cached_property
    def overrides(self) -> list[str]:
        """The overrides of the command line, from Hydra's `overrides.yaml`: a YAML list, one override per line."""
        text = self._bytes(".hydra/overrides.yaml").decode(errors="replace")
        return [_unquoted(line[2:].strip()) for line in text.splitlines() if line.startswith("- ")]

    @cached_property
    def metrics(self) -> Metrics:
        """`metrics.jsonl`."""
        steps: list[int] = []
        losses: list[float] = []
        epochs: list[int] = []
        evaluations: list[dict[str, Any]] = []
        damaged, torn = 0, False
        for line in self._lines("metrics.jsonl"):
            row = event_of(line)
            torn = not line.endswith(b"\n")
            if row is None:
                damaged += not torn
            elif row["event"] == "eval":
                evaluations.append(row)
            else:
                steps.append(row["global_step"])
                losses.append(row["loss"])
                epochs.append(epoch if is_count(epoch := row.get("epoch")) else 0)
        order = np.argsort(np.asarray(steps, np.int64), kind="stable")
        return Metrics(
            steps=np.asarray(steps, np.int64)[order],
            losses=np.asarray(losses, np.float64)[order],
            epochs=np.asarray(epochs, np.int64)[order],
            evaluations=evaluations,
            damaged=damaged,
            torn=torn,
        )

    @cached_property
    def results(self) -> dict[str, float]:
        """The loss of the last step and the metrics of the last evaluation, by name.

        `eval.loss` is the loss on the test split.
        """
        results: dict[str, float] = {}
        if len(self.metrics.losses):
            results["loss"] = float(self.metrics.losses[-1])
        for name, value in (self.metrics.evaluations or [{}])[-1].items():
            if name not in ("event", "epoch", "global_step") and is_number(value):
                results["eval.loss" if name == "loss" else name] = value
        return results

    @cached_property
    def maximized(self) -> frozenset[str] | None:
        """The names in `results` for which larger is better; None if the summary has no such list, or there is none."""
        names = self.summary.get("maximized")
        if not isinstance(names, list):
            return None
        return frozenset("eval.loss" if name == "loss" else name for name in names if isinstance(name, str))

    def class_names(self, count: int) -> list[str]:
        """The names of `count` classes, from the summary; their numbers if it has not so many."""
        names = self.summary.get("class_names")
        if isinstance(names, list) and len(names) == count and all(isinstance(name, str) for name in names):
            return names
        return [str(number) for number in range(count)]

    @cached_property
    def arrays(self) -> dict[str, Any]:
        """The metrics of the last evaluation that are nested lists of numbers, by name."""
        last = (self.metrics.evaluations or [{}])[-1]
        return {name: value for name, value in last.items() if array_of(value) is not None}

    @cached_property
    def step(self) -> int:
        """The last recorded global step; 0 if there is none."""
        return int(self.metrics.steps[-1]) if len(self.metrics.steps) else 0

    @property
    def name(self) -> str:
        """The name of the experiment, or else of the network."""
        return str(self.status.get("experiment") or self.status.get("network") or "run")

    def time(self, name: str) -> datetime | None:
        """The time `started` or `finished` of `status.json`, None where it is not valid."""
        try:
            return datetime.fromisoformat(str(self.status.get(name)))
        except ValueError:
            return None

    @property
    def notes(self) -> list[str]:
        """Reasons why the data may be incomplete."""
        by_state = {
            "running": f"the run is still running; data up to step {self.step}",
            "killed": f"the process of the run no longer exists; data up to step {self.step}",
            "interrupted": f"the run was interrupted after step {self.step}; runner resume continues it",
            "broken": "status.json is missing or damaged; the other files were read",
        }
        notes = [by_state[self.state]] if self.state in by_state else []
        if self.metrics.damaged:
            notes.append(f"{self.metrics.damaged} damaged lines of metrics.jsonl are skipped")
        if self.metrics.torn and self.state != "running":
            notes.append("the last line of metrics.jsonl is torn")
        return notes

    def _override_values(self) -> dict[str, Any]:
        items = (line.lstrip("+").partition("=") for line in self.overrides)
        return {key: _value(value) for key, equals, value in items if equals}

    def _dotted(self, name: str) -> dict[str, Any]:
        return flat(self._object(name))

    def _object(self, name: str) -> dict[str, Any]:
        return json.read_optional(self.folder / name, MAX_FILE_BYTES)

    def _bytes(self, name: str) -> bytes:
        try:
            return files.read_bytes(self.folder / name, MAX_FILE_BYTES)
        except (DataError, StorageError):
            return b""

    def _lines(self, name: str) -> Iterator[bytes]:
        path = self.folder / name
        try:
            if not path.is_file():  # opening a pipe would block
                return
            with open(path, "rb") as file:
                while line := file.readline(MAX_LINE_BYTES):
                    yield line
        except OSError:
            return


def run_directories(folder: Path) -> Iterator[Path]:
    """The run directories in a folder, itself included: those with a `status.json`, or only with Hydra's files, if the
    run was killed at its start."""
    for directory, folders, names in os.walk(folder, onerror=None):
        folders[:] = [name for name in folders if not is_removed(name)]
        if "status.json" in names or (".hydra" in folders and "multirun.yaml" not in names):
            folders.clear()
            yield Path(directory)


def differing_keys(configs: Sequence[dict[str, Any]]) -> list[str]:
    """The keys whose values are not equal in all flat configs, in order of first appearance."""
    keys = dict.fromkeys(key for config in configs for key in config)
    return [key for key in keys if any(config.get(key) != configs[0].get(key) for config in configs)]


def event_of(line: bytes) -> dict[str, Any] | None:
    """A valid event of `metrics.jsonl`; None for anything else."""
    try:
        row = json.parse_data(line)
    except DataError:
        return None
    if not isinstance(row, dict) or row.get("event") not in ("step", "eval"):
        return None
    return row if is_count(row.get("global_step")) and (row["event"] == "eval" or is_number(row.get("loss"))) else None


def _value(text: str) -> Any:
    try:
        return json.parse_data(text.encode())
    except DataError:
        return text


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'") if len(text) > 1 and text[0] == text[-1] == "'" else text
