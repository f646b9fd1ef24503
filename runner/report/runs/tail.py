"""The end of `metrics.jsonl`, also of a run that is writing it: new events, or the last ones of a long file."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from runner.errors import DataError, StorageError
from runner.host.files import open_regular
from runner.report.record import event_of

LAST_BYTES = 64 << 10  # hundreds of events


class MetricsTail:
    """The events at the end of a file of a run, at most `most` bytes, and then those that are appended.

    A file that became shorter, since a resumed run has cut it, is read from its new end on.
    """

    def __init__(self, path: Path, most: int) -> None:
        self.path, self.most = path, most
        self._offset = 0

    def new_events(self) -> list[dict[str, Any]]:
        """The events of whole lines that were appended since the last call; of more than `most` bytes, the last ones.

        [] for a file that is missing or cannot be read.
        """
        try:
            with open_regular(self.path, 1 << 62) as file:
                content = self._read(file, os.fstat(file.fileno()).st_size)
        except (DataError, StorageError):
            return []
        return list(_events(content))

    def _read(self, file: IO[bytes], size: int) -> bytes:
        """The new whole lines."""
        start = min(size, self._offset)
        skipped = max(0, size - start - self.most)
        file.seek(start + skipped)
        content = file.read(size - start - skipped)
        end = content.rfind(b"\n") + 1
        self._offset = start + skipped + end
        return content[:end].partition(b"\n")[2] if skipped else content[:end]


def last_events(path: Path) -> list[dict[str, Any]]:
    """The events of the last LAST_BYTES of a file; [] for a file that is missing or cannot be read."""
    return MetricsTail(path, LAST_BYTES).new_events()


def _events(content: bytes) -> Iterator[dict[str, Any]]:
    for line in content.split(b"\n"):
        if line and (event := event_of(line)) is not None:
            yield event
