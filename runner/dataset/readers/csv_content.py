"""The rows of a CSV file as text, with the line of each, and the columns of a table.

Files are untrusted: file, lines, fields and columns have maximal lengths, and every error has file and line. A column
is kept as numbers and as codes of its texts, so a table needs 12 bytes for each field, however long the texts are.
"""

import csv
import math
from array import array
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import IO

import numpy as np

from runner.errors import DataError, known_names
from runner.host import files
from runner.host.machine import require_memory

MAX_FILE_BYTES = 1 << 32
MAX_LINE_BYTES = 1 << 20
MAX_COLUMNS = 10_000
MAX_CATEGORIES = 1000  # of one column
MAX_NAME = 1000  # characters
LISTED = 20  # names of columns in an error
MISSING_TEXTS = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})  # in any case
NO_TEXT = -1  # the code of a missing value
REPAIR = "correct the file"
BYTES_PER_FIELD = 12  # a float64 and a code
ROWS_PER_CHECK = 1 << 16  # the memory is checked again after so many rows


class TableColumn:
    """One column: the number of each field (NaN if it is none), and the code of its text."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.numbers = array("d")
        self.codes: array[int] = array("i")
        self.texts: dict[str, int] | None = {}  # None: more than MAX_CATEGORIES
        self.present = 0  # fields that are not missing
        self.words = 0  # of them, those that are no numbers
        self.first_word: tuple[int, str] | None = None  # row and text
        self.first_missing: int | None = None  # row

    def append(self, text: str) -> None:
        """Add a field."""
        code, number = NO_TEXT, math.nan
        if text.lower() not in MISSING_TEXTS:
            self.present += 1
            number = as_number(text)
            if number != number:
                self.words += 1
                self.first_word = self.first_word or (len(self.numbers), text)
            code = self._code(text)
        elif self.first_missing is None:
            self.first_missing = len(self.numbers)
        self.numbers.append(number)
        self.codes.append(code)

    @property
    def is_numeric(self) -> bool:
        """Whether most of the fields are numbers."""
        return self.words * 2 < self.present

    def values(self) -> np.ndarray:
        """The numbers, float64 [N]."""
        return np.array(self.numbers, np.float64)

    def text_codes(self) -> tuple[np.ndarray, list[str]]:
        """The code of each field, int64 [N], with NO_TEXT for missing ones, and the text of each code."""
        return np.array(self.codes, np.int64), list(self.texts or ())

    def _code(self, text: str) -> int:
        if self.texts is None:
            return NO_TEXT
        code = self.texts.setdefault(text, len(self.texts))
        if code == MAX_CATEGORIES:
            self.texts = None
        return code


class CsvTable:
    """Columns of a CSV file by name, with the line of each row. All rows have as many fields as the header."""

    def __init__(self, path: Path, columns: Sequence[TableColumn], lines: Sequence[int]) -> None:
        self.path, self.lines = path, lines
        self.columns = {column.name: column for column in columns}

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def target(self) -> TableColumn:
        """The last column that was selected."""
        return [*self.columns.values()][-1]

    def error(self, what: str, row: int, column: TableColumn, **rows: object) -> DataError:
        """The error for a field."""
        return DataError(what, at=f"{self.path}:{self.lines[row]}", column=column.name, **rows)

    def require_numbers(self, column: TableColumn, repair: str) -> None:
        """Raise DataError with the line of the first field that is neither missing nor a number."""
        if column.first_word is not None:
            row, text = column.first_word
            found = repr(text[:100])
            raise self.error("text in a column of numbers", row, column, found=found, repair=repair)

    def require_texts(self, column: TableColumn, repair: str) -> None:
        """Raise DataError for more than MAX_CATEGORIES different texts."""
        if column.texts is None:
            rows = {"column": column.name, "allowed": f"at most {MAX_CATEGORIES}", "repair": repair}
            raise DataError("a column has too many different texts", file=self.path, **rows)


def as_number(text: str) -> float:
    """The finite number in a text, or NaN.

    >>> as_number(" -1.5e3"), as_number("1_000"), as_number("inf")
    (-1500.0, nan, nan)
    """
    try:
        number = float(text)
    except ValueError:
        return math.nan
    return number if math.isfinite(number) and "_" not in text else math.nan


def read_header(path: Path, delimiter: str) -> list[str]:
    """The names of the columns. Raises DataError for a file without them, and for names that are empty or equal."""
    with closing(_rows(path, delimiter)) as rows:
        return _header(path, rows, delimiter)[1]


def read_table(path: Path, delimiter: str, wanted: Sequence[str]) -> CsvTable:
    """The columns with these names. Raises DataError for missing columns, ragged rows and a file without rows."""
    with closing(_rows(path, delimiter)) as rows:
        number, header = _header(path, rows, delimiter)
        for name in wanted:
            if name not in header:
                raise missing_column(path, name, header)
        columns = [(header.index(name), TableColumn(name)) for name in wanted]
        lines = array("q")
        for number, row in rows:
            if len(row) != len(header):
                expected = f"{len(header)} fields, as in the header"
                raise DataError(
                    "a row has another length", at=f"{path}:{number}", expected=expected, found=len(row), repair=REPAIR
                )
            for place, column in columns:
                column.append(row[place].strip())
            lines.append(number)
            if len(lines) % ROWS_PER_CHECK == 0:  # as much again: arrays grow, and are copied
                require_memory(BYTES_PER_FIELD * len(columns) * len(lines), file=path)
    if not lines:
        raise DataError("a table has no rows", file=path, expected="rows below the header", repair="add rows")
    return CsvTable(path, [column for _, column in columns], lines)


def missing_column(path: Path, name: str, header: Sequence[str]) -> DataError:
    """The error for a column that the file does not have."""
    shown = list(header[:LISTED])
    rows = {**known_names(name, header), "allowed": ", ".join(shown) + (", ..." if len(header) > len(shown) else "")}
    return DataError("a table lacks a column", file=path, column=name, **rows)


def _header(path: Path, rows: Iterator[tuple[int, list[str]]], delimiter: str) -> tuple[int, list[str]]:
    number, header = next(rows, (0, []))
    names = [name.strip() for name in header]
    if not names:
        raise DataError("a table is empty", file=path, expected="a line with the names of the columns")
    at = f"{path}:{number}"
    if len(names) > MAX_COLUMNS:
        raise DataError("a table has too many columns", at=at, expected=f"at most {MAX_COLUMNS}", found=len(names))
    if max(map(len, names)) > MAX_NAME:
        raise DataError("a name of a column is too long", at=at, expected=f"at most {MAX_NAME} characters")
    if "" in names:
        found = f"column {names.index('') + 1} has no name"
        raise DataError("a header has a column without a name", at=at, found=found, repair="name all columns")
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if twice is not None:
        raise DataError("a header has a name twice", at=at, column=twice, repair="rename one of the columns")
    other = next((mark for mark in ";\t|," if mark != delimiter and mark in names[0]), None)
    if len(names) == 1 and other is not None:
        repair = f"set delimiter to {other!r}"
        raise DataError(
            "a table has one column", at=at, found=f"{names[0][:100]!r}", delimiter=repr(delimiter), repair=repair
        )
    return number, names


def _rows(path: Path, delimiter: str) -> Generator[tuple[int, list[str]], None, None]:
    """The line number and the fields of every row that is not blank."""
    with files.open_regular(path, MAX_FILE_BYTES) as file:
        reader = csv.reader(_lines(file, path), delimiter=delimiter, skipinitialspace=True, strict=True)
        while True:
            line = reader.line_num + 1
            try:
                fields = next(reader, None)
            except csv.Error as reason:
                raise DataError("not a CSV file", at=f"{path}:{line}", found=str(reason)[:200], repair=REPAIR) from None
            if fields is None:
                return
            if fields and (len(fields) > 1 or fields[0].strip()):
                yield line, fields


def _lines(file: IO[bytes], path: Path) -> Iterator[str]:
    """The lines of a file in UTF-8, with their ends."""
    number = 0
    while data := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(data) > MAX_LINE_BYTES:
            expected = f"at most {MAX_LINE_BYTES} bytes"
            raise DataError("a line is too long", at=f"{path}:{number}", expected=expected, repair=REPAIR)
        try:
            text = data.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as reason:
            repair = "save the file as UTF-8"
            found = f"the byte 0x{data[reason.start]:02x}"
            raise DataError("not UTF-8 text", at=f"{path}:{number}", found=found, repair=repair) from None
        if "\0" in text:
            raise DataError("not a CSV file", at=f"{path}:{number}", found="a NUL character", repair=REPAIR)
        yield text
