"""`x[key]` and numpy's functions of a value: what Python's syntax means in operators."""

from types import EllipsisType
from typing import Any

import numpy as np

from runner.core.primitive import current, is_nested
from runner.core.source import user_line
from runner.core.value import OPERATORS, Tensor, Value
from runner.errors import ConfigError, RunnerError, ShapeError
from runner.ops.array import Reshape

# numpy's names of the operators that Python's syntax has: `array * tensor` calls numpy first.
ARITHMETIC = {
    "add": "Add",
    "subtract": "Sub",
    "multiply": "Mul",
    "divide": "RealDiv",
    "power": "Pow",
    "matmul": "MatMul",
    "equal": "Equal",
    "not_equal": "NotEqual",
    "less": "Less",
    "less_equal": "LessEqual",
    "greater": "Greater",
    "greater_equal": "GreaterEqual",
}


def subscript(x: Value, key: object) -> Value:
    """The part of x that an index of ints, slices with positive steps, `...` and None selects, as in numpy.

    Raises ShapeError for other indices, for one out of range, and when nothing is selected.
    """
    try:
        items = _items(key, x)
    except RunnerError as error:
        raise _located(error, x) from None
    taken = zip([item for item in items if item is not None], x.shape, strict=True)
    bounds = [(item, item + 1, 1) if isinstance(item, int) else item.indices(length) for item, length in taken]
    if bounds != [(0, length, 1) for length in x.shape]:
        begin, end, strides = zip(*bounds, strict=True)
        x = OPERATORS["StridedSlice"](x, begin, end, strides)
    lengths, shape = iter(x.shape), list[int]()
    for item in items:
        length = 1 if item is None else next(lengths)
        if not isinstance(item, int):
            shape.append(length)
    return x if tuple(shape) == x.shape else Reshape()(x, tuple(shape))


def _items(key: object, x: Value) -> list[int | slice | None]:
    """The index with one item for each axis of x, and None for each new axis; ints count from 0."""
    given = list(key) if isinstance(key, tuple) else [key]
    for item in given:
        if isinstance(item, bool | np.bool_) or not isinstance(item, int | np.integer | slice | EllipsisType | None):
            repair = "ops.Gather selects by numbers in a tensor, ops.Select by a condition"
            allowed = "ints, slices, ... and None"
            raise ShapeError("not an index of a tensor", given=type(item).__name__, allowed=allowed, repair=repair)
    axes = sum(item is not None and item is not Ellipsis for item in given)
    if axes > x.ndim or given.count(Ellipsis) > 1:
        raise ShapeError("too many indices", given=len(given), axes=x.ndim)
    place = given.index(Ellipsis) if Ellipsis in given else len(given)
    given[place : place + 1] = [slice(None)] * (x.ndim - axes)
    lengths = iter(x.shape)
    return [None if item is None else _item(item, next(lengths)) for item in given]


def _item(item: Any, length: int) -> int | slice:
    if isinstance(item, slice):
        return item
    if not -length <= item < length:
        raise ShapeError("index out of range", given=item, allowed=f"{-length} to {length - 1}")
    return int(item) % length


def numpy_function(function: np.ufunc, method: str, *operands: Any, **settings: Any) -> Any:
    """What numpy's functions give for tensors: operators for arithmetic, arrays otherwise.

    Raises ConfigError inside of a network: an array would have no gradient, and a graph has no arrays.
    """
    if method == "__call__" and not settings and function.__name__ in ARITHMETIC:
        return OPERATORS[ARITHMETIC[function.__name__]](*operands)
    if is_nested() or not all(isinstance(x, Tensor) for x in operands if isinstance(x, Value)):
        name = f"numpy.{function.__name__}"
        repair = "the operator of runner.ops; .asnumpy() for a value that needs no gradient, with mode=pynative"
        error = ConfigError("numpy's functions are not part of a network", function=name, repair=repair)
        raise _located(error, next(x for x in operands if isinstance(x, Value)))
    return getattr(function, method)(*(x.asnumpy() if isinstance(x, Tensor) else x for x in operands), **settings)


def _located(error: RunnerError, x: Value) -> RunnerError:
    return error.add(operand=x.type, scope=current().current_scope(), line=user_line(current().source()))


OPERATORS["Subscript"], OPERATORS["numpy"] = subscript, numpy_function
