"""Append-only files, whose records survive a kill of the process that writes them."""

import json
import os
import stat
from pathlib import Path
from typing import Any

from runner.errors import StorageError
from runner.host.files import storage_errors


class Journal:
    """An append-only file of JSON lines or binary records.

    Each record is one write to the operating system; `sync` (and `close`) puts it on the disk. After a kill the last
    record may be cut, all earlier ones are whole.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with storage_errors("cannot open a file for writing", path, "open"):
            # Without O_NONBLOCK a pipe under this name would wait for its reader.
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK, 0o666)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise StorageError("cannot open a file for writing", path=path, reason="not a regular file")
        self._file = open(handle, "ab", buffering=0)  # noqa: SIM115  it stays open as long as the run

    def append(self, row: dict[str, Any]) -> None:
        """Add one row. Raises StorageError when the disk does not take all of it."""
        self.extend(json.dumps(row, allow_nan=False).encode() + b"\n")

    def extend(self, content: bytes) -> None:
        """Add bytes. Raises StorageError when the disk does not take all of them."""
        with storage_errors("cannot append to a file", self.path, "write"):
            if self._file.write(content) != len(content):
                raise OSError("the disk took only a part")

    def size(self) -> int:
        """Bytes in the file."""
        return os.fstat(self._file.fileno()).st_size

    def cut(self, size: int) -> None:
        """Truncate to the first `size` bytes: a resumed run writes the rest again."""
        with storage_errors("cannot shorten a file", self.path, "truncate"):
            self._file.truncate(size)

    def sync(self) -> None:
        """Write all appended rows to the disk. Raises StorageError, also when the file was removed in the meantime."""
        with storage_errors("cannot sync a file to the disk", self.path, "fsync"):
            os.fsync(self._file.fileno())
            if os.fstat(self._file.fileno()).st_nlink == 0:  # the system writes into it until it is closed
                raise OSError("it was removed while it was written")

    def close(self) -> None:
        """Sync and close; closing twice is allowed."""
        if not self._file.closed:
            try:
                self.sync()
            finally:
                self._file.close()
