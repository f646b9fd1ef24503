"""`mapping.csv`: the full names of files whose names were too long for the file system; rows `file,name`."""

import csv
import io
from collections.abc import Mapping
from pathlib import Path

from runner.errors import DataError
from runner.host.console import csv_text
from runner.host.files import read_bytes, write_whole

FILE = "mapping.csv"
LIMIT = 1 << 28  # bytes


def read(folder: Path) -> dict[str, str]:
    """Full names by file; empty without a `mapping.csv`. Raises DataError if it is damaged."""
    path = folder / FILE
    if not path.exists():
        return {}
    try:
        rows = list(csv.reader(io.StringIO(read_bytes(path, LIMIT).decode(), newline="")))
    except (UnicodeDecodeError, csv.Error) as reason:
        raise DataError("a mapping of file names is damaged", file=path, reason=reason) from None
    names = {row[0]: row[1] for row in rows if len(row) == 2}
    for name in names.values():
        if "/" in name or "\0" in name:
            raise DataError("a mapping has an invalid file name", file=path, found=ascii(name))
    return names


def add(folder: Path, names: Mapping[str, str]) -> None:
    """Add rows to those that exist. Raises StorageError, and DataError if the existing file is damaged."""
    write_whole(folder / FILE, [csv_text((read(folder) | dict(names)).items()).encode()])
