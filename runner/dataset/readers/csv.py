"""A table in CSV as a dataset, `dataset=csv`: one column is the target, the others are encoded as numbers.

`read_table` reads the columns of a file; `Encoder`s, fitted to the training rows, make numbers of them; `csv_table`
opens the dataset, and `TablePreprocessing` reads new files in the same way. What is a number: `csv_types.py`.
"""

import csv
import math
from abc import ABC, abstractmethod
from array import array
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import IO, Any, NamedTuple, Self, get_args

import numpy as np

from runner import register
from runner.dataset.column import Column
from runner.dataset.order import SourceOrder
from runner.dataset.pipeline import Dataset, Preprocessing
from runner.dataset.readers.csv_types import MISSING_TEXTS, as_number, most_are_numbers
from runner.dataset.readers.split import (
    MAX_SEED,
    Fraction,
    Seed,
    Split,
    Task,
    checked_split,
    data_path,
    fraction,
    in_test_split,
    one_way_to_split,
    require_files,
)
from runner.errors import ConfigError, DataError, known_names
from runner.host import files
from runner.host.json import StoredValues
from runner.host.machine import require_memory
from runner.validation.arguments import as_list, one_of, whole_number

# The rows of a CSV file as text, with the line of each, and the columns of a table.
#
# Files are untrusted: file, lines, fields and columns have maximal lengths, and every error has file and line. A column
# is kept as numbers and as codes of its texts, so a table needs 12 bytes for each field, however long the texts are.

MAX_FILE_BYTES = 1 << 32
MAX_LINE_BYTES = 1 << 20
MAX_COLUMNS = 10_000
MAX_CATEGORIES = 1000  # of one column
MAX_NAME = 1000  # characters
LISTED = 20  # names of columns in an error
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
        return most_are_numbers(self.present, self.words)

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


# Encoders of the columns of a table: fitted to the training rows, stored as JSON, applied to any rows.

LARGEST = float(np.finfo(np.float32).max)
CONSTANT = 1e-12  # a deviation below this part of the largest value is rounding
REPAIR_WORD = "correct the field, or list the column in categorical=[...]"
REPAIR_TEXTS = "omit the column from features=[...]"


class Encoder(ABC):
    """How one column becomes `width` numbers."""

    width = 1

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def encode(self, table: CsvTable) -> np.ndarray:
        """Float32 [N, width]. Raises DataError for fields that do not fit."""

    @abstractmethod
    def as_json(self) -> dict[str, Any]:
        """Values of plain JSON."""


class NumberEncoder(Encoder):
    """`(x - mean) / deviation`; missing values are the mean, so 0."""

    def __init__(self, name: str, mean: float, deviation: float) -> None:
        super().__init__(name)
        self.mean, self.deviation = mean, deviation

    @classmethod
    def fit(cls, table: CsvTable, column: TableColumn, rows: np.ndarray) -> "NumberEncoder":
        """Mean and deviation of the rows that have a value; a constant column has the deviation 1."""
        table.require_numbers(column, REPAIR_WORD)
        values = column.values()[rows]
        values = values[~np.isnan(values)]
        if not len(values):
            repair = "omit the column from features=[...], or add values"
            raise DataError(
                "a column has no value in the training split", file=table.path, column=column.name, repair=repair
            )
        largest = float(np.abs(values).max())
        if largest > LARGEST:
            rows_ = {"column": column.name, "found": largest, "allowed": f"at most {LARGEST:.4g}"}
            raise DataError("a number is too large", file=table.path, **rows_)
        mean = math.fsum(values) / len(values)  # exact sums: the same in any order and on every machine
        deviation = math.sqrt(math.fsum((values - mean) ** 2) / len(values))
        return cls(column.name, mean, deviation if deviation > CONSTANT * largest else 1.0)

    def encode(self, table: CsvTable) -> np.ndarray:
        """Float32 [N, 1]."""
        column = table.columns[self.name]
        table.require_numbers(column, REPAIR_WORD)
        values = (column.values() - self.mean) / self.deviation
        return finite(np.where(np.isnan(values), 0.0, values), table, column)[:, np.newaxis]

    def as_json(self) -> dict[str, Any]:
        return {"kind": "number", "name": self.name, "mean": self.mean, "deviation": self.deviation}


