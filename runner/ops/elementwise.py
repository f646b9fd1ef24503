"""Elementwise arithmetic with broadcasting."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from runner import dtype as dt
from runner.core.lowering import LAST, PLAIN, TILED, Builder, Form, Layout, can_tile, elementwise_forms
from runner.core.operators import Gradient, Primitive, is_filled_with, primitive
from runner.core.precision import Needs
from runner.core.values import OPERATORS, Tensor, Value
from runner.ops.array import Cast, require
from runner.ops.elementwise_blocks import computed_in_blocks
from runner.ops.reduce import unbroadcast
from runner.types import TensorType, broadcast

__all__ = ["Abs", "Add", "Exp", "Log", "Mul", "Neg", "Pow", "RealDiv", "Sign", "Sqrt", "Square", "Sub"]


class Unary(Primitive):
    """Base: one operand, and a result of the same type."""

    elementwise: ClassVar = True
    ufunc: ClassVar[Any]
    floats_only: ClassVar[bool] = True

    def infer(self, x: TensorType) -> TensorType:
        require(x.dtype.is_float or not self.floats_only, "needs floats", x=x)
        return x

    def kernel(self, x: np.ndarray) -> np.ndarray:
        result: np.ndarray = self.ufunc(x)
        return result

    def lower(self, b: Builder, x: str) -> str:
        return b.node(self.onnx, (x,))

    def forms(self, x: TensorType) -> Sequence[Form]:
        return elementwise_forms(self.lower, x)


class UnaryGrad(Primitive):
    """Base: the gradient of a Unary, from dout and its operand or its result, all of one type."""

    elementwise: ClassVar = True

    def infer(self, dout: TensorType, x: TensorType) -> TensorType:
        require(dout == x, "dout and x must have one type", dout=dout, x=x)
        return dout

    def forms(self, dout: TensorType, x: TensorType) -> Sequence[Form]:
        return elementwise_forms(self.lower, dout, x)


class Binary(Primitive):
    """Base: two operands that are converted to one element type and broadcast."""

    elementwise: ClassVar = True
    one_dtype: ClassVar = True
    ufunc: ClassVar[Any]
    floats_only: ClassVar[bool] = False
    bools: ClassVar[bool] = False
    neutral: ClassVar[float | None] = None  # as the second operand it does not change the first one
    commutes: ClassVar[bool] = False  # the neutral element may also be the first operand

    def infer(self, x: TensorType, y: TensorType) -> TensorType:
        require(x.dtype is y.dtype, "operands must have the same element type", x=x, y=y, repair="x.astype(dtype)")
        require(x.dtype.is_float or not self.floats_only, "needs floats", x=x)
        require(x.dtype is not dt.bool_ or self.bools, "needs numbers", x=x)
        return x if x.shape == y.shape else x.with_shape(*broadcast(x, y))

    def kernel(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        result: np.ndarray = self.ufunc(x, y)
        return result

    def lower(self, b: Builder, x: str, y: str) -> str:
        return b.node(self.onnx, (with_rank_of(b, x, y), with_rank_of(b, y, x)))

    def forms(self, x: TensorType, y: TensorType) -> Sequence[Form]:
        return broadcast_forms(self.lower, x, y)

    def identity(self, types: Sequence[TensorType], known: Sequence[np.ndarray | None]) -> int | None:
        if self.neutral is None:
            return None
        for k in (0, 1) if self.commutes else (0,):
            if is_filled_with(self.neutral, known[1 - k]) and types[k].shape == broadcast(*types):
                return k
        return None


def with_rank_of(b: Builder, scalar: str, other: str) -> str:
    """A scalar reshaped to the rank of the other operand; other values unchanged.

    onnxruntime loops over elements when it broadcasts a scalar against trailing axes of length 1: forty times slower.
    """
    ndim = b.type(other).ndim
    return scalar if b.type(scalar).ndim or ndim < 2 else b.reshape(scalar, (1,) * ndim)


def broadcast_forms(lower: Callable[..., str], *operands: TensorType) -> tuple[Form, ...]:
    """The forms of an operator whose operands are broadcast.

    Batch last, operands with the batch axis are transposed; in the others that axis is a 1 at the end. Tiled, operands
    have the shape of the result, or one element per channel.
    """
    out = operands[0].with_shape(*broadcast(*operands))
    layouts = [LAST] if out.ndim > 1 else []
    if can_tile(out) and all(x.shape == out.shape or _is_per_channel(x) for x in operands):
        layouts.append(TILED)
    return Form("plain", lower), *(_in_layout(lower, layout, out, operands) for layout in layouts)


def _in_layout(lower: Callable[..., str], layout: Layout, out: TensorType, operands: Sequence[TensorType]) -> Form:
    def has_batch(x: TensorType) -> bool:
        return x.shape == out.shape if layout is TILED else x.shape[:1] == out.shape[:1] and x.ndim == out.ndim

    batched = [has_batch(x) for x in operands]

    def lower_in_layout(b: Builder, *names: str) -> str:
        pairs = zip(names, batched, strict=True)
        return lower(b, *(name if batch else _without_batch(b, name, out.ndim) for name, batch in pairs))

    return Form(layout.name.lower(), lower_in_layout, tuple(layout if batch else PLAIN for batch in batched), (layout,))


def _is_per_channel(x: TensorType) -> bool:
    """Whether a value broadcasts to (N, C, H, W) with at most one element per channel."""
    return ((1,) * (4 - x.ndim) + x.shape)[2:] == (1, 1) and (x.ndim < 4 or x.shape[0] == 1)


def _without_batch(b: Builder, name: str, ndim: int) -> str:
    """An operand without the batch axis: its other axes, then a 1."""
    shape = b.type(name).shape
    if not shape:
        return name
    full = (1,) * (ndim - len(shape)) + shape
    return b.reshape(name, (*full[1:], 1))


@primitive
class Add(Binary):
    """x + y."""

    ufunc: ClassVar = partial(computed_in_blocks, np.add)
    neutral: ClassVar = -0.0  # not 0.0, since -0.0 + 0.0 is 0.0
    commutes: ClassVar = True

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        x, y = inputs
        return lambda: unbroadcast(douts[0], x), lambda: unbroadcast(douts[0], y)


@primitive
class Sub(Binary):
    """x - y."""

    ufunc: ClassVar = np.subtract
    neutral: ClassVar = 0

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        x, y = inputs
        return lambda: unbroadcast(douts[0], x), lambda: unbroadcast(-douts[0], y)


@primitive
class Mul(Binary):
    """x * y."""

    ufunc: ClassVar = np.multiply
    neutral: ClassVar = 1
    commutes: ClassVar = True

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        x, y = inputs
        return lambda: unbroadcast(douts[0] * y, x), lambda: unbroadcast(douts[0] * x, y)


@primitive
class RealDiv(Binary):
    """x / y of floats."""

    ufunc: ClassVar = np.divide
    onnx: ClassVar = "Div"
    floats_only: ClassVar = True
    neutral: ClassVar = 1

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        x, y = inputs
        return lambda: unbroadcast(douts[0] / y, x), lambda: unbroadcast(-(douts[0] * outputs[0]) / y, y)


@primitive
class Pow(Binary):
    """x to the power y, of floats; the gradient with respect to y needs x >= 0.

    Constants have no slope: the gradient with respect to x is 0 where y is 0, and that to y is 0 where x is 0.
    """

    needs: ClassVar = Needs.SINGLE
    ufunc: ClassVar = np.power
    floats_only: ClassVar = True

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        (x, y), (dout,) = inputs, douts
        return (
            lambda: unbroadcast(dout * nonzero(y, y * Pow()(x, y - 1.0)), x),
            lambda: unbroadcast(dout * nonzero(x, outputs[0] * Log()(x)), y),
        )


def nonzero(condition: Value, value: Value) -> Value:
    """The value where the condition is not 0, else 0."""
    result: Value = OPERATORS["Select"](condition != 0.0, value, Tensor(0.0, value.dtype))
    return result


@primitive
class Neg(Unary):
    """-x."""

    ufunc: ClassVar = np.negative
    floats_only: ClassVar = False

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (-douts[0],)


@primitive
class Exp(Unary):
    """e to the power x."""

    needs: ClassVar = Needs.SINGLE
    ufunc: ClassVar = np.exp

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (douts[0] * outputs[0],)


@primitive
class Log(Unary):
    """Natural logarithm."""

    needs: ClassVar = Needs.SINGLE
    ufunc: ClassVar = np.log

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (douts[0] / inputs[0],)


@primitive
class Sqrt(Unary):
    """Square root."""

    ufunc: ClassVar = np.sqrt

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (douts[0] * 0.5 / outputs[0],)


@primitive
class Square(Unary):
    """x * x."""

    floats_only: ClassVar = False
    needs: ClassVar = Needs.SINGLE
    ufunc: ClassVar = np.square

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (douts[0] * inputs[0] * 2.0,)

    def lower(self, b: Builder, x: str) -> str:
        return b.node("Mul", (x, x))


@primitive
class Sign(Unary):
    """-1, 0 or 1."""

    floats_only: ClassVar = False
    is_flat: ClassVar = True
    ufunc: ClassVar = np.sign


@primitive
class Abs(Unary):
    """|x|; the gradient at 0 is 0."""

    floats_only: ClassVar = False
    ufunc: ClassVar = np.abs

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (douts[0] * Sign()(inputs[0]),)


OPERATORS.update(Add=Add(), Sub=Sub(), Mul=Mul(), RealDiv=RealDiv(), Pow=Pow(), Neg=Neg())
OPERATORS["Cast"] = Cast()
