"""`x[key] = value`: a value with other elements at the positions that an index selects."""

import math
from typing import Any

import numpy as np

from runner import dtype as dt
from runner.core.operators import current, is_nested
from runner.core.source import user_line
from runner.core.values import OPERATORS, Parameter, Value, as_constant
from runner.errors import ConfigError
from runner.ops.array import Cast, Reshape
from runner.ops.index import Item, as_items
from runner.types import Shape


def assign(x: Value, key: object, value: Any) -> None:
    """Give the elements that an index selects another value: `assigned`, for which x stands from then on.

    Gradients pass through it in both modes. Raises ConfigError for a parameter inside of a network.
    """
    if not isinstance(x, Parameter):
        current().rebind(x, assigned(x, key, value))
        return
    if is_nested():
        what = "a network does not change elements of a parameter"
        repair = "a new value of the whole parameter: ops.TensorScatterUpdate, then self.assign(parameter, value)"
        raise ConfigError(what, parameter=x.name, line=user_line(current().source()), repair=repair)
    x.set_data(assigned(x, key, value))


def assigned(x: Value, key: object, value: Any) -> Value:
    """x with `value`, broadcast and cast to its element type, in place of what `x[key]` selects.

    A condition that only a running graph knows takes a single value. Where an index repeats a position, one of the
    values remains. Raises ShapeError for indices as in `x[key]`, and when the value does not fit.
    """
    operator = OPERATORS["class"]
    given = value if isinstance(value, Value) else as_constant(value, x)
    given = given if given.dtype is x.dtype else Cast(x.dtype)(given)
    if isinstance(key, Value) and key.dtype is dt.bool_ and key.shape == x.shape[: key.ndim] and given.size == 1:
        condition = Reshape((*key.shape, *(1,) * (x.ndim - key.ndim)))(key)
        chosen: Value = operator("Select")()(condition, Reshape(())(given), x)
        return chosen
    items, lead = _leading(as_items(key, x), x.shape)
    rows = math.prod(x.shape[:lead])
    positions = _positions(np.arange(rows).reshape(x.shape[:lead]), items)
    block = x.shape[lead:]
    updates = operator("BroadcastTo")((*positions.shape, *block))(
        _without_leading_ones(given, positions.ndim + len(block))
    )
    flat = operator("TensorScatterUpdate")()(
        Reshape((rows, *block))(x), Reshape((-1, 1))(positions), Reshape((positions.size, *block))(updates)
    )
    result: Value = Reshape(x.shape)(flat)
    return result


def _leading(items: list[Item], shape: Shape) -> tuple[list[Item], int]:
    """The items without the slices at the end that take whole axes, and the number of axes that the others are for."""
    axes = len(shape)
    while items and isinstance(items[-1], slice) and items[-1].indices(shape[axes - 1]) == (0, shape[axes - 1], 1):
        items, axes = items[:-1], axes - 1
    return items, axes


def _positions(places: np.ndarray, items: list[Item]) -> Any:
    """The row numbers that the items select: an array, or a value if they include one."""
    if any(isinstance(item, Value) for item in items):
        return OPERATORS["Subscript"](as_constant(places, None), tuple(items))
    known: Any = tuple(items)
    return np.asarray(places[known])


def _without_leading_ones(value: Value, ndim: int) -> Value:
    """The value without axes of length 1 that are more than it may have, as numpy allows."""
    extra = value.ndim - ndim
    return Reshape(value.shape[extra:])(value) if extra > 0 and set(value.shape[:extra]) == {1} else value


OPERATORS["assign"], OPERATORS["assigned"] = assign, assigned
