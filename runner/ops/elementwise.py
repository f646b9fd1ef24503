"""Arithmetic, element by element with broadcasting."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from runner import dtype as dt
from runner.core.lowering import LAST, PLAIN, TILED, Builder, Form, Layout, can_tile, elementwise_forms
from runner.core.precision import Needs
from runner.core.primitive import Gradient, Primitive, primitive
from runner.core.value import OPERATORS, Value
from runner.ops.array import Cast, require
from runner.ops.reduce import unbroadcast
from runner.types import TensorType, broadcast


def only(value: float, array: np.ndarray | None) -> bool:
    """Whether an operand is known to hold nothing but this number; of floats also the sign of 0 counts."""
    if array is None or not np.all(array == value):
        return False
    return array.dtype.kind != "f" or bool(np.all(np.signbit(array) == np.signbit(value)))


class Unary(Primitive):
    """Base: one operand, the result has its type."""

    ufunc: ClassVar[Any]
    onnx: ClassVar[str]
    floats_only: ClassVar[bool] = True

    def infer(self, x: TensorType) -> TensorType:
        require(x.dtype.is_float or not self.floats_only, "needs floats", x=x)
        return x

    def kernel(self, x: np.ndarray) -> np.ndarray:
        made: np.ndarray = self.ufunc(x)
        return made

    def lower(self, b: Builder, x: str) -> str:
        return b.node(self.onnx, (x,))

    def forms(self, x: TensorType) -> Sequence[Form]:
        return elementwise_forms(self.lower, x)


class Binary(Primitive):
    """Base: two operands of one element type that broadcast against each other."""

    ufunc: ClassVar[Any]
    onnx: ClassVar[str]
    floats_only: ClassVar[bool] = False
    bools: ClassVar[bool] = False

    def infer(self, x: TensorType, y: TensorType) -> TensorType:
        require(x.dtype is y.dtype, "operands must have the same element type", x=x, y=y)
        require(x.dtype.is_float or not self.floats_only, "needs floats", x=x)
        require(x.dtype is not dt.bool_ or self.bools, "needs numbers", x=x)
        return x if x.shape == y.shape else x.with_shape(*broadcast(x, y))

    def kernel(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        made: np.ndarray = self.ufunc(x, y)
        return made

    def lower(self, b: Builder, x: str, y: str) -> str:
        return b.node(self.onnx, (ranked(b, x, y), ranked(b, y, x)))

    def forms(self, x: TensorType, y: TensorType) -> Sequence[Form]:
        return broadcasting(self.lower, x, y)

    def neutral(self, types: Sequence[TensorType], keep: int, other: np.ndarray | None, value: float) -> bool:
        """Whether operand `keep` is the result because the other one holds only its neutral element."""
        return only(value, other) and types[keep].shape == broadcast(*types)


def ranked(b: Builder, scalar: str, beside: str) -> str:
    """A scalar in the rank of what it meets; other values as they are.

    onnxruntime walks element by element where a scalar meets trailing axes of length 1, forty times slower.
    """
    ndim = b.type(beside).ndim
    return scalar if b.type(scalar).ndim or ndim < 2 else b.reshape(scalar, (1,) * ndim)


def broadcasting(lower: Callable[..., str], *operands: TensorType) -> tuple[Form, ...]:
    """The forms of an operator on operands that broadcast.

    Those that have the batch are turned around; the others only get a 1 in its place. In tiles all have the whole
    shape, or one element per channel.
    """
    out = operands[0].with_shape(*broadcast(*operands))
    ways = [LAST] if out.ndim > 1 else []
    if can_tile(out) and all(x.shape == out.shape or _is_of_channels(x) for x in operands):
        ways.append(TILED)
    return Form("plain", lower), *(_in_layout(lower, way, out, operands) for way in ways)


def _in_layout(lower: Callable[..., str], way: Layout, out: TensorType, operands: Sequence[TensorType]) -> Form:
    whole = [
        x.shape == out.shape if way is TILED else x.shape[:1] == out.shape[:1] and x.ndim == out.ndim for x in operands
    ]
    lies = tuple(way if has_batch else PLAIN for has_batch in whole)

    def lower_so(b: Builder, *names: str) -> str:
        pairs = zip(names, whole, strict=True)
        return lower(b, *(name if has_batch else _without_batch(b, name, out.ndim) for name, has_batch in pairs))

    return Form(way.name.lower(), lower_so, lies, (way,))


def _is_of_channels(x: TensorType) -> bool:
    """Whether a value broadcasts to (N, C, H, W) with at most one element per channel."""
    return ((1,) * (4 - x.ndim) + x.shape)[2:] == (1, 1) and (x.ndim < 4 or x.shape[0] == 1)


def _without_batch(b: Builder, name: str, ndim: int) -> str:
    """An operand without the batch, with a 1 in its place: what is left of its axes, and 1."""
    shape = b.type(name).shape
    if not shape:
        return name
    full = (1,) * (ndim - len(shape)) + shape
    return b.reshape(name, (*full[1:], 1))


@primitive
class Add(Binary):
    """x + y."""

    ufunc: ClassVar = np.add
    onnx: ClassVar = "Add"

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        x, y = inputs
        return lambda: unbroadcast(douts[0], x), lambda: unbroadcast(douts[0], y)

    def identity(self, types: Sequence[TensorType], known: Sequence[np.ndarray | None]) -> int | None:
        # -0.0 + 0.0 is 0.0, so of the two zeros only -0.0 leaves everything as it is.
        return next((k for k in (0, 1) if self.neutral(types, k, known[1 - k], -0.0)), None)


@primitive
class Sub(Binary):
    """x - y."""

    ufunc: ClassVar = np.subtract
    onnx: ClassVar = "Sub"

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        x, y = inputs
        return lambda: unbroadcast(douts[0], x), lambda: unbroadcast(-douts[0], y)

    def identity(self, types: Sequence[TensorType], known: Sequence[np.ndarray | None]) -> int | None:
        return 0 if self.neutral(types, 0, known[1], 0) else None


@primitive
class Mul(Binary):
    """x * y."""

    ufunc: ClassVar = np.multiply
    onnx: ClassVar = "Mul"

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        x, y = inputs
        return lambda: unbroadcast(douts[0] * y, x), lambda: unbroadcast(douts[0] * x, y)

    def identity(self, types: Sequence[TensorType], known: Sequence[np.ndarray | None]) -> int | None:
        return next((k for k in (0, 1) if self.neutral(types, k, known[1 - k], 1)), None)


@primitive
class RealDiv(Binary):
    """x / y of floats."""

    ufunc: ClassVar = np.divide
    onnx: ClassVar = "Div"
    floats_only: ClassVar = True

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        x, y = inputs
        return lambda: unbroadcast(douts[0] / y, x), lambda: unbroadcast(-(douts[0] * outputs[0]) / y, y)

    def identity(self, types: Sequence[TensorType], known: Sequence[np.ndarray | None]) -> int | None:
        return 0 if self.neutral(types, 0, known[1], 1) else None


@primitive
class Pow(Binary):
    """x to the power y, of floats; the gradient for y needs x > 0."""

    needs: ClassVar = Needs.SINGLE
    ufunc: ClassVar = np.power
    onnx: ClassVar = "Pow"
    floats_only: ClassVar = True

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        x, y = inputs
        return (
            lambda: unbroadcast(douts[0] * y * Pow()(x, y - 1.0), x),
            lambda: unbroadcast(douts[0] * outputs[0] * Log()(x), y),
        )


@primitive
class Neg(Unary):
    """-x."""

    ufunc: ClassVar = np.negative
    onnx: ClassVar = "Neg"
    floats_only: ClassVar = False

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (-douts[0],)


@primitive
class Exp(Unary):
    """e to the power x."""

    needs: ClassVar = Needs.SINGLE
    ufunc: ClassVar = np.exp
    onnx: ClassVar = "Exp"

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (douts[0] * outputs[0],)


@primitive
class Log(Unary):
    """Natural logarithm."""

    needs: ClassVar = Needs.SINGLE
    ufunc: ClassVar = np.log
    onnx: ClassVar = "Log"

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (douts[0] / inputs[0],)


@primitive
class Sqrt(Unary):
    """Square root."""

    ufunc: ClassVar = np.sqrt
    onnx: ClassVar = "Sqrt"

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (douts[0] * 0.5 / outputs[0],)


@primitive
class Square(Unary):
    """x * x."""

    needs: ClassVar = Needs.SINGLE
    ufunc: ClassVar = np.square

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (douts[0] * inputs[0] * 2.0,)

    def lower(self, b: Builder, x: str) -> str:
        return b.node("Mul", (x, x))


@primitive
class Sign(Unary):
    """-1, 0 or 1."""

    ufunc: ClassVar = np.sign
    onnx: ClassVar = "Sign"

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (None,)


@primitive
class Abs(Unary):
    """|x|; the gradient at 0 is 0."""

    ufunc: ClassVar = np.abs
    onnx: ClassVar = "Abs"

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (douts[0] * Sign()(inputs[0]),)


OPERATORS.update(Add=Add(), Sub=Sub(), Mul=Mul(), RealDiv=RealDiv(), Pow=Pow(), Neg=Neg())
OPERATORS["Cast"] = Cast()
