"""Elementwise arithmetic, and what all elementwise operators share.

The bases: passes over large arrays in blocks, which stay in the cache; `Unary` and `Binary` with the type rule, numpy's
function, the lowerings; `Smooth` and `SmoothBinary`, which have the gradient too: the
adjoint times a derivative that is written in operators. Then the operators behind Python's `+ - * / **`, roots and
logarithms, and rounding; `division.py` has the other divisions, `functions.py` other functions.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from runner import dtype as dt
from runner.core.lowering import (
    LAST,
    MODULAR,
    PLAIN,
    TILED,
    Builder,
    Layout,
    Lowering,
    can_tile,
    elementwise_lowerings,
)
from runner.core.operators import Gradient, Primitive, is_filled_with, primitive
from runner.core.precision import OperandPrecision
from runner.core.values import Operand, Tensor, Value, syntax
from runner.host.threads import block_length, compute_parts, slices
from runner.ops.array import require
from runner.ops.reduce import unbroadcast
from runner.types import TensorType, broadcast

# Elementwise passes over large arrays in blocks, which threads compute.

DIVIDED = 1 << 18  # elements; smaller arrays stay in the caches as they are
BLOCK = 1 << 16  # elements
ELEMENT_FLOPS = 25  # an element takes as long as so many operations of a matrix product: it waits for memory


def in_blocks(function: Callable[..., object], *arrays: np.ndarray) -> None:
    """Call `function` with the same block of each array, in any thread; it reads some and writes into others.

    The arrays have one shape. The function is elementwise: how they are divided changes no bit. Arrays whose elements
    are not in one order in memory are passed whole.
    """
    size = arrays[0].size
    flat = _flattened(arrays) if size > DIVIDED else None
    if flat is None:
        function(*arrays)
        return
    blocks = slices(size, block_length(BLOCK))
    compute_parts(lambda block: function(*[x[block] for x in flat]), blocks, ELEMENT_FLOPS * size)


def computed_in_blocks(function: Callable[..., object], *operands: np.ndarray) -> np.ndarray:
    """The result of a numpy function, in blocks if the operands are large and have one shape.

    Their element type is that of the result.
    """
    first = operands[0]
    if first.size <= DIVIDED or any(x.shape != first.shape for x in operands):
        return np.asarray(function(*operands))
    result = np.empty_like(first)
    in_blocks(lambda *arrays: function(*arrays[:-1], out=arrays[-1]), *operands, result)
    return result


def _flattened(arrays: tuple[np.ndarray, ...]) -> list[np.ndarray] | None:
    """Views with one axis, of which equal positions belong to equal elements; None where there are none."""
    first = arrays[0]
    order = sorted(range(first.ndim), key=lambda axis: -first.strides[axis])
    views = [x.transpose(order) for x in arrays]
    if not all(view.flags.c_contiguous for view in views):
        return None
    return [view.reshape(-1) for view in views]


# Bases of operators of one operand.


class Unary(Primitive):
    """Base: one operand, and a result of the same type."""

    elementwise: ClassVar = True
    ufunc: ClassVar[Any]
    floats_only: ClassVar[bool] = True

    def infer(self, x: TensorType) -> TensorType:
        require(x.dtype.is_float or not self.floats_only, "needs floats", x=x)
        require(x.dtype is not dt.bool_, "needs numbers", x=x)
        return x

    def kernel(self, x: np.ndarray) -> np.ndarray:
        result: np.ndarray = self.ufunc(x)
        return result

    def lower(self, b: Builder, x: str) -> str:
        return b.node(self.onnx, (x,))

    def lowerings(self, x: TensorType) -> Sequence[Lowering]:
        return elementwise_lowerings(self.lower, x)


class UnaryGrad(Primitive):
    """Base: the gradient of a Unary, from dout and its operand or its result, all of one type."""

    elementwise: ClassVar = True

    def infer(self, dout: TensorType, x: TensorType) -> TensorType:
        require(dout == x, "dout and x must have one type", dout=dout, x=x)
        require(x.dtype.is_float, "needs floats", x=x)
        return dout

    def lowerings(self, dout: TensorType, x: TensorType) -> Sequence[Lowering]:
        return elementwise_lowerings(self.lower, dout, x)


class Smooth(Unary):
    """Base: a function of one operand; `slope` is its derivative."""

    def slope(self, x: Value, y: Value) -> Value:
        """The derivative at the operand x, whose result is y."""
        raise NotImplementedError

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (douts[0] * self.slope(inputs[0], outputs[0]),)


# Bases of operators of two operands, which are broadcast.


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

    def lowerings(self, x: TensorType, y: TensorType) -> Sequence[Lowering]:
        return broadcast_lowerings(self.lower, x, y)

    def identity(self, types: Sequence[TensorType], known: Sequence[np.ndarray | None]) -> int | None:
        if self.neutral is None:
            return None
        for k in (0, 1) if self.commutes else (0,):
            if is_filled_with(self.neutral, known[1 - k]) and types[k].shape == broadcast(*types):
                return k
        return None


Slope = Callable[[], Operand]


class SmoothBinary(Binary):
    """Base: a function of two operands that are broadcast; `slopes` are its partial derivatives."""

    def slopes(self, x: Value, y: Value, out: Value) -> tuple[Slope, Slope]:
        """Functions that compute the derivatives with respect to x and y; `out` is the result."""
        raise NotImplementedError

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        (x, y), dout = inputs, douts[0]
        by_x, by_y = self.slopes(x, y, outputs[0])
        return lambda: unbroadcast(dout * by_x(), x), lambda: unbroadcast(dout * by_y(), y)


# Lowerings of operands that are broadcast, in each layout.


def with_rank_of(b: Builder, scalar: str, other: str) -> str:
    """A scalar reshaped to the rank of the other operand; other values unchanged.

    onnxruntime loops over elements when it broadcasts a scalar against trailing axes of length 1: forty times slower.
    """
    ndim = b.type(other).ndim
    return scalar if b.type(scalar).ndim or ndim < 2 else b.reshape(scalar, (1,) * ndim)


def broadcast_lowerings(lower: Callable[..., str], *operands: TensorType) -> tuple[Lowering, ...]:
    """The lowerings of an operator whose operands are broadcast.

    Batch last, operands with the batch axis are transposed; in the others that axis is a 1 at the end. Tiled, operands
    have the shape of the result, or one element per channel.
    """
    out = operands[0].with_shape(*broadcast(*operands))
    layouts = [LAST] if out.ndim > 1 else []
    if can_tile(out) and all(x.shape == out.shape or _is_per_channel(x) for x in operands):
        layouts.append(TILED)
    return Lowering("plain", lower), *(_in_layout(lower, layout, out, operands) for layout in layouts)


def _in_layout(lower: Callable[..., str], layout: Layout, out: TensorType, operands: Sequence[TensorType]) -> Lowering:
    def has_batch(x: TensorType) -> bool:
        return x.shape == out.shape if layout is TILED else x.shape[:1] == out.shape[:1] and x.ndim == out.ndim

    batched = [has_batch(x) for x in operands]

    def lower_in_layout(b: Builder, *names: str) -> str:
        pairs = zip(names, batched, strict=True)
        return lower(b, *(name if batch else _without_batch(b, name, out.ndim) for name, batch in pairs))

    return Lowering(
        layout.name.lower(), lower_in_layout, tuple(layout if batch else PLAIN for batch in batched), (layout,)
    )


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


# Elementwise arithmetic: sums, products, quotients and powers of two operands, roots and logarithms, and rounding.
#
# The operators behind Python's `+ - * / **` are here; `division.py` has the other divisions.

# Arithmetic of two operands.


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

    precision: ClassVar = OperandPrecision.SINGLE
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
    result: Value = syntax.select(condition != 0.0, value, Tensor(0.0, value.dtype))
    return result


@primitive
class SquaredDifference(SmoothBinary):
    """(x - y) * (x - y)."""

    def kernel(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(np.square(x - y))

    def slopes(self, x: Value, y: Value, out: Value) -> tuple[Slope, Slope]:
        return lambda: (x - y) * 2.0, lambda: (y - x) * 2.0

    def lower(self, b: Builder, x: str, y: str) -> str:
        difference = b.node("Sub", (x, y))
        return b.node("Mul", (difference, difference))


# Functions of one operand.


@primitive
class Neg(Unary):
    """-x."""

    ufunc: ClassVar = np.negative
    floats_only: ClassVar = False
    wider: ClassVar = {kind: wide for kind, wide in MODULAR.items() if kind.numpy.kind == "u"}

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (-douts[0],)


@primitive
class Abs(Unary):
    """|x|; the gradient at 0 is 0."""

    floats_only: ClassVar = False
    ufunc: ClassVar = np.abs

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (douts[0] * Sign()(inputs[0]),)


@primitive
class Sign(Unary):
    """-1, 0 or 1."""

    floats_only: ClassVar = False
    is_flat: ClassVar = True
    ufunc: ClassVar = np.sign

    def lower(self, b: Builder, x: str) -> str:
        """onnxruntime's Sign of Int64 reads the lower half as a signed number."""
        kind = b.type(x).dtype
        if kind is not dt.int64:
            return super().lower(b, x)
        zero = b.const(0)
        above, below = (b.node("Cast", (b.node(test, (x, zero)),), to=kind) for test in ("Greater", "Less"))
        return b.node("Sub", (above, below))


