"""Checks of what a caller passes: each says the argument, the value, what is allowed and the nearest valid name."""

import math
import numbers
from collections.abc import Collection

from runner.errors import ConfigError, nearest

MOST_WORKERS = 64


def whole(argument: str, value: object, low: int, high: int | None = None) -> int:
    """A whole number between two bounds, both included.

    >>> whole("batch_size", 32, 1)
    32
    """
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        number = int(value)
        if low <= number and (high is None or number <= high):
            return number
    allowed = f"a whole number of at least {low}" if high is None else f"a whole number from {low} to {high}"
    raise ConfigError("not a number that can be used here", argument=argument, value=repr(value), allowed=allowed)


def finite(argument: str, value: object) -> float:
    """A number that is neither infinite nor NaN."""
    if isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
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


def workers(value: object) -> int | None:
    """`num_parallel_workers`: 1 to 64, or None where the caller leaves it to others."""
    return None if value is None else whole("num_parallel_workers", value, 1, MOST_WORKERS)
