"""A thread that follows the files of a run and sends new rows to a tracker, so that no step waits for it.

The files are authoritative: the tracker gets every row of `metrics.jsonl` once, also after a resume, including those
that an earlier process could not send. A failing tracker is logged once, and the training continues.
"""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from runner.experiment.tracking.points import Point, Tail, of_summary
from runner.host import json
from runner.host.console import LOG

MANIFEST_FILE, METRICS_FILE = "manifest.json", "metrics.jsonl"
LAST_SECONDS = 30.0  # timeout of a tracker at the end of a run
STOPPED_SECONDS = 5.0  # the same after a signal, before the sender kills the process


class Tracker(Protocol):
    """Receives one run, first from the thread that creates it, then from one other. May raise any exception."""

    name: str

    @property
    def place(self) -> dict[str, Any]:
        """The location of the run, as JSON."""

    def last_steps(self) -> dict[str, int]:
        """The last step of each curve, as sent by earlier processes."""

    def add_points(self, points: list[Point]) -> None:
        """Add points to the curves."""

    def describe(self, name: str, values: Mapping[str, Any]) -> None:
        """Add the values of a file of the run, such as its `manifest`."""

    def close(self, status: str) -> None:
        """End the run as ok, failed or interrupted. Called once, also after errors."""


class Follower:
    """Follows the run in `folder`, checking its files every `every_seconds` seconds."""

    def __init__(self, tracker: Tracker, folder: Path, every_seconds: float) -> None:
        self.tracker, self.folder = tracker, folder
        self.reason: str | None = None  # why the tracker gets no more rows
        self._every = every_seconds
        self._tail = Tail(folder / METRICS_FILE)
        self._last_steps: dict[str, int] = {}
        self._before, self._described = self._manifest(), False
        self._ending = threading.Event()
        self._status, self._summary = "ok", dict[str, Any]()
        # A daemon: a tracker that hangs does not keep the process.
        self._thread = threading.Thread(target=self._follow, name="tracking", daemon=True)
        self._thread.start()

    def end(self, status: str, summary: Mapping[str, Any]) -> None:
        """Send the remaining rows and the summary, if any, and close, within `LAST_SECONDS` or `STOPPED_SECONDS`."""
        self._status, self._summary = status, dict(summary)
        self._ending.set()
        timeout = STOPPED_SECONDS if status == "interrupted" else LAST_SECONDS
        self._thread.join(timeout)
        if self._thread.is_alive():
            self._stop(f"no answer for {timeout:g} seconds")

    def _follow(self) -> None:
        try:
            self._last_steps = self.tracker.last_steps()
            while not self._ending.wait(self._every):
                # Before the manifest of this process exists, a resumed run may still truncate its metrics.
                if self._has_manifest():
                    self._rows()
            self._has_manifest()
            self._rows()
            if self._summary:
                self.tracker.add_points(of_summary(self._summary))
        except Exception as reason:
            self._stop(_line(reason))
        self._ending.wait()
        try:
            self.tracker.close(self._status)
        except Exception as reason:
            self._stop(_line(reason))

    def _has_manifest(self) -> bool:
        """Whether the manifest of this process exists; it is sent once."""
        if not self._described and self._manifest() not in (None, self._before):
            self.tracker.describe("manifest", json.read_object(self.folder / MANIFEST_FILE))
            self._described = True
        return self._described

    def _manifest(self) -> tuple[int, int] | None:
        """Inode and modification time (ns) of the manifest, which change when it is rewritten."""
        try:
            state = (self.folder / MANIFEST_FILE).stat()
        except FileNotFoundError:
            return None
        return state.st_ino, state.st_mtime_ns

    def _rows(self) -> None:
        for points in self._tail.new():
            fresh = [point for point in points if point.step > self._last_steps.get(point.name, -1)]
            if fresh:
                self.tracker.add_points(fresh)

    def _stop(self, reason: str) -> None:
        if self.reason is None:
            self.reason = reason
            effect = "its data are incomplete; the run continues, and its files are complete"
            LOG.warning("tracking=%s has failed (%s): %s", self.tracker.name, reason, effect)


def _line(reason: Exception) -> str:
    """An exception in one line."""
    return f"{type(reason).__name__}: {(str(reason).strip().splitlines() or [''])[0]}"
