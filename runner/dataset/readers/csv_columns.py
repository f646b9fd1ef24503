"""Encoders of the columns of a table: fitted to the training rows, stored as JSON, applied to any rows."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from runner.dataset.readers.csv_content import NO_TEXT, CsvTable, TableColumn, as_number
from runner.errors import DataError, known_names
from runner.host.json import StoredValues

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
        """Name, mean and deviation."""
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
