"""`mindspore.numpy`: comparisons and logic of elements."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from runner import dtype as dt
from runner.core.value import Value
from runner.mindspore.numpy.array_ops import where
from runner.mindspore.numpy.conversion import cast, in_floats, promoted, tensor
from runner.ops.compare import (
    Equal,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
    LogicalAnd,
    LogicalNot,
    LogicalOr,
    NotEqual,
)
from runner.ops.elementwise import Abs
from runner.ops.reduce_bools import ReduceAny
from runner.ops.rounding import IsFinite, IsInf, IsNan

__all__ = [
    "equal",
    "greater",
    "greater_equal",
    "in1d",
    "isclose",
    "isfinite",
    "isin",
    "isinf",
    "isnan",
    "isneginf",
    "isposinf",
    "isscalar",
    "less",
    "less_equal",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "not_equal",
]


def _as_bools(*operands: Any) -> list[Value]:
    return [cast(tensor(operand), dt.bool_) for operand in operands]


def _compared(
    operands: Callable[..., list[Value]], name: str, what: str, operator: Callable[..., Any]
) -> Callable[..., Value]:
    def binary(x1: Any, x2: Any, dtype: Any = None) -> Value:
        return cast(operator(*operands(x1, x2)), dtype)

    binary.__name__ = binary.__qualname__ = name
    binary.__doc__ = f"Whether {what}, for each pair of elements: Bool, or `dtype`."
    return binary


_compare, _logic = partial(_compared, promoted), partial(_compared, _as_bools)
equal = _compare("equal", "x1 equals x2", Equal())
not_equal = _compare("not_equal", "x1 differs from x2", NotEqual())
less = _compare("less", "x1 is less than x2", Less())
less_equal = _compare("less_equal", "x1 is at most x2", LessEqual())
greater = _compare("greater", "x1 is greater than x2", Greater())
greater_equal = _compare("greater_equal", "x1 is at least x2", GreaterEqual())
logical_and = _logic("logical_and", "both are true", LogicalAnd())
logical_or = _logic("logical_or", "one is true", LogicalOr())
logical_xor = _logic(
    "logical_xor", "exactly one is true", lambda a, b: NotEqual()(cast(a, dt.int32), cast(b, dt.int32))
)


def logical_not(a: Any, dtype: Any = None) -> Value:
    """Whether an element is false (0): Bool, or `dtype`."""
    return cast(LogicalNot()(*_as_bools(a)), dtype)


def isnan(x: Any, dtype: Any = None) -> Value:
    """Whether an element is NaN: Bool, or `dtype`."""
    (value,) = in_floats(x)
    return cast(IsNan()(value), dtype)


def isinf(x: Any, dtype: Any = None) -> Value:
    """Whether an element is infinite: Bool, or `dtype`."""
    (value,) = in_floats(x)
    return cast(IsInf()(value), dtype)


def isfinite(x: Any, dtype: Any = None) -> Value:
    """Whether an element is neither infinite nor NaN: Bool, or `dtype`."""
    (value,) = in_floats(x)
    return cast(IsFinite()(value), dtype)


def isposinf(x: Any) -> Value:
    """Whether an element is positive infinity."""
    return equal(in_floats(x)[0], math.inf)


def isneginf(x: Any) -> Value:
    """Whether an element is negative infinity."""
    return equal(in_floats(x)[0], -math.inf)


def isscalar(element: Any) -> bool:
    """Whether this is a number or a text of Python, and no tensor."""
    return isinstance(element, bool | int | float | str)


def isclose(a: Any, b: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Value:
    """Whether |a - b| is at most atol + rtol * |b|; infinities equal themselves, NaN only with `equal_nan`."""
    first, second = in_floats(a, b)
    finite = logical_and(isfinite(first), isfinite(second))
    distance = Abs()(where(finite, first, 0.0) - where(finite, second, 0.0))
    close = LessEqual()(distance, where(finite, Abs()(second), 0.0) * rtol + atol)
    result = where(finite, close, Equal()(first, second))
    return logical_or(result, logical_and(isnan(first), isnan(second))) if equal_nan else result


def isin(element: Any, test_elements: Any, invert: bool = False) -> Value:
    """Whether an element is one of others; with `invert` whether it is none of them."""
    values, others = promoted(element, test_elements)
    found = ReduceAny(axis=-1)(Equal()(values.reshape((*values.shape, 1)), others.reshape(-1)))
    return logical_not(found) if invert else found


def in1d(ar1: Any, ar2: Any, invert: bool = False) -> Value:
    """As `isin`, with all elements in one axis."""
    return isin(tensor(ar1).reshape(-1), ar2, invert)
