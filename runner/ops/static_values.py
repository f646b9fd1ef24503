"""Operators whose result is known while a network is traced: shapes, types, and Python values.

They leave no node in the graph. Shapes are static, so what they return are Python values, as in the reference.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from runner import dtype as dt
from runner.core.value import Tensor, Value
from runner.errors import ShapeError
from runner.ops.array import require
from runner.ops.composition import as_value

__all__ = [
    "DType",
    "InvertPermutation",
    "IsInstance",
    "IsSubClass",
    "Rank",
    "SameTypeShape",
    "ScalarCast",
    "ScalarToArray",
    "ScalarToTensor",
    "Shape",
    "Size",
    "TupleToArray",
]

PYTHON = {"b": bool, "i": int, "u": int, "f": float}  # by kind of element type


@dataclass(frozen=True)
class Shape:
    """The lengths of the axes of a tensor, as a tuple of ints."""

    def __call__(self, x: Any) -> tuple[int, ...]:
        return as_value(x).shape


@dataclass(frozen=True)
class DType:
    """The element type of a tensor."""

    def __call__(self, x: Any) -> dt.DType:
        return as_value(x).dtype


@dataclass(frozen=True)
class Rank:
    """The number of axes of a tensor, as an int."""

    def __call__(self, x: Any) -> int:
        return as_value(x).ndim


@dataclass(frozen=True)
class Size:
    """The number of elements of a tensor, as an int."""

    def __call__(self, x: Any) -> int:
        return as_value(x).size


@dataclass(frozen=True)
class IsSubClass:
    """Whether a type is another one, or belongs to a kind of types: `dtype.tensor`, `dtype.number`, a class."""

    def __call__(self, sub_type: Any, type_: Any) -> bool:
        if isinstance(type_, type) and issubclass(type_, np.generic) and isinstance(sub_type, dt.DType):
            return issubclass(sub_type.numpy.type, type_)
        if isinstance(sub_type, type) and isinstance(type_, type):
            return issubclass(sub_type, type_)
        return sub_type is type_ or (isinstance(type_, dt.Type) and dt.issubclass_(sub_type, type_))


@dataclass(frozen=True)
class IsInstance:
    """Whether a value is of a type: a class of Python, or an element type, to which tensors and numbers belong."""

    def __call__(self, inst: Any, type_: Any) -> bool:
        if isinstance(type_, list | tuple):
            return any(self(inst, one) for one in type_)
        if isinstance(type_, dt.DType):
            return isinstance(inst, Value | bool | int | float) and as_value(inst).dtype is type_
        return isinstance(inst, type_)


@dataclass(frozen=True)
class SameTypeShape:
    """x, after a check that y has its element type and shape. Raises ShapeError when it has not."""

    def __call__(self, x: Value, y: Value) -> Value:
        require(x.type == y.type, "element type and shape must be the same", x=x.type, y=y.type)
        return x


@dataclass(frozen=True)
class ScalarCast:
    """A number converted to the Python type of an element type: int, float or bool."""

    def __call__(self, input_x: Any, input_y: Any) -> bool | int | float:
        number = input_x.asnumpy().item() if isinstance(input_x, Value) else input_x  # type: ignore[attr-defined]
        result: bool | int | float = PYTHON[dt.of(input_y).numpy.kind](number)
        return result


@dataclass(frozen=True)
class ScalarToTensor:
    """A tensor without axes of a number, Float32 by default."""

    def __call__(self, input_x: Any, dtype: dt.DType = dt.float32) -> Tensor:
        return Tensor(np.asarray(input_x, dt.of(dtype).numpy))


@dataclass(frozen=True)
class ScalarToArray:
    """A tensor without axes of a number: Float32 for a float, Int64 for an int."""

    def __call__(self, input_x: Any) -> Tensor:
        require(isinstance(input_x, bool | int | float), "needs a number", given=type(input_x).__name__)
        return Tensor(np.asarray(input_x, np.float32 if isinstance(input_x, float) else None))


@dataclass(frozen=True)
class TupleToArray:
    """A tensor of a tuple of numbers of one type: Float32 for floats, Int64 for ints."""

    def __call__(self, input_x: Any) -> Tensor:
        kinds = {type(number) for number in input_x} if isinstance(input_x, list | tuple) else set()
        if len(kinds) != 1 or not kinds <= {int, float, bool}:
            raise ShapeError("needs a tuple of numbers of one type", given=input_x, allowed="(1, 2), (0.5, 1.0)")
        return Tensor(np.asarray(input_x, np.float32 if kinds == {float} else None))


@dataclass(frozen=True)
class InvertPermutation:
    """The inverse of a permutation: a tuple of ints for a tuple of ints."""

    def __call__(self, input_x: Any) -> tuple[int, ...]:
        given = input_x.asnumpy().tolist() if isinstance(input_x, Tensor) else list(input_x)
        valid = sorted(given) == list(range(len(given)))
        require(valid, "needs each number from 0 once", given=input_x, allowed=f"0 to {len(given) - 1}, each once")
        return tuple(given.index(number) for number in range(len(given)))
