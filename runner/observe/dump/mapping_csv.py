"""`mapping.csv`: which names the files of a folder would have if names could be longer; a line `file,name` for each."""

import csv
import io
from collections.abc import Mapping
from pathlib import Path

from runner.errors import DataError
from runner.host.files import read_bytes, write_whole

FILE = "mapping.csv"
LIMIT = 1 << 28  # bytes


def read(folder: Path) -> dict[str, str]:
    """Files and the names that they stand for; none without a `mapping.csv`. Raises DataError when it is damaged."""
    path = folder / FILE
    if not path.exists():
        return {}
    try:
        rows = list(csv.reader(io.StringIO(read_bytes(path, LIMIT).decode(), newline="")))
    except (UnicodeDecodeError, csv.Error) as reason:
        raise DataError("a mapping of names is damaged", file=path, reason=reason) from None
    names = {row[0]: row[1] for row in rows if len(row) == 2}
    for name in names.values():
        if "/" in name or "\0" in name:
            raise DataError("a mapping gives a name that no file can have", file=path, found=ascii(name))
    return names


def add(folder: Path, names: Mapping[str, str]) -> None:
    """Add files to those that are there. Raises StorageError, and DataError when what is there is damaged."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows((read(folder) | dict(names)).items())
    write_whole(folder / FILE, [text.getvalue().encode()])