class CategoryEncoder(Encoder):
    """One number for each category, 1 for that of the row and 0 for the others.

    A missing value is a category of its own, the last one, if the training split has one. Unknown categories, and
    missing values otherwise, are 0 everywhere.
    """

    def __init__(self, name: str, categories: Sequence[str], has_missing: bool) -> None:
        super().__init__(name)
        self.categories, self.has_missing = tuple(categories), has_missing
        self.width = len(self.categories) + has_missing

    @classmethod
    def fit(cls, table: CsvTable, column: TableColumn, rows: np.ndarray) -> "CategoryEncoder":
        """The texts of the rows, sorted."""
        table.require_texts(column, REPAIR_TEXTS)
        codes, texts = column.text_codes()
        found = set(codes[rows].tolist())
        return cls(column.name, sorted(texts[code] for code in found - {NO_TEXT}), NO_TEXT in found)

    def encode(self, table: CsvTable) -> np.ndarray:
        """Float32 [N, width]."""
        column = table.columns[self.name]
        table.require_texts(column, REPAIR_TEXTS)
        codes, texts = column.text_codes()
        known = {text: place for place, text in enumerate(self.categories)}
        nowhere = self.width  # a place that is cut off
        places = [known.get(text, nowhere) for text in texts]
        places.append(len(self.categories) if self.has_missing else nowhere)  # NO_TEXT is the last index
        encoded = np.zeros((len(codes), self.width + 1), np.float32)
        encoded[np.arange(len(codes)), np.array(places)[codes]] = 1.0
        return encoded[:, : self.width]

    def as_json(self) -> dict[str, Any]:
        """Name, categories, and whether there is one for missing values."""
        categories = list(self.categories)
        return {"kind": "category", "name": self.name, "categories": categories, "has_missing": self.has_missing}


def stored_encoder(stored: StoredValues) -> Encoder:
    """The encoder from the result of `as_json`. Raises DataError for any other values."""
    kind, name = stored.text("kind"), stored.text("name")
    if kind == "number":
        deviation = stored.number("deviation")
        stored.require(deviation > 0.0, "deviation", "a number above 0")
        return NumberEncoder(name, stored.number("mean"), deviation)
    stored.require(kind == "category", "kind", "number or category")
    encoder = CategoryEncoder(name, stored.names("categories"), stored.flag("has_missing"))
    stored.require(encoder.width > 0, "categories", "at least one text")
    return encoder


def class_names_of(table: CsvTable, column: TableColumn, rows: np.ndarray) -> tuple[str, ...]:
    """The classes of a target: the texts of the rows, sorted; as numbers where all are numbers."""
    table.require_texts(column, "set task=regression for a target of numbers")
    codes, texts = column.text_codes()
    names = [texts[code] for code in np.unique(codes[rows])]
    if all(as_number(name) == as_number(name) for name in names):
        return tuple(sorted(names, key=lambda name: (as_number(name), name)))
    return tuple(sorted(names))


def class_numbers(table: CsvTable, column: TableColumn, names: tuple[str, ...]) -> np.ndarray:
    """The number of the class of each row, Int32 [N]. Raises DataError for a class that is not in `names`."""
    table.require_texts(column, "set task=regression for a target of numbers")
    codes, texts = column.text_codes()
    numbers = {name: number for number, name in enumerate(names)}
    places = np.array([numbers.get(text, -1) for text in texts], np.int32)
    result: np.ndarray = places[codes]
    if (result < 0).any():
        row = int(np.flatnonzero(result < 0)[0])
        found = texts[codes[row]]
        shown = {**known_names(found, names), "allowed": None}
        repair = "correct the field, or add rows of the class to the training split"
        raise table.error("a class that the training split lacks", row, column, found=found, **shown, repair=repair)
    return result


def target_numbers(table: CsvTable, column: TableColumn) -> np.ndarray:
    """The target of a regression, Float32 [N, 1]."""
    table.require_numbers(column, "correct the field, or set task=classification")
    return finite(column.values(), table, column)[:, np.newaxis]


def require_targets(table: CsvTable, column: TableColumn) -> None:
    """Raise DataError for a row without a target."""
    if column.first_missing is not None:
        raise table.error(
            "a row has no target", column.first_missing, column, repair="fill in the field, or remove the row"
        )


