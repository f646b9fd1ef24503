"""The rows of a CSV file with the types that its values have, for MindRecord."""

import csv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from runner.errors import ConfigError, DataError, known_names
from runner.host import files

MAX_FILE_BYTES = 1 << 32
_FLAGS = {"True": 1, "TRUE": 1, "true": 1, "False": 0, "FALSE": 0, "false": 0}
_INT64 = range(-(1 << 63), 1 << 63)


def csv_records(path: Path, columns: Sequence[str] | None) -> tuple[dict[str, str], Iterator[dict[str, Any]]]:
    """The types of the columns by name, and the rows. The first line has the names.

    Raises DataError for a missing file and rows of another length, ConfigError for an unknown column.
    """
    if not path.is_file():
        raise DataError("a data file is missing", file=path, expected="a CSV file")
    names, lines = _lines(path)
    for name in columns or ():
        if name not in names:
            raise ConfigError("no such column", argument="columns_list", value=name, **known_names(name, names))
    kinds: dict[str, str] = {}
    values: dict[str, list[Any]] = {}
    for name in columns or names:
        place = names.index(name)
        kinds[name], values[name] = _typed([line[place] for line in lines])
    return kinds, (dict(zip(kinds, row, strict=True)) for row in zip(*values.values(), strict=True))


def _lines(path: Path) -> tuple[list[str], list[list[str]]]:
    try:
        text = files.read_bytes(path, MAX_FILE_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as reason:
        raise DataError("not UTF-8 text", file=path, found=reason) from None
    reader = csv.reader(text.splitlines())
    try:
        (_, names), *lines = [(reader.line_num, fields) for fields in reader if fields] or [(0, [])]
    except csv.Error as reason:
        raise DataError("not a CSV file", file=path, line=reader.line_num, found=reason) from None
    for number, fields in lines:
        if len(fields) != len(names):
            found = f"{len(fields)} fields in line {number}"
            raise DataError("a row with another number of fields", file=path, found=found, expected=len(names))
    if not lines:
        raise DataError("a CSV file without rows", file=path)
    return names, [fields for _, fields in lines]


def _typed(texts: Sequence[str]) -> tuple[str, list[Any]]:
    """The type of a column and its values in it."""
    if all(text in _FLAGS for text in texts):
        return "int32", [_FLAGS[text] for text in texts]
    whole = _converted(texts, int)
    if whole is not None and all(value in _INT64 for value in whole):
        return "int64", whole
    numbers = _converted([text.strip() or "nan" for text in texts], float)
    return ("string", list(texts)) if numbers is None else ("float64", numbers)


def _converted(texts: Sequence[str], kind: Callable[[str], Any]) -> list[Any] | None:
    try:
        return None if any("_" in text for text in texts) else [kind(text) for text in texts]
    except ValueError:
        return None
