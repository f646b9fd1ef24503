"""How the fields of a column of a CSV file become values. Each reader has its own policy:

`most_are_numbers`  `dataset=csv`     numbers if most of the fields that are present are; some texts are a missing value
`by_default`        `ds.CSVDataset`   the type of the column's default, which stands for empty fields
`by_all`            `CsvToMR`         the narrowest type that all fields have; text has every field
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from runner.errors import ConfigError

MISSING_TEXTS = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})  # of `dataset=csv`, in any case
FLAGS = {"True": 1, "TRUE": 1, "true": 1, "False": 0, "FALSE": 0, "false": 0}  # of `CsvToMR`
INT64 = range(-(1 << 63), 1 << 63)


def as_number(text: str) -> float:
    """The finite number in a text, or NaN: a field of `dataset=csv`.

    >>> as_number(" -1.5e3"), as_number("1_000"), as_number("inf")
    (-1500.0, nan, nan)
    """
    try:
        number = float(text)
    except ValueError:
        return math.nan
    return number if math.isfinite(number) and "_" not in text else math.nan


def most_are_numbers(present: int, words: int) -> bool:
    """The policy of `dataset=csv`: whether a column is one of numbers, in which a word is an error.

    `present` is the number of fields that are not MISSING_TEXTS, `words` that of them which are no numbers.
    """
    return words * 2 < present


def by_default(default: int | float | str) -> Callable[[str], Any]:
    """The policy of `ds.CSVDataset`: what makes the value of a field, Int32, Float32 or bytes, as the default is.

    Raises ConfigError for another default; what it returns raises ValueError or OverflowError for what is no number.

    >>> as_value = by_default(7)
    >>> int(as_value("3")), int(as_value(""))
    (3, 7)
    """
    kinds: dict[type, Callable[[Any], Any]] = {int: np.int32, float: np.float32, str: str.encode}
    if type(default) not in kinds:
        raise ConfigError("not a default", argument="column_defaults", value=default, allowed="an int, float or str")
    kind = kinds[type(default)]
    return lambda text: kind(text or default)


def by_all(texts: Sequence[str]) -> tuple[str, list[Any]]:
    """The policy of `CsvToMR`: the type of a column in MindRecord, and its values in it.

    int32 for True and False, int64, float64 (an empty field is NaN), or else string.

    >>> by_all(["1", "2"]), by_all(["1", ".5"]), by_all(["1", "x"])
    (('int64', [1, 2]), ('float64', [1.0, 0.5]), ('string', ['1', 'x']))
    """
    if all(text in FLAGS for text in texts):
        return "int32", [FLAGS[text] for text in texts]
    whole = _converted(texts, int)
    if whole is not None and all(value in INT64 for value in whole):
        return "int64", whole
    numbers = _converted([text.strip() or "nan" for text in texts], float)
    return ("string", list(texts)) if numbers is None else ("float64", numbers)


def _converted(texts: Sequence[str], kind: Callable[[str], Any]) -> list[Any] | None:
    try:
        return None if any("_" in text for text in texts) else [kind(text) for text in texts]
    except ValueError:
        return None
