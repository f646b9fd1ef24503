"""A thread that follows the files of a run and tells a tracker what is new, so that no step waits for it.

What the files say is the truth: the tracker gets every row of `metrics.jsonl` once, also after a resume, and what an
earlier process could not tell. When the tracker fails, one line says so, and the training goes on.
"""

import json
import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from runner.experiment.tracking.points import Point, Tail, of_summary

MANIFEST_FILE, METRICS_FILE = "manifest.json", "metrics.jsonl"
LAST_SECONDS = 30.0  # how long the end of a run waits for a tracker
STOPPED_SECONDS = 5.0  # the same when a signal has come: who sent it may send another one that cannot be answered

_LOG = logging.getLogger("runner")


class Tracker(Protocol):
    """Somebody who is told of one run, first by the thread that makes it, then by one other. Anything may be raised."""

    name: str

    @property
    def place(self) -> dict[str, Any]:
        """Where the run is found, as JSON."""

    def told(self) -> dict[str, int]:
        """The last step of each curve that earlier processes have told."""

    def tell(self, points: list[Point]) -> None:
        """Add points to the curves."""

    def describe(self, name: str, values: Mapping[str, Any]) -> None:
        """Add what a file of the run says, such as its `manifest`."""

    def close(self, status: str) -> None:
        """The run has ended: ok, failed or interrupted. Called once, whatever was raised before."""


class Follower:
    """Follows the run in `folder`, looking for what is new every so many seconds."""

    def __init__(self, tracker: Tracker, folder: Path, every_seconds: float) -> None:
        self.tracker, self.folder = tracker, folder
        self.reason: str | None = None  # why the tracker is told no more
        self._every = every_seconds
        self._tail = Tail(folder / METRICS_FILE)
        self._told: dict[str, int] = {}
        self._before, self._described = self._manifest(), False
        self._ending = threading.Event()
        self._status, self._summary = "ok", dict[str, Any]()
        # A daemon: a tracker that hangs does not keep the process.
        self._thread = threading.Thread(target=self._follow, name="tracking", daemon=True)
        self._thread.start()

    def end(self, status: str, summary: Mapping[str, Any]) -> None:
        """Tell the rest and the summary, if there is one, and close; it waits for so many seconds at most."""
        self._status, self._summary = status, dict(summary)
        self._ending.set()
        patience = STOPPED_SECONDS if status == "interrupted" else LAST_SECONDS
        self._thread.join(patience)
        if self._thread.is_alive():
            self._stop(f"no answer for {patience:g} seconds")

    def _follow(self) -> None:
        try:
            self._told = self.tracker.told()
            while not self._ending.wait(self._every):
                # Until the manifest of this process is there, a run that goes on may still shorten its metrics.
                if self._begun():
                    self._rows()
            self._begun()
            self._rows()
            if self._summary:
                self.tracker.tell(of_summary(self._summary))
        except Exception as reason:
            self._stop(_line(reason))
        self._ending.wait()
        try:
            self.tracker.close(self._status)
        except Exception as reason:
            self._stop(_line(reason))

    def _begun(self) -> bool:
        """Whether the manifest of this process is there; it is told once."""
        if not self._described and self._manifest() not in (None, self._before):
            self.tracker.describe("manifest", json.loads((self.folder / MANIFEST_FILE).read_bytes()))
            self._described = True
        return self._described

    def _manifest(self) -> tuple[int, int] | None:
        """What changes when the manifest is written again."""
        try:
            state = (self.folder / MANIFEST_FILE).stat()
        except FileNotFoundError:
            return None
        return state.st_ino, state.st_mtime_ns

    def _rows(self) -> None:
        for points in self._tail.new():
            fresh = [point for point in points if point.step > self._told.get(point.name, -1)]
            if fresh:
                self.tracker.tell(fresh)

    def _stop(self, reason: str) -> None:
        if self.reason is None:
            self.reason = reason
            told = "it has not been told everything; the run goes on, and its files are whole"
            _LOG.warning("tracking=%s has failed (%s): %s", self.tracker.name, reason, told)


def _line(reason: Exception) -> str:
    """An exception in one line."""
    return f"{type(reason).__name__}: {(str(reason).strip().splitlines() or [''])[0]}"
