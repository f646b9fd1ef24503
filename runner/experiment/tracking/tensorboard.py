"""A run as TensorBoard event files. Messages and records are those of tensorboardX, the thread is ours.

The writer of tensorboardX has a queue whose reader dies at the first error, which then blocks the training forever.
"""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.experiment.tracking.points import Point
from runner.host.event_files import MARK, load_library, records
from runner.host.files import make_directory, names


class EventFile:
    """A new event file in `folder`, next to those of earlier processes; it begins with texts, by name.

    Raises ImportError, OSError and StorageError.
    """

    name = "tensorboard"

    def __init__(self, folder: Path, texts: Mapping[str, Mapping[str, Any]]) -> None:
        self._library = load_library()
        before = [name for name in names(make_directory(folder)) if MARK in name]
        self._folder, self._before = folder, [folder / name for name in before]
        # The suffix distinguishes and orders files that are created in the same second.
        self._writer = self._library.writer(str(folder / "events"), f".{len(before)}")
        for name, values in texts.items():
            self.describe(name, values)

    @property
    def place(self) -> dict[str, Any]:
        return {"path": str(self._folder)}

    def last_steps(self) -> dict[str, int]:
        last: dict[str, int] = {}
        for path in self._before:
            for event in map(self._library.event.FromString, records(path)):
                last |= {value.tag: max(event.step, last.get(value.tag, -1)) for value in event.summary.value}
        return last

    def add_points(self, points: list[Point]) -> None:
        for point in points:
            summary = self._library.summary(value=[{"tag": point.name, "simple_value": point.value}])
            self._writer.write_event(self._library.event(wall_time=point.time, step=point.step, summary=summary))
        self._writer.flush()

    def describe(self, name: str, values: Mapping[str, Any]) -> None:
        lines = json.dumps(dict(values), indent=2).splitlines()
        text = self._library.text(name, "\n".join(f"    {line}" for line in lines))  # a Markdown code block
        self._writer.write_event(self._library.event(wall_time=time.time(), summary=text))
        self._writer.flush()

    def close(self, status: str) -> None:
        self.describe("status", {"status": status})
        self._writer.close()