@primitive
class Square(Unary):
    """x * x."""

    floats_only: ClassVar = False
    precision: ClassVar = OperandPrecision.SINGLE
    ufunc: ClassVar = np.square

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (douts[0] * inputs[0] * 2.0,)

    def lower(self, b: Builder, x: str) -> str:
        return b.node("Mul", (x, x))


@primitive
class Sqrt(Unary):
    """Square root."""

    ufunc: ClassVar = np.sqrt

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (douts[0] * 0.5 / outputs[0],)


@primitive
class Rsqrt(Unary):
    """1 / sqrt(x)."""

    precision: ClassVar = OperandPrecision.SINGLE

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(np.reciprocal(np.sqrt(x)))

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        (y,) = outputs
        return (douts[0] * -0.5 * y * y * y,)

    def lower(self, b: Builder, x: str) -> str:
        return b.node("Reciprocal", (b.node("Sqrt", (x,)),))


@primitive
class Reciprocal(Unary):
    """1 / x."""

    precision: ClassVar = OperandPrecision.SINGLE
    ufunc: ClassVar = np.reciprocal

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (-(douts[0] * outputs[0] * outputs[0]),)


@primitive
class Exp(Unary):
    """e to the power x."""

    precision: ClassVar = OperandPrecision.SINGLE
    ufunc: ClassVar = np.exp

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (douts[0] * outputs[0],)


@primitive
class Log(Unary):
    """Natural logarithm."""

    precision: ClassVar = OperandPrecision.SINGLE
    ufunc: ClassVar = np.log

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (douts[0] / inputs[0],)


# Rounding to whole numbers.


@primitive
class Floor(Unary):
    """The largest whole number that is not above x; without a gradient."""

    is_flat: ClassVar = True
    ufunc: ClassVar = np.floor


@primitive
class Ceil(Unary):
    """The smallest whole number that is not below x; without a gradient."""

    is_flat: ClassVar = True
    ufunc: ClassVar = np.ceil


@primitive
class Round(Unary):
    """The nearest whole number, the even one of two; without a gradient."""

    is_flat: ClassVar = True
    ufunc: ClassVar = np.rint


@primitive
class Rint(Unary):
    """As Round."""

    is_flat: ClassVar = True
    ufunc: ClassVar = np.rint
    onnx: ClassVar = "Round"
