"""Checks of the numbers that layers, optimizers and schedules are made with; `where` is the row with their owner."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from runner.common.initializer import Initializer
from runner.core.value import Tensor
from runner.errors import ConfigError, nearest

Where = Mapping[str, object]
Init = Initializer | Tensor | str | float  # what a layer takes as the initial value of a parameter


def at_least(where: Where, least: float, **arguments: object) -> None:
    """Raise ConfigError unless every argument is a finite number of at least `least`."""
    for name, value in arguments.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < least:
            raise ConfigError(f"{name} must be a number of at least {least}", **where, given=repr(value))


def above(where: Where, limit: float, **arguments: object) -> None:
    """Raise ConfigError unless every argument is a finite number above `limit`."""
    at_least(where, limit, **arguments)
    for name, value in arguments.items():
        if value == limit:
            raise ConfigError(f"{name} must be above {limit}", **where, given=repr(value))


def at_most(where: Where, most: float, **arguments: float) -> None:
    """Raise ConfigError unless every number is at most `most`."""
    for name, value in arguments.items():
        if value > most:
            raise ConfigError(f"{name} must be at most {most}", **where, given=repr(value))


def whole(where: Where, least: int, **arguments: object) -> None:
    """Raise ConfigError unless every argument is a whole number of at least `least`."""
    for name, value in arguments.items():
        if type(value) is not int or value < least:
            raise ConfigError(f"{name} must be a whole number of at least {least}", **where, given=repr(value))


def flag(where: Where, **arguments: object) -> None:
    """Raise ConfigError unless every argument is True or False."""
    for name, value in arguments.items():
        if type(value) is not bool:
            raise ConfigError(f"{name} must be True or False", **where, given=repr(value))


def one_of(where: Where, allowed: Sequence[str], **arguments: object) -> None:
    """Raise ConfigError unless every argument is one of the allowed words."""
    for name, value in arguments.items():
        if value not in allowed:
            close = nearest(str(value), allowed)
            rows = {"given": repr(value), "allowed": ", ".join(allowed), "nearest": close}
            raise ConfigError(f"{name} is not one of the choices", **where, **rows)


def number(value: Any) -> Any:
    """A plain number out of a tensor, an array or a scalar of numpy; everything else as it is."""
    return np.asarray(value).item() if hasattr(value, "__array__") and np.ndim(value) == 0 else value


def positive(cell: object, **arguments: object) -> None:
    """Raise ConfigError, with the layer's name, unless every argument is a positive int."""
    for name, value in arguments.items():
        if type(value) is not int or value < 1:
            raise ConfigError(f"{name} must be a positive int", layer=type(cell).__name__, given=repr(value))
