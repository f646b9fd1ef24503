"""Checks of what a caller passes: each says the argument, the value, what is allowed and the nearest valid name."""

from collections.abc import Collection, Iterable

import numpy as np

from runner.errors import ConfigError, nearest

MOST_WORKERS = 64
LARGEST_FLOAT = 3.4e38  # of float32, in which values are computed


def whole(argument: str, value: object, low: int, high: int | None = None) -> int:
    """A whole number between two bounds, both included.

    >>> whole("batch_size", 32, 1)
    32
    """
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        number = int(value)
        if low <= number and (high is None or number <= high):
            return number
    allowed = f"a whole number of at least {low}" if high is None else f"a whole number from {low} to {high}"
    raise ConfigError("not a number that can be used here", argument=argument, value=repr(value), allowed=allowed)


def finite(argument: str, value: object) -> float:
    """A number that float32 can hold: neither infinite nor NaN."""
    if isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool):
        number: float = value if isinstance(value, int) else float(value)
        if abs(number) <= LARGEST_FLOAT:
            return float(number)
    raise ConfigError("not a finite number", argument=argument, value=repr(value), allowed="a finite number")


def flag(argument: str, value: object) -> bool:
    """True or False, and nothing that merely looks like one of them."""
    if isinstance(value, bool):
        return value
    raise ConfigError("neither true nor false", argument=argument, value=repr(value), allowed="True or False")


def one_of(argument: str, value: object, names: Collection[str]) -> str:
    """One of the given names."""
    if isinstance(value, str) and value in names:
        return value
    raise ConfigError(
        f"{argument} has no such choice",
        argument=argument,
        value=repr(value),
        allowed=", ".join(names),
        nearest=nearest(str(value), names),
    )


def several(value: object) -> list[object]:
    """The values of a sequence; a single value is one of them.

    >>> several((2, 3)), several(2)
    ([2, 3], [2])
    """
    return list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]


def workers(value: object) -> int | None:
    """`num_parallel_workers`: 1 to 64, or None where the caller leaves it to others."""
    return None if value is None else whole("num_parallel_workers", value, 1, MOST_WORKERS)
