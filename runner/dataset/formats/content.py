"""The content of a data file, plain or gzip, read in amounts that the caller knows in advance.

Files are untrusted: nothing is unpickled, no size in a file is used before the bytes are present, and a file that
differs from its format is rejected with a DataError.
"""

import zlib
from pathlib import Path

from runner.errors import DataError

MAX_BYTES = 1 << 30  # far above the size of any supported data file
LISTED = 6  # file names in an error
GZIP_FRAME = 31  # zlib's window bits for gzip's header, checksum and length


class Content:
    """The uncompressed content of a file. Errors contain its `path` and how to `repair` it."""

    def __init__(self, path: Path, stored: bytes, repair: str) -> None:
        self.path = path
        self.repair = repair
        self._stored = memoryview(stored)
        self._inflate = zlib.decompressobj(GZIP_FRAME) if path.suffix == ".gz" else None

    @classmethod
    def of_file(cls, path: Path, repair: str) -> "Content":
        """The content of a file on disk. Raises DataError when it cannot be read or is too large."""
        try:
            size = path.stat().st_size
            if size > MAX_BYTES:
                raise damaged(path, f"at most {MAX_BYTES} bytes", f"{size} bytes", repair)
            return cls(path, path.read_bytes(), repair)
        except OSError as reason:
            raise DataError("cannot read a data file", file=path, found=reason.strerror, repair=repair) from reason

    def take(self, most: int) -> bytes | memoryview:
        """The next bytes, at most `most`; fewer only at the end of the content."""
        if self._inflate is None or most == 0:
            part, self._stored = self._stored[:most], self._stored[most:]
            return part
        try:
            inflated = self._inflate.decompress(self._stored, most)
        except zlib.error as reason:
            raise self.error("a complete gzip file", f"a damaged one ({reason})") from None
        self._stored = memoryview(self._inflate.unconsumed_tail)
        return inflated

    def rest(self) -> bytes | memoryview:
        """The remaining content, checked as by `end`. Raises DataError when it is too large."""
        content = self.take(MAX_BYTES)
        self.end(f"at most {MAX_BYTES} bytes")
        return content

    def end(self, expected: str) -> None:
        """Raise DataError unless all content was read and, for gzip, length and checksum are right."""
        if len(self.take(1)):
            raise self.error(expected, "additional data at the end")
        if self._inflate is None:
            return
        if not self._inflate.eof:
            raise self.error("a complete gzip file", "a truncated one")
        if self._inflate.unused_data:
            raise self.error(expected, f"{len(self._inflate.unused_data)} additional bytes after the gzip data")

    def error(self, expected: str, found: str) -> DataError:
        """The error for content that is not as expected."""
        return damaged(self.path, expected, found, self.repair)


def damaged(path: Path, expected: str, found: str, repair: str) -> DataError:
    """The error for a file that differs from its format."""
    return DataError("a data file is not as expected", file=path, expected=expected, found=found, repair=repair)


def missing(folder: Path, expected: str, repair: str) -> DataError:
    """The error for missing files, with the names of those in the folder."""
    try:
        names = sorted(path.name for path in folder.iterdir())
        found = ", ".join(names[:LISTED]) + (", ..." if len(names) > LISTED else "") if names else "an empty folder"
    except OSError as reason:
        found = reason.strerror or str(reason)
    rows = {"below": None if folder.is_absolute() else Path.cwd(), "expected": expected, "found": found}
    return DataError("a data file is missing", folder=folder, **rows, repair=repair)


def stored_as(folder: Path, name: str) -> Path | None:
    """The path of a file or, failing that, of its gzip form; None without both. Raises DataError without permission."""
    try:
        return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)
    except OSError as reason:
        raise DataError("cannot read a data folder", folder=folder, found=reason.strerror) from reason
