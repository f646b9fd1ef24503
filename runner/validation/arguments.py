"""Checks of the arguments of layers, optimizers, schedules, callbacks, datasets and `Model`.

Each raises ConfigError with the name of the argument, its value and the allowed values; `where` is a row that names the
owner, such as `{"layer": "Dense"}`, or empty.
"""

import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np

from runner.errors import ConfigError, nearest
from runner.validation.rules import LARGEST_FLOAT32

Where = Mapping[str, object]


def at_least(where: Where, least: float, /, **arguments: object) -> None:
    """Every argument is a finite number of at least `least`."""
    _require(where, arguments, f"a number of at least {least}", lambda x: _is_finite(x) and x >= least)


def above(where: Where, limit: float, /, **arguments: object) -> None:
    """Every argument is a finite number above `limit`."""
    _require(where, arguments, f"a number above {limit}", lambda x: _is_finite(x) and x > limit)


def at_most(where: Where, most: float, /, **arguments: float) -> None:
    """Every argument, a number already, is at most `most`."""
    _require(where, arguments, f"at most {most}", lambda x: x <= most)


def whole(where: Where, least: int, most: int | None = None, /, **arguments: object) -> None:
    """Every argument is a Python int from `least` to `most`, both included."""
    allowed = f"a whole number of at least {least}" if most is None else f"a whole number from {least} to {most}"

    def accepts(value: Any) -> bool:
        return type(value) is int and least <= value and (most is None or value <= most)

    _require(where, arguments, allowed, accepts)


def flag(where: Where, /, **arguments: object) -> None:
    """Every argument is True or False."""
    _require(where, arguments, "True or False", lambda x: type(x) is bool)


def one_of(where: Where, choices: Collection[str], /, **arguments: object) -> None:
    """Every argument is one of the choices."""
    for name, value in arguments.items():
        if not isinstance(value, str) or value not in choices:
            rows = {"given": repr(value), "allowed": ", ".join(choices), "nearest": nearest(str(value), choices)}
            raise ConfigError(f"{name} is not one of the choices", **where, **rows)


def whole_number(name: str, value: object, least: int, most: int | None = None) -> int:
    """An int from `least` to `most`, both included; numpy integers are converted to Python.

    >>> whole_number("batch_size", np.int64(32), 1)
    32
    """
    number = int(value) if isinstance(value, np.integer) else value
    whole({}, least, most, **{name: number})
    assert isinstance(number, int)
    return number


def finite_number(name: str, value: object) -> float:
    """A finite float in the range of float32; numpy scalars are converted to Python."""
    number: Any = value.item() if isinstance(value, np.integer | np.floating) else value
    _require({}, {name: number}, "a finite number", lambda x: _is_finite(x) and abs(x) <= LARGEST_FLOAT32)
    return float(number)


def scalar(value: Any) -> Any:
    """The Python number in a scalar tensor, array or numpy scalar; other values unchanged."""
    return np.asarray(value).item() if hasattr(value, "__array__") and np.ndim(value) == 0 else value


def as_list(value: object) -> list[object]:
    """The values of an iterable; a list of one for a single value or a str.

    >>> as_list((2, 3)), as_list(2)
    ([2, 3], [2])
    """
    return list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]


def _require(
    where: Where,
    arguments: Mapping[str, object],
    allowed: str,
    accepts: Callable[[Any], bool],
) -> None:
    for name, value in arguments.items():
        if not accepts(value):
            raise ConfigError(f"{name} must be {allowed}", **where, given=repr(value))


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
