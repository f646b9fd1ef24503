"""Structures of values: tuples, lists and dicts, as functions and cells take and return them."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from runner.core.values import Tensor, Value


class Leaf(NamedTuple):
    """The place of a value in the layout of a structure."""

    position: int


class Static(NamedTuple):
    """What is no value: a number, a text, None, a function. True, 1 and 1.0 differ."""

    kind: type
    value: Any


class FlatStructure(NamedTuple):
    """A structure as its values, in order, and its layout, which is comparable and hashable where its parts are."""

    values: tuple[Value, ...]
    layout: Any

    def rebuild(self, values: Sequence[Any]) -> Any:
        """The structure with other values."""
        return rebuilt(self.layout, values)


def flatten(structure: Any) -> FlatStructure:
    """The values of a structure, of which each array of numpy is one. A tuple of any class is rebuilt as a tuple."""
    values: list[Value] = []
    layout = _layout(structure, values)
    return FlatStructure(tuple(values), layout)


def values_of(structure: Any) -> tuple[Value, ...]:
    """The values of a structure, in order."""
    return flatten(structure).values


def map_values(function: Callable[[Value], Any], structure: Any) -> Any:
    """The structure with `function(value)` for each of its values."""
    flat = flatten(structure)
    return flat.rebuild([function(value) for value in flat.values])


def rebuilt(layout: Any, values: Sequence[Any]) -> Any:
    """The structure of this layout with these values."""
    if isinstance(layout, Leaf):
        return values[layout.position]
    if isinstance(layout, Static):
        return layout.value
    kind, *parts = layout
    if kind == "dict":
        return {key: rebuilt(part, values) for key, part in parts}
    elements = [rebuilt(part, values) for part in parts]
    return elements if kind == "list" else tuple(elements)


def static_parts(layout: Any) -> list[Any]:
    """What is no value in a layout."""
    if isinstance(layout, Leaf):
        return []
    if isinstance(layout, Static):
        return [layout.value]
    kind, *parts = layout
    each = [part for _, part in parts] if kind == "dict" else parts
    return [value for part in each for value in static_parts(part)]


def _layout(part: Any, values: list[Value]) -> Any:
    if isinstance(part, np.ndarray | np.generic):
        part = Tensor(part)
    if isinstance(part, Value):
        values.append(part)
        return Leaf(len(values) - 1)
    if isinstance(part, dict):
        return "dict", *[(key, _layout(each, values)) for key, each in part.items()]
    if isinstance(part, list | tuple):
        return "list" if isinstance(part, list) else "tuple", *[_layout(each, values) for each in part]
    return Static(type(part), part)
