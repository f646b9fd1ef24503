"""Division that rounds down, and the remainders of divisions."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from runner.core.lowering import Builder
from runner.core.operators import Gradient, primitive
from runner.core.precision import Needs
from runner.core.values import Value
from runner.ops.elementwise import Binary, with_rank_of
from runner.ops.reduce import unbroadcast

__all__ = ["FloorDiv", "FloorMod", "Mod"]


class Division(Binary):
    """Base: the lowering of divisions of whole numbers, where a division by 0 gives 0, as in numpy."""

    needs: ClassVar = Needs.SINGLE

    def kernel(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return super().kernel(x, y)

    def lower(self, b: Builder, x: str, y: str) -> str:
        """onnxruntime ends the process when it divides a whole number by 0, so it divides by 1 there."""
        x, y = with_rank_of(b, x, y), with_rank_of(b, y, x)
        if b.type(y).dtype.is_float:
            return self.lower_floats(b, x, y)
        zero = b.const(np.array(0, b.type(y).dtype.numpy))
        is_zero = b.node("Equal", (y, zero))
        safe = b.node("Where", (is_zero, b.const(np.array(1, b.type(y).dtype.numpy)), y))
        return b.node("Where", (is_zero, zero, self.lower_ints(b, x, safe)))

    def lower_floats(self, b: Builder, x: str, y: str) -> str:
        """The nodes for floats."""
        raise NotImplementedError

    def lower_ints(self, b: Builder, x: str, y: str) -> str:
        """The nodes for whole numbers; y has no 0."""
        raise NotImplementedError


@primitive
class FloorDiv(Division):
    """x / y rounded down; without a gradient."""

    is_flat: ClassVar = True

    def kernel(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        # Not numpy's floor_divide of floats, which rounds before it divides: 1.0 // 0.1 is 9 there, and 10 here.
        if x.dtype.kind == "f":
            return np.asarray(np.floor(x / y))
        with np.errstate(divide="ignore"):
            return np.asarray(np.floor_divide(x, y))

    def lower_floats(self, b: Builder, x: str, y: str) -> str:
        return b.node("Floor", (b.node("Div", (x, y)),))

    def lower_ints(self, b: Builder, x: str, y: str) -> str:
        return b.node("Div", (b.node("Sub", (x, b.node("Mod", (x, y), fmod=0))), y))


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
        return b.node("Mod", (x, y), fmod=0)


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
        return b.node("Mod", (x, y), fmod=1)