def finite(values: np.ndarray, table: CsvTable, column: TableColumn) -> np.ndarray:
    """The values as Float32. Raises DataError for the first that is out of range."""
    outside = np.abs(values) > LARGEST
    if outside.any():
        row = int(np.flatnonzero(outside)[0])
        found = f"{column.numbers[row]:g}"
        raise table.error("a number is too large", row, column, found=found, repair="correct the field")
    return values.astype(np.float32)


# A table in CSV as a dataset: one column is the target, the others are encoded as numbers.

MAX_WIDTH = 100_000  # numbers for each row
FEATURES, TARGET = "features", "target"  # the columns of the dataset


@register.dataset("csv")
def csv_table(
    split: Split,
    *,
    data_file: Path | None = None,
    test_file: Path | None = None,
    target: str | None = None,
    features: tuple[str, ...] | None = None,
    categorical: tuple[str, ...] = (),
    task: Task = "auto",
    test_fraction: Fraction = None,
    seed: Seed = 0,
    delimiter: str = ",",
) -> Dataset:
    """A table in CSV: `features` Float32 [n], and `target` Int32 (classes) or Float32 [1].

    Raises ConfigError for arguments, DataError with file and line for files.

    Args:
        data_file: a CSV file with the names of the columns in the first line
        test_file: a CSV file with the test split
        target: the column to predict
        features: the columns to predict it from; null: all others
        categorical: columns of numbers that are categories
        task: classification or regression; auto: a target of text has classes, one of numbers is a regression
        test_fraction: part of the rows, of each class, that is the test split
        seed: of the test split
        delimiter: character between fields
    """
    path = data_path("data_file", data_file, "a CSV file")
    one_way_to_split(test_file is not None, test_fraction, "set test_file to a second file", "omit test_file")
    names = _columns(path, target, features, categorical, _checked_delimiter(delimiter))
    training = _whole_table(path, names, delimiter)
    goal = _goal(training, task, test_fraction, seed)
    preprocessing = _fitted(training, names, categorical, goal, delimiter)
    if checked_split(split) == "test" and test_file is not None:
        table = _whole_table(data_path("test_file", test_file, "a CSV file"), names, delimiter)
        return _dataset(preprocessing, table, np.arange(len(table)))
    return _dataset(preprocessing, training, goal.training if split == "train" else goal.testing)


class _Goal(NamedTuple):
    """The classes of the target (None: a regression), and the rows of the training and of the test split."""

    class_names: tuple[str, ...] | None
    training: np.ndarray
    testing: np.ndarray


def _columns(
    path: Path,
    target: str | None,
    features: Sequence[str] | None,
    categorical: Sequence[str],
    delimiter: str,
) -> tuple[str, ...]:
    """The names of the features and, last, of the target."""
    categorical = [*map(str, as_list(categorical))]
    header = read_header(path, delimiter)
    if not isinstance(target, str):
        allowed = ", ".join(header[:20])
        raise ConfigError("target is missing", argument="target", allowed=allowed, repair="name the column to predict")
    chosen = [name for name in header if name != target] if features is None else [*map(str, as_list(features))]
    for argument, names in (("target", [target]), ("features", chosen), ("categorical", categorical)):
        for name in names:
            if name not in header:
                error = missing_column(path, name, header)
                raise ConfigError(error.what, argument=argument, **error.rows)
    if not chosen or len({*chosen, target}) != len(chosen) + 1:
        rows = {"argument": "features", "value": ", ".join(chosen), "allowed": "different columns, without the target"}
        raise ConfigError("not the features of a table", **rows)
    if extra := [name for name in categorical if name not in chosen]:
        rows = {"argument": "categorical", "value": extra[0], "allowed": "columns of features"}
        raise ConfigError("a categorical column is not a feature", **rows, repair="for the target, task=classification")
    return (*chosen, target)


def _checked_delimiter(delimiter: str) -> str:
    if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '\r\n" \0' or not delimiter.isascii():
        allowed = "one character, such as , ; | or a tab"
        raise ConfigError("not a delimiter", argument="delimiter", value=repr(delimiter), allowed=allowed)
    return delimiter


def _whole_table(path: Path, names: tuple[str, ...], delimiter: str) -> CsvTable:
    table = read_table(path, delimiter, names)
    require_targets(table, table.target)
    return table


