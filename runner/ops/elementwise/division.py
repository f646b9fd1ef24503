"""Divisions that round or have rules of their own for zeros: quotients, remainders, and products like them.

`RealDiv`, the division of Python's `/`, is in `arithmetic.py`.
"""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from runner.core.lowering import SMALL, Builder
from runner.core.operators import Gradient, primitive
from runner.core.precision import OperandPrecision
from runner.core.values import Tensor, Value
from runner.ops.elementwise.arithmetic import Binary, Log, RealDiv, Slope, SmoothBinary, nonzero, with_rank_of
from runner.ops.elementwise.compare import Select
from runner.ops.reduce import unbroadcast

# Quotients that are rounded down, and remainders.


class Division(Binary):
    """Base: the lowering of divisions of whole numbers, where a division by 0 gives 0, as in numpy."""

    precision: ClassVar = OperandPrecision.SINGLE
    wider: ClassVar = SMALL

    def kernel(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return super().kernel(x, y)

    def lower(self, b: Builder, x: str, y: str) -> str:
        x, y = with_rank_of(b, x, y), with_rank_of(b, y, x)
        return self.lower_floats(b, x, y) if b.type(y).dtype.is_float else self.lower_ints(b, x, y)

    def lower_floats(self, b: Builder, x: str, y: str) -> str:
        """The nodes for floats."""
        raise NotImplementedError

    def lower_ints(self, b: Builder, x: str, y: str) -> str:
        """The nodes for whole numbers. Processors trap on divisions by 0 and on lowest / -1: neither is divided."""
        raise NotImplementedError


@primitive
class FloorDiv(Division):
    """x / y rounded down; without a gradient."""

    is_flat: ClassVar = True

    def kernel(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        # Not numpy's floor_divide of floats, which rounds before it divides: 1.0 // 0.1 is 9 there, and 10 here.
        if x.dtype.kind == "f":
            return np.asarray(np.floor(x / y))
        with np.errstate(divide="ignore", over="ignore"):  # lowest // -1 is lowest, as negation gives
            return np.asarray(np.floor_divide(x, y))

    def lower_floats(self, b: Builder, x: str, y: str) -> str:
        return b.node("Floor", (b.node("Div", (x, y)),))

    def lower_ints(self, b: Builder, x: str, y: str) -> str:
        quotient, rest = lower_quotient_and_rest(b, x, y)
        return b.node("Sub", (quotient, b.node("Cast", (lower_opposite_signs(b, rest, y),), to=b.type(y).dtype)))


@primitive
class FloorMod(Division):
    """The remainder of x / y rounded down: it has the sign of y, as Python's `%`."""

    ufunc: ClassVar = np.remainder

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        x, y = inputs
        return lambda: unbroadcast(douts[0], x), lambda: unbroadcast(-(douts[0] * FloorDiv()(x, y)), y)

    def lower_floats(self, b: Builder, x: str, y: str) -> str:
        zero = b.const(0.0, like=x)
        rest = b.node("Mod", (x, y), fmod=1)
        differ = b.node("Xor", (b.node("Less", (rest, zero)), b.node("Less", (y, zero))))
        is_zero = b.node("Equal", (rest, zero))
        signed = b.node("Where", (differ, b.node("Add", (rest, y)), rest))
        return b.node("Where", (is_zero, b.node("Mul", (b.node("Sign", (y,)), zero)), signed))

    def lower_ints(self, b: Builder, x: str, y: str) -> str:
        _, rest = lower_quotient_and_rest(b, x, y)
        more = b.node("Mul", (y, b.node("Cast", (lower_opposite_signs(b, rest, y),), to=b.type(y).dtype)))
        return b.node("Add", (rest, more))


@primitive
class Mod(Division):
    """The remainder of x / y rounded toward 0: it has the sign of x, as C's `fmod`."""

    ufunc: ClassVar = np.fmod

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        x, y = inputs
        return (
            lambda: unbroadcast(douts[0], x),
            lambda: unbroadcast(-(douts[0] * ((x - outputs[0]) / y)), y),
        )

    def lower_floats(self, b: Builder, x: str, y: str) -> str:
        return b.node("Mod", (x, y), fmod=1)

    def lower_ints(self, b: Builder, x: str, y: str) -> str:
        return lower_quotient_and_rest(b, x, y)[1]


# Quotients without the digits after the point.


def truncated_quotient(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x / y without the digits after the point; of whole numbers, 0 where y is 0."""
    if x.dtype.kind == "f":
        return np.asarray(np.trunc(x / y))
    safe = np.where(y == 0, y.dtype.type(1), y)
    with np.errstate(over="ignore"):  # lowest / -1 is lowest, as negation gives
        quotient = (x - np.fmod(x, safe)) // safe
    result: np.ndarray = np.where(y == 0, x.dtype.type(0), quotient)
    return result


def lower_truncated_quotient(b: Builder, x: str, y: str) -> str:
    """`truncated_quotient` in ONNX. Processors trap on whole numbers / 0 and lowest / -1: neither is divided."""
    dtype = b.type(x).dtype
    if dtype.is_float:
        quotient = b.node("Div", (x, y))
        return b.node("Mul", (b.node("Sign", (quotient,)), b.node("Floor", (b.node("Abs", (quotient,)),))))
    zero, one = b.const(np.array(0, dtype.numpy)), b.const(np.array(1, dtype.numpy))
    is_zero = b.node("Equal", (y, zero))
    if dtype.numpy.kind == "u":
        quotient = b.node("Div", (x, b.node("Where", (is_zero, one, y))))
    else:
        is_minus_one = b.node("Equal", (y, b.const(np.array(-1, dtype.numpy))))
        safe = b.node("Where", (b.node("Or", (is_zero, is_minus_one)), one, y))
        quotient = b.node("Where", (is_minus_one, b.node("Sub", (zero, x)), b.node("Div", (x, safe))))
    return b.node("Where", (is_zero, zero, quotient))


def lower_quotient_and_rest(b: Builder, x: str, y: str) -> tuple[str, str]:
    """The truncated quotient of whole numbers, and the remainder with the sign of x; both are 0 where y is 0."""
    quotient = lower_truncated_quotient(b, x, y)
    zero = b.const(np.array(0, b.type(y).dtype.numpy))
    rest = b.node("Sub", (x, b.node("Mul", (quotient, y))))
    return quotient, b.node("Where", (b.node("Equal", (y, zero)), zero, rest))


def lower_opposite_signs(b: Builder, rest: str, y: str) -> str:
    """Whether a remainder is not 0 and has another sign than y."""
    zero = b.const(np.array(0, b.type(y).dtype.numpy))
    differ = b.node("Xor", (b.node("Less", (rest, zero)), b.node("Less", (y, zero))))
    return b.node("And", (differ, b.node("Not", (b.node("Equal", (rest, zero)),))))


@primitive
class Div(SmoothBinary):
    """x / y of floats; of whole numbers without the digits after the point, and 0 where y is 0."""

    wider: ClassVar = SMALL

    def slopes(self, x: Value, y: Value, out: Value) -> tuple[Slope, Slope]:
        return lambda: 1.0 / y, lambda: -out / y

    def kernel(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(x / y) if x.dtype.kind == "f" else truncated_quotient(x, y)

    def lower(self, b: Builder, x: str, y: str) -> str:
        return RealDiv().lower(b, x, y) if b.type(x).dtype.is_float else lower_truncated_quotient(b, x, y)


@primitive
class TruncateDiv(Binary):
    """x / y without the digits after the point, and without a gradient; of whole numbers, 0 where y is 0."""

    wider: ClassVar = SMALL

    is_flat: ClassVar = True

    def kernel(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return truncated_quotient(x, y)

    def lower(self, b: Builder, x: str, y: str) -> str:
        return lower_truncated_quotient(b, x, y)


@primitive
class TruncateMod(Binary):
    """x - y * TruncateDiv(x, y), which has the sign of x; of whole numbers, 0 where y is 0."""

    wider: ClassVar = SMALL

    def kernel(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        if x.dtype.kind == "f":
            return np.asarray(np.fmod(x, y))
        return np.asarray(np.where(y == 0, x.dtype.type(0), np.fmod(x, np.where(y == 0, y.dtype.type(1), y))))

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        (x, y), dout = inputs, douts[0]
        return lambda: unbroadcast(dout, x), lambda: unbroadcast(-(dout * TruncateDiv()(x, y)), y)

    def lower(self, b: Builder, x: str, y: str) -> str:
        if b.type(x).dtype.is_float:
            return b.node("Mod", (x, y), fmod=1)
        return lower_quotient_and_rest(b, x, y)[1]


# Quotients and products that are 0 where an operand is 0.


def without_zeros(y: Value) -> Value:
    """The value with 1 in place of 0, a divisor whose quotient has a derivative where it is not selected."""
    return Select()(y != 0.0, y, Tensor(1.0, y.dtype))


@primitive
class DivNoNan(SmoothBinary):
    """x / y, and 0 where y is 0; whole numbers without the digits after the point."""

    wider: ClassVar = SMALL

    def kernel(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        if x.dtype.kind != "f":
            return truncated_quotient(x, y)
        zero = y == 0
        return np.where(zero, x.dtype.type(0), x / np.where(zero, y.dtype.type(1), y))

    def slopes(self, x: Value, y: Value, out: Value) -> tuple[Slope, Slope]:
        safe = without_zeros(y)
        return lambda: nonzero(y, 1.0 / safe), lambda: nonzero(y, -out / safe)

    def lower(self, b: Builder, x: str, y: str) -> str:
        if not b.type(x).dtype.is_float:
            return lower_truncated_quotient(b, x, y)
        zero = b.const(0.0, like=x)
        return b.node("Where", (b.node("Equal", (y, zero)), zero, b.node("Div", (x, y))))


@primitive
class MulNoNan(SmoothBinary):
    """x * y, and 0 where y is 0, even if x is infinite or NaN."""

    floats_only: ClassVar = True

    def kernel(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(np.where(y == 0, x.dtype.type(0), x * y))

    def slopes(self, x: Value, y: Value, out: Value) -> tuple[Slope, Slope]:
        return lambda: y, lambda: x

    def lower(self, b: Builder, x: str, y: str) -> str:
        zero = b.const(0.0, like=x)
        return b.node("Where", (b.node("Equal", (y, zero)), zero, b.node("Mul", (x, y))))


@primitive
class Xdivy(SmoothBinary):
    """x / y, and 0 where x is 0."""

    floats_only: ClassVar = True

    def kernel(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.where(x == 0, x.dtype.type(0), x / np.where(x == 0, y.dtype.type(1), y))

    def slopes(self, x: Value, y: Value, out: Value) -> tuple[Slope, Slope]:
        return lambda: nonzero(x, 1.0 / y), lambda: nonzero(x, -out / y)

    def lower(self, b: Builder, x: str, y: str) -> str:
        zero = b.const(0.0, like=x)
        return b.node("Where", (b.node("Equal", (x, zero)), zero, b.node("Div", (x, y))))


@primitive
class Xlogy(SmoothBinary):
    """x * log(y), and 0 where x is 0."""

    precision: ClassVar = OperandPrecision.SINGLE
    floats_only: ClassVar = True

    def kernel(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.where(x == 0, x.dtype.type(0), x * np.log(np.where(x == 0, y.dtype.type(1), y)))

    def slopes(self, x: Value, y: Value, out: Value) -> tuple[Slope, Slope]:
        return lambda: nonzero(x, Log()(y)), lambda: nonzero(x, x / y)

    def lower(self, b: Builder, x: str, y: str) -> str:
        zero = b.const(0.0, like=x)
        return b.node("Where", (b.node("Equal", (x, zero)), zero, b.node("Mul", (x, b.node("Log", (y,))))))
