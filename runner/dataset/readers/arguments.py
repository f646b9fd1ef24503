"""Checks of the arguments that the readers share. Each raises ConfigError with the argument, its value and a repair."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, get_args

from runner.errors import ConfigError
from runner.validation.arguments import finite_number, one_of
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
