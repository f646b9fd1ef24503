"""Which rows of a user's data are in the training and in the test split, and the arguments that all readers have.

Checks raise ConfigError with the argument, its value and a repair. `in_test_split` divides rows that have no test split
of their own, by class; `used_rows` takes some of a split.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, get_args

import numpy as np

from runner.errors import ConfigError
from runner.validation.arguments import finite_number, one_of, whole_number
from runner.validation.paths import ALLOWED, path_problem
from runner.validation.rules import Rule

MAX_SEED = 2**32 - 1  # of numpy's RandomState
Split = Literal["train", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
Task = Literal["auto", "classification", "regression"]
Fraction = Annotated[float | None, Rule(above=0, below=1)]
Seed = Annotated[int, Rule(low=0, high=MAX_SEED)]


def checked_split(split: str) -> str:
    """The name of a split."""
    one_of({}, SPLITS, split=split)
    return split


def data_path(name: str, value: Path | str | None, meaning: str) -> Path:
    """A path that is required, `~` expanded; `meaning` says of what."""
    if not isinstance(value, str | Path) or not str(value):
        raise ConfigError(f"{name} is missing", argument=name, allowed=meaning, repair=f"set {name}")
    if problem := path_problem(str(value)):
        raise ConfigError(problem, argument=name, value=repr(str(value)), allowed=ALLOWED)
    return Path(value).expanduser()


def require_files(paths: Sequence[Path]) -> None:
    """At least one file to read."""
    if not paths:
        raise ConfigError("no files", argument="paths", repair="name the files to read")


def fraction(value: float | None) -> float:
    """The part of the rows in the test split."""
    number = finite_number("test_fraction", value)
    if not 0.0 < number < 1.0:
        raise ConfigError("not a part of the data", argument="test_fraction", value=value, allowed="above 0, below 1")
    return number


def one_way_to_split(fixed: bool, test_fraction: float | None, ways: str, fixed_by: str) -> None:
    """Either the files are already divided, or `test_fraction` divides the rows."""
    if fixed and test_fraction is not None:
        repair = f"omit test_fraction, or {fixed_by}"
        rows = {"argument": "test_fraction", "value": test_fraction, "repair": repair}
        raise ConfigError("the data already have a test split", **rows)
    if not fixed and test_fraction is None:
        repair = f"set test_fraction, for example 0.2, or {ways}"
        raise ConfigError("the data have no test split", argument="test_fraction", value=None, repair=repair)


# Rows of undivided data. Both functions depend on the rows' number, on the classes and on a seed of their own, not on
# the seed of the run: all runs on some data have the same test split. `RandomState` is used because its stream never
# changes.


def in_test_split(classes: np.ndarray, fraction: float, seed: int) -> np.ndarray:
    """True for the rows of the test split, [N]: `fraction` of the rows of each class, rounded so that the sum is right.

    `classes` has the class of each row; equal numbers for data without classes. A class has rows in both splits, one
    of a single row only in the training split.
    """
    is_test = np.zeros(len(classes), np.bool_)
    numbers, sizes = np.unique(classes, return_counts=True)
    by_class = np.split(np.argsort(classes, kind="stable"), np.cumsum(sizes)[:-1])
    for number, rows, count in zip(numbers, by_class, _test_counts(sizes, fraction), strict=True):
        drawn = np.random.RandomState([seed, int(number)]).permutation(len(rows))[:count]
        is_test[rows[drawn]] = True
    return is_test


def _test_counts(sizes: np.ndarray, fraction: float) -> np.ndarray:
    """How many rows of each class are in the test split: the largest remainders are rounded up."""
    exact = sizes * fraction
    counts = np.floor(exact).astype(np.int64)
    left = int(exact.sum() + 0.5) - int(counts.sum())
    counts[np.argsort(counts - exact, kind="stable")[:left]] += 1
    limited: np.ndarray = np.minimum(np.maximum(counts, 1), sizes - 1)
    return limited


def used_rows(rows: np.ndarray, num_samples: int | None, seed: int) -> np.ndarray:
    """At most `num_samples` of the rows, drawn at random, in their order; None: all. Raises ConfigError below 1."""
    if num_samples is None or whole_number("num_samples", num_samples, 1) >= len(rows):
        return rows
    return np.sort(np.random.RandomState([seed, len(rows)]).permutation(rows)[:num_samples])
