"""A table in CSV as a dataset: one column is the target, the others are encoded as numbers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self, get_args

import numpy as np

from runner import register
from runner.dataset.column import Column
from runner.dataset.order import SourceOrder
from runner.dataset.pipeline import Dataset
from runner.dataset.preprocessing import Preprocessing
from runner.dataset.readers.arguments import (
    MAX_SEED,
    Fraction,
    Seed,
    Split,
    Task,
    checked_split,
    data_path,
    fraction,
    one_way_to_split,
    require_files,
)
from runner.dataset.readers.csv_columns import (
    CategoryEncoder,
    Encoder,
    NumberEncoder,
    class_names_of,
    class_numbers,
    require_targets,
    stored_encoder,
    target_numbers,
)
from runner.dataset.readers.csv_content import CsvTable, missing_column, read_header, read_table
from runner.dataset.readers.rows import in_test_split
from runner.errors import ConfigError, DataError
from runner.host.json import StoredValues
from runner.host.machine import require_memory
from runner.validation.arguments import as_list, one_of, whole_number

__all__ = ["TablePreprocessing", "csv_table"]

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
        """The encoders, the delimiter and the names of the classes."""
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
