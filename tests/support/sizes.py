"""The rows of the contract with axes of length 0 and 1, as far as their type rules allow it."""

import dataclasses
import itertools
from collections.abc import Iterator

import numpy as np
from contract import Arrays, check_types, has_floats, is_differentiable
from unusual import DEPENDENT, check_gradients, check_values, random_adjoints

from runner.core.operators import Primitive, infer
from runner.errors import RunnerError, ShapeError
from runner.types import TensorType

LENGTHS = 0, 1
SHAPES = ("shape", "size", "x_shape", "input_size", "filter_size")  # attributes that are shapes of operands or results
Place = tuple[int | str, int]  # an axis of an operand, or an element of an attribute


def resized(op: Primitive, arrays: Arrays) -> Iterator[tuple[str, Primitive, Arrays]]:
    """The operator and its operands with one axis shortened, for each axis and length, with the other axes and
    attributes that have to change with it. Class and segment numbers become 0.

    Raises AssertionError when a type rule fails in another way than by ShapeError.
    """
    places = [(k, axis) for k, a in enumerate(arrays) for axis in range(a.ndim)]
    for place, length in itertools.product(places, LENGTHS):
        found = _accepted(op, arrays, place, length)
        if found:
            yield (f"axis {place[1]} of operand {place[0]} has length {length}", *found)


def _accepted(op: Primitive, arrays: Arrays, place: Place, length: int) -> tuple[Primitive, Arrays] | None:
    """The smallest change with this axis that the type rule accepts."""
    before = _length(op, arrays, place)
    if before <= length:
        return None
    equal = [p for p in _all_places(op, arrays) if p != place and _length(op, arrays, p) == before]
    for count in range(len(equal) + 1):
        for others in itertools.combinations(equal, count):
            changed = _changed(op, arrays, (place, *others), length)
            if changed:
                return changed
    return None


def _all_places(op: Primitive, arrays: Arrays) -> list[Place]:
    attributes = op.attributes()
    named: list[Place] = [(name, k) for name in SHAPES if name in attributes for k in range(len(attributes[name]))]
    return [*((k, axis) for k, a in enumerate(arrays) for axis in range(a.ndim)), *named]


def _length(op: Primitive, arrays: Arrays, place: Place) -> int:
    where, axis = place
    lengths = arrays[where].shape if isinstance(where, int) else op.attributes()[where]
    return int(lengths[axis])


def _changed(op: Primitive, arrays: Arrays, places: tuple[Place, ...], length: int) -> tuple[Primitive, Arrays] | None:
    """The operator and operands with these axes shortened; None if the type rule refuses them."""
    short = list(arrays)
    shapes: dict[str, list[int]] = {}
    for where, axis in places:
        if isinstance(where, int):
            short[where] = np.take(short[where], range(length), axis)
        else:
            shapes.setdefault(where, list(op.attributes()[where]))[axis] = length
    short = [np.zeros_like(a) if a.dtype.kind == "i" else a for a in short]
    try:
        changed = dataclasses.replace(op, **{name: tuple(shape) for name, shape in shapes.items()})
        infer(changed, tuple(map(TensorType.of, short)))
    except ShapeError:
        return None
    except RunnerError as error:
        raise AssertionError(f"{op} refuses {places} of length {length} otherwise than by ShapeError") from error
    return changed, tuple(short)


def check_sizes(op: Primitive, arrays: Arrays) -> None:
    """With axes of length 0 and 1, both modes and Float64 have the same results and gradients."""
    for label, changed, operands in resized(op, arrays):
        try:
            _check(changed, operands)
        except Exception as error:
            error.add_note(label)
            raise


def _check(op: Primitive, arrays: Arrays) -> None:
    with np.errstate(all="ignore"):  # as in every step: a shorter operand can be paired with zeros
        check_types(op, arrays)
        if op.name not in DEPENDENT:
            check_values(op, arrays, "zero")
        if has_floats(arrays) and is_differentiable(op):
            check_gradients(op, arrays, random_adjoints(op, arrays), "zero")
