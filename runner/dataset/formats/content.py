"""The bytes of a data file, plain or gzip, taken in amounts that the reader knows beforehand.

A file is data, never a program: nothing is unpickled, no size that a file claims is believed before the bytes are
there, and a file that is not exactly what its name says is refused with a DataError.
"""

import zlib
from pathlib import Path

from runner.errors import DataError

LARGEST = 1 << 30  # no data file read here comes near; a larger one is not what its name says
LISTED = 6  # names that an error lists
GZIP_FRAME = 31  # zlib's window bits that ask for gzip's header, checksum and length


class Content:
    """What is inside a file. `path` names it in errors; `repair` says there what its user can do."""

    def __init__(self, path: Path, stored: bytes, repair: str) -> None:
        self.path = path
        self.repair = repair
        self._stored = memoryview(stored)
        self._inflate = zlib.decompressobj(GZIP_FRAME) if path.suffix == ".gz" else None

    @classmethod
    def of_file(cls, path: Path, repair: str) -> "Content":
        """The content of a file on disk. Raises DataError when it cannot be read or is impossibly large."""
        try:
            size = path.stat().st_size
            if size > LARGEST:
                raise damaged(path, f"at most {LARGEST} bytes", f"{size} bytes", repair)
            return cls(path, path.read_bytes(), repair)
        except OSError as reason:
            raise DataError("cannot read a data file", file=path, found=reason.strerror, repair=repair) from reason

    def take(self, most: int) -> bytes | memoryview:
        """The next bytes, at most so many; fewer only when the content ends."""
        if self._inflate is None or most == 0:
            taken, self._stored = self._stored[:most], self._stored[most:]
            return taken
        try:
            inflated = self._inflate.decompress(self._stored, most)
        except zlib.error as reason:
            raise self.refuse("a whole gzip file", f"a damaged one ({reason})") from None
        self._stored = memoryview(self._inflate.unconsumed_tail)
        return inflated

    def rest(self) -> bytes | memoryview:
        """All that is left, checked as by `end`. Raises DataError when that is impossibly large."""
        taken = self.take(LARGEST)
        self.end(f"at most {LARGEST} bytes")
        return taken

    def end(self, expected: str) -> None:
        """Raises DataError unless everything was taken and, for gzip, length and checksum are right."""
        if len(self.take(1)):
            raise self.refuse(expected, "more data after that")
        if self._inflate is None:
            return
        if not self._inflate.eof:
            raise self.refuse("a whole gzip file", "one that is cut off")
        if self._inflate.unused_data:
            raise self.refuse(expected, f"{len(self._inflate.unused_data)} more bytes after the end of the gzip data")

    def refuse(self, expected: str, found: str) -> DataError:
        """The error for this content."""
        return damaged(self.path, expected, found, self.repair)


def damaged(path: Path, expected: str, found: str, repair: str) -> DataError:
    """The error for a file that is not what it should be."""
    return DataError("a data file is not what its name says", file=path, expected=expected, found=found, repair=repair)


def missing(folder: Path, expected: str, repair: str) -> DataError:
    """The error for files that are not there; says what is there instead."""
    try:
        names = sorted(path.name for path in folder.iterdir())
        found = ", ".join(names[:LISTED]) + (", ..." if len(names) > LISTED else "") if names else "an empty folder"
    except OSError as reason:
        found = reason.strerror or str(reason)
    rows = {"below": None if folder.is_absolute() else Path.cwd(), "expected": expected, "found": found}
    return DataError("a data file is missing", folder=folder, **rows, repair=repair)


def stored_as(folder: Path, name: str) -> Path | None:
    """The file of that name, or else its gzip form, if there is one. Raises DataError for a folder closed to us."""
    try:
        return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)
    except OSError as reason:
        raise DataError("cannot read a data folder", folder=folder, found=reason.strerror) from reason