def _goal(table: CsvTable, task: str, test_fraction: float | None, seed: int) -> _Goal:
    """What is predicted, and from which rows."""
    one_of({}, get_args(Task), task=task)
    whole_number("seed", seed, 0, MAX_SEED)
    column = table.target
    everything = np.arange(len(table))
    if len(table) < 2:
        raise DataError("a table has one row", file=table.path, expected="at least two rows", repair="add rows")
    has_classes = task == "classification" or (task == "auto" and not column.is_numeric)
    names, groups = None, np.zeros(len(table), np.int32)
    if has_classes:
        names = class_names_of(table, column, everything)
        if len(names) < 2:
            rows = {"column": column.name, "found": names[0], "repair": "add rows of other classes"}
            raise DataError("a target has one class", file=table.path, **rows)
        groups = class_numbers(table, column, names)
    else:
        table.require_numbers(column, "correct the field, or set task=classification")
    if test_fraction is None:
        return _Goal(names, everything, everything)
    is_test = in_test_split(groups, fraction(test_fraction), seed)
    if not is_test.any():
        found = "one row of each class"
        raise DataError("there are too few rows for a test split", file=table.path, found=found, repair="add rows")
    return _Goal(names, np.flatnonzero(~is_test), np.flatnonzero(is_test))


def _fitted(
    table: CsvTable, names: tuple[str, ...], categorical: Sequence[str], goal: _Goal, delimiter: str
) -> "TablePreprocessing":
    encoders: list[Encoder] = []
    for name in names[:-1]:
        column = table.columns[name]
        is_number = (column.is_numeric and name not in as_list(categorical)) or not column.present
        encoders.append((NumberEncoder if is_number else CategoryEncoder).fit(table, column, goal.training))
    if (width := sum(encoder.width for encoder in encoders)) > MAX_WIDTH:
        repair = "select columns by features=[...]"
        raise DataError(
            "a row has too many numbers", file=table.path, found=width, expected=f"at most {MAX_WIDTH}", repair=repair
        )
    return TablePreprocessing(encoders, delimiter, goal.class_names)


def _dataset(preprocessing: "TablePreprocessing", table: CsvTable, rows: np.ndarray) -> Dataset:
    column, names = table.target, preprocessing.class_names
    values = target_numbers(table, column) if names is None else class_numbers(table, column, names)
    return preprocessing.dataset(preprocessing.encode(table)[rows], Column(TARGET, values[rows]))


class TablePreprocessing(Preprocessing):
    """Rows of CSV files as `features` Float32 [n], by the encoders of the training split."""

    def __init__(
        self, encoders: Sequence[Encoder], delimiter: str = ",", class_names: tuple[str, ...] | None = None
    ) -> None:
        self.encoders, self.delimiter, self.class_names = tuple(encoders), delimiter, class_names

    def encode(self, table: CsvTable) -> np.ndarray:
        """The features, Float32 [N, n]. Raises DataError for fields that do not fit."""
        width = sum(encoder.width for encoder in self.encoders)
        require_memory(2 * 4 * width * len(table), file=table.path, features=width, rows=len(table))
        return np.concatenate([encoder.encode(table) for encoder in self.encoders], axis=1)

    def dataset(self, features: np.ndarray, *more: Column) -> Dataset:
        """The dataset of encoded rows and of other columns."""
        data = Dataset([Column(FEATURES, features), *more], SourceOrder(len(features)))
        data.class_names, data.preprocessing = self.class_names, self
        return data

    def read(self, paths: Sequence[Path]) -> Dataset:
        """The rows of CSV files with these columns, in any order, with or without others: column `features`."""
        require_files(paths)
        tables = [read_table(path, self.delimiter, [encoder.name for encoder in self.encoders]) for path in paths]
        data = self.dataset(np.concatenate([self.encode(table) for table in tables]))
        data.row_names = [f"{table.path}:{line}" for table in tables for line in table.lines]
        return data

    def as_json(self) -> dict[str, Any]:
        names = None if self.class_names is None else list(self.class_names)
        features = [encoder.as_json() for encoder in self.encoders]
        return {"reader": "csv", "delimiter": self.delimiter, "features": features, "class_names": names}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """The preprocessing from the result of `as_json`. Raises DataError for any other values."""
        stored = StoredValues(values)
        encoders = [stored_encoder(one) for one in stored.groups("features")]
        stored.require(len({one.name for one in encoders}) == len(encoders), "features", "different columns")
        delimiter = stored.text("delimiter")
        stored.require(len(delimiter) == 1 and delimiter.isascii(), "delimiter", "one character")
        return cls(encoders, delimiter, stored.optional_names("class_names"))
