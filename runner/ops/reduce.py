"""Operators along axes: reductions, repeated elements (the adjoint of sums), positions of extrema, cumulated results.

Gradients compare and select by the operators of values, since `elementwise/` imports this file.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from runner import dtype as dt
from runner.core.lowering import LAST, MODULAR, ORDERED, Builder, Lowering, axis_last
from runner.core.operators import Gradient, Primitive, family, primitive
from runner.core.parts import Axes, Axis, PartRule, Parts, apart_from, replaced
from runner.core.precision import OperandPrecision
from runner.core.values import Tensor, Value, syntax
from runner.ops.array import Cast, Reshape, Transpose, require
from runner.types import Shape, TensorType, broadcast, resolve_axes

Reduced = int | tuple[int, ...] | None


# Reductions: sum, mean, extrema, product.


@family
class Reduction(Primitive):
    """Base of operators that reduce axes by `ufunc`; `keep_dims` keeps them with length 1."""

    ufunc: ClassVar[np.ufunc]

    keep_dims: bool = False
    axis: Reduced = ()
    statics: ClassVar = ("axis",)

    def axes(self, x: TensorType | Value) -> tuple[int, ...]:
        """The reduced axes, as sorted non-negative numbers."""
        return resolve_axes(self.axis, x.ndim)

    def keepdims_shape(self, x: TensorType | Value) -> Shape:
        """Shape of the result with reduced axes of length 1."""
        return tuple(1 if k in self.axes(x) else n for k, n in enumerate(x.shape))

    def infer(self, x: TensorType) -> TensorType:
        if self.keep_dims:
            return x.with_shape(*self.keepdims_shape(x))
        return x.with_shape(*(n for k, n in enumerate(x.shape) if k not in self.axes(x)))

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return inputs[0].size

    def part(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> PartRule | None:
        (axis,), reduced = axes, self.axes(types[0])
        if axis is None or axis in reduced:
            return self.sum_part(axis, parts)
        return PartRule(self, (axis,), (axis if self.keep_dims else axis - sum(k < axis for k in reduced),))

    def sum_part(self, axis: Axis, parts: Parts) -> PartRule | None:
        """The part where the axis of the batch is reduced; None where the results of parts are not terms of a sum."""
        return None

    def broadcast_back(self, value: Value, x: Value) -> Value:
        """A value of the shape of the result, repeated over the reduced axes."""
        return BroadcastTo(x.shape)(Reshape(self.keepdims_shape(x))(value))

    def kernel(self, x: np.ndarray) -> np.ndarray:
        axes = self.axes(TensorType.of(x))
        return np.asarray(self.ufunc.reduce(x, axes, dtype=x.dtype, keepdims=self.keep_dims))

    def lower(self, b: Builder, x: str) -> str:
        if self.by_rows(b.type(x)):
            return self._lower_by_rows(b, x)
        return b.node(self.onnx, (x, b.const(list(self.axes(b.type(x))))), keepdims=int(self.keep_dims))

    def by_rows(self, x: TensorType) -> bool:
        """Whether `lower_rows` reduces operands of this type, since onnxruntime's result is not numpy's."""
        return False

    def lower_rows(self, b: Builder, rows: str, count: int, kind: dt.DType) -> str:
        """The nodes that reduce the second axis, of this length, of rows of this element type."""
        raise NotImplementedError

    def _lower_by_rows(self, b: Builder, x: str) -> str:
        type = b.type(x)
        axes, shape = self.axes(type), type.shape
        perm = (*(k for k in range(type.ndim) if k not in axes), *axes)
        count, kept = (math.prod(shape[k] for k in perm if (k in axes) == inside) for inside in (True, False))
        rows = b.reshape(b.node("Transpose", (x,), perm=perm) if perm else x, (kept, count))
        return b.reshape(self.lower_rows(b, rows, count, type.dtype), self.infer(type).shape)

    def lowerings(self, x: TensorType) -> Sequence[Lowering]:
        """Batch last the axes have other positions; a result without the batch axis is plain."""
        plain, axes = Lowering("plain", self.lower), self.axes(x)
        if x.ndim < 2 or self.by_rows(x):
            return (plain,)
        moved = dataclasses.replace(self, axis=tuple(axis_last(axis, x.ndim) for axis in axes))
        if 0 not in axes:
            return plain, Lowering("last", moved.lower, (LAST,), (LAST,))
        shape = self.infer(x).shape
        return plain, Lowering("last", lambda b, name: b.reshape(moved.lower(b, name), shape), (LAST,))


class ModularReduction(Reduction):
    """Base of sums and products, of which onnxruntime computes those of whole numbers in Float64: 2**53 + 1 loses 1."""

    precision: ClassVar = OperandPrecision.SINGLE
    wider: ClassVar = MODULAR

    def infer(self, x: TensorType) -> TensorType:
        require(x.dtype is not dt.bool_, "needs numbers", x=x)
        return super().infer(x)

    def by_rows(self, x: TensorType) -> bool:
        return not x.dtype.is_float


@primitive
class ReduceSum(ModularReduction):
    """Sum over `axis` (all axes by default)."""

    ufunc: ClassVar = np.add

    def lower_rows(self, b: Builder, rows: str, count: int, kind: dt.DType) -> str:
        return b.node("MatMul", (rows, b.const(np.ones((count, 1), kind.numpy))))

    def sum_part(self, axis: Axis, parts: Parts) -> PartRule | None:
        return PartRule(self, (axis,), (None,))

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (self.broadcast_back(douts[0], inputs[0]),)

    def identity(self, types: Sequence[TensorType], known: Sequence[np.ndarray | None]) -> int | None:
        return 0 if types[0].shape == self.infer(types[0]).shape else None


@primitive
class ReduceMean(Reduction):
    """Mean over `axis` (all axes by default) of floats."""

    precision: ClassVar = OperandPrecision.SINGLE
    needs_elements: ClassVar = True

    def infer(self, x: TensorType) -> TensorType:
        require(x.dtype.is_float, "needs floats", x=x)
        return super().infer(x)

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(x.mean(self.axes(TensorType.of(x)), dtype=x.dtype, keepdims=self.keep_dims))

    def sum_part(self, axis: Axis, parts: Parts) -> PartRule | None:
        return PartRule(self, (axis,), (None,), 1 / parts.count)

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (self.broadcast_back(douts[0] * (outputs[0].size / inputs[0].size), inputs[0]),)


class ReduceExtremum(Reduction):
    """Base of ReduceMax and ReduceMin: equal extrema share the gradient equally, as in MindSpore."""

    needs_elements: ClassVar = True
    wider: ClassVar = {**ORDERED, dt.uint32: dt.int64, dt.bool_: dt.uint8}

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        (x,), (y,) = inputs, outputs
        mask = Cast(x.dtype)(syntax.equal(x, self.broadcast_back(y, x)))
        share = mask / BroadcastTo(x.shape)(ReduceSum(True, self.axes(x))(mask))
        return (share * self.broadcast_back(douts[0], x),)

    def by_rows(self, x: TensorType) -> bool:
        """onnxruntime compares the lower halves of Int64 as signed numbers: 3_000_000_000 would be below 5."""
        return x.dtype in (dt.int64, dt.uint32)

    def lower_rows(self, b: Builder, rows: str, count: int, kind: dt.DType) -> str:
        place = b.node(self.onnx.replace("Reduce", "Arg"), (rows,), axis=1, keepdims=1)
        return b.node("GatherElements", (rows, place), axis=1)

    def lower(self, b: Builder, x: str) -> str:
        """Unlike onnxruntime's, the result of operands with a NaN is NaN."""
        extremum, dtype = super().lower(b, x), b.type(x).dtype
        if not dtype.is_float:
            return extremum
        axes = b.const(list(self.axes(b.type(x))))
        any_nan = b.node("ReduceMax", (is_nan(b, x), axes), keepdims=int(self.keep_dims))
        return nan_where(b, any_nan, extremum, dtype)


@primitive
class ReduceMax(ReduceExtremum):
    """Largest element over `axis` (all axes by default)."""

    ufunc: ClassVar = np.maximum


@primitive
class ReduceMin(ReduceExtremum):
    """Smallest element over `axis` (all axes by default)."""

    ufunc: ClassVar = np.minimum


@primitive
class ReduceProd(ModularReduction):
    """Product over `axis` (all axes by default).

    The gradient of each element is the product of all others, which is exact for elements of 0, and takes n * n
    multiplications and elements of memory for a product of n elements.
    """

    needs_elements: ClassVar = True
    ufunc: ClassVar = np.multiply

    def lower_rows(self, b: Builder, rows: str, count: int, kind: dt.DType) -> str:
        """Products of pairs, then of pairs of these, and so on."""
        while count > 1:
            half = count // 2
            sizes = [half, half, *[1] * (count % 2)]
            first, second, *rest = b.nodes("Split", (rows, b.const(sizes)), len(sizes), axis=1)
            rows, count = b.node("Mul", (first, second)), half
            if rest:
                rows, count = b.node("Concat", (rows, *rest), axis=1), half + 1
        return rows

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        (x,), axes = inputs, self.axes(inputs[0])
        perm = (*(k for k in range(x.ndim) if k not in axes), *axes)
        moved = Transpose(perm)(x)
        count = x.size // outputs[0].size
        rows = Reshape((-1, 1, count))(moved)
        replaced = syntax.select(Tensor(np.eye(count, dtype=bool)), Tensor(1.0, x.dtype), rows)
        others = ReduceProd(axis=-1)(replaced)
        back = tuple(perm.index(k) for k in range(x.ndim))
        return (self.broadcast_back(douts[0], x) * Transpose(back)(Reshape(moved.shape)(others)),)


def is_nan(b: Builder, x: str) -> str:
    """1 where x is NaN, else 0, as bytes."""
    return b.node("Cast", (b.node("IsNaN", (x,)),), to=dt.uint8)


def nan_where(b: Builder, mask: str, value: str, dtype: dt.DType) -> str:
    """NaN where the mask of bytes is not 0, else the value."""
    nan = b.const(np.array(np.nan, dtype.numpy))
    return b.node("Where", (b.node("Cast", (mask,), to=dt.bool_), nan, value))


# Repeated elements: the adjoints of sums, whose own adjoints are sums.


@primitive
class BroadcastTo(Primitive):
    """Repeat axes of length 1, and add leading axes, up to `shape`, in which -1 is the length that x has."""

    computes: ClassVar = False

    shape: Shape = ()
    statics: ClassVar = ("shape",)

    def resolved(self, given: Shape) -> Shape:
        """The shape for an operand of the shape `given`. Raises ShapeError for a -1 without an axis of x."""
        lead = len(self.shape) - len(given)
        require(-1 not in self.shape[: max(lead, 0)], "a new axis needs a length", x=given, shape=self.shape)
        return tuple(given[k - lead] if n == -1 else n for k, n in enumerate(self.shape))

    def infer(self, x: TensorType) -> TensorType:
        fits = len(self.shape) >= x.ndim and all(n >= -1 for n in self.shape)
        require(fits, "does not broadcast to the shape", x=x, shape=self.shape)
        out = x.with_shape(*self.resolved(x.shape))
        require(broadcast(x, out) == out.shape, "does not broadcast to the shape", x=x, shape=self.shape)
        return out

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return np.broadcast_to(x, self.resolved(x.shape))

    def part(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> PartRule | None:
        (axis,), (x,) = axes, types
        shape = self.resolved(x.shape)
        if axis is None or x.shape[axis] != shape[place := axis + len(shape) - x.ndim]:
            return None
        return PartRule(BroadcastTo(replaced(shape, place, parts)), (axis,), (place,))

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (unbroadcast(douts[0], inputs[0]),)

    def lower(self, b: Builder, x: str) -> str:
        return b.node("Expand", (x, b.const(list(self.resolved(b.type(x).shape)))))

    def identity(self, types: Sequence[TensorType], known: Sequence[np.ndarray | None]) -> int | None:
        return 0 if types[0].shape == self.resolved(types[0].shape) else None


def unbroadcast(dout: Value, like: Value) -> Value:
    """Sum a gradient over the axes along which its operand was broadcast."""
    if dout.shape == like.shape:
        return dout
    lead = dout.ndim - like.ndim
    repeated = (k + lead for k, n in enumerate(like.shape) if n == 1 and dout.shape[k + lead] != 1)
    axes = (*range(lead), *repeated)
    summed = ReduceSum(axis=axes)(dout) if axes else dout
    return Reshape(like.shape)(summed)


@primitive
class Tile(Primitive):
    """x repeated `multiples` times along each axis; more multiples than axes add leading axes."""

    computes: ClassVar = False

    multiples: Shape = ()
    statics: ClassVar = ("multiples",)

    def infer(self, x: TensorType) -> TensorType:
        fits = len(self.multiples) >= x.ndim and all(m >= 1 for m in self.multiples)
        require(fits, "needs a positive multiple for each axis", x=x, multiples=self.multiples)
        return x.with_shape(*(m * n for m, n in zip(self.multiples, self._with_leading_axes(x.shape), strict=True)))

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return np.tile(x, self.multiples)

    def part(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> PartRule | None:
        (axis,) = axes
        place = (axis or 0) + len(self.multiples) - types[0].ndim
        return PartRule(self, (axis,), (place,)) if self.multiples[place] == 1 else None

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        shape = self._with_leading_axes(inputs[0].shape)
        interleaved = tuple(k for pair in zip(self.multiples, shape, strict=True) for k in pair)
        if math.prod(self.multiples) == 1:
            return (Reshape(inputs[0].shape)(douts[0]),)
        summed = ReduceSum(axis=tuple(range(0, len(interleaved), 2)))(Reshape(interleaved)(douts[0]))
        return (Reshape(inputs[0].shape)(summed),)

    def lower(self, b: Builder, x: str) -> str:
        return b.node("Tile", (b.reshape(x, self._with_leading_axes(b.type(x).shape)), b.const(list(self.multiples))))

    def identity(self, types: Sequence[TensorType], known: Sequence[np.ndarray | None]) -> int | None:
        return 0 if self.multiples == (1,) * types[0].ndim else None

    def _with_leading_axes(self, shape: Shape) -> Shape:
        return (*(1,) * (len(self.multiples) - len(shape)), *shape)


# Positions of extrema.


@family
class ExtremumPosition(Primitive):
    """Base: the position of the first extremum along `axis`, or of the first NaN; `find` is numpy's function."""

    find: ClassVar[Callable[..., Any]]
    is_flat: ClassVar = True

    needs_elements: ClassVar = True
    wider: ClassVar = {**ORDERED, dt.uint32: dt.int64, dt.bool_: dt.uint8}

    axis: int = -1
    output_type: dt.DType = dt.int32

    def infer(self, x: TensorType) -> TensorType:
        (axis,) = resolve_axes(self.axis, x.ndim)
        return TensorType(self.output_type, x.shape[:axis] + x.shape[axis + 1 :])

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(type(self).find(x, self.axis).astype(self.output_type.numpy))

    def part(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> PartRule | None:
        ((axis,), (searched,)) = axes, resolve_axes(self.axis, types[0].ndim)
        if axis is None or axis == searched:
            return None
        return PartRule(self, (axis,), (axis - (searched < axis),))

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return inputs[0].size

    def lower(self, b: Builder, x: str) -> str:
        first = b.node(self.onnx, (x,), axis=self.axis, keepdims=0, select_last_index=0)
        if b.type(x).dtype.is_float:
            nan = is_nan(b, x)
            any_nan = b.node("ReduceMax", (nan, b.const([self.axis])), keepdims=0)
            first_nan = b.node("ArgMax", (nan,), axis=self.axis, keepdims=0, select_last_index=0)
            first = b.node("Where", (b.node("Cast", (any_nan,), to=dt.bool_), first_nan, first))
        return b.node("Cast", (first,), to=self.output_type)


@primitive
class Argmax(ExtremumPosition):
    """Position of the first maximum along `axis`, or of the first NaN, as Int32 (r1.2's default) or `output_type`."""

    onnx: ClassVar = "ArgMax"
    find: ClassVar = np.argmax


@primitive
class Argmin(ExtremumPosition):
    """Position of the first minimum along `axis`, or of the first NaN, as Int32 (r1.2's default) or `output_type`."""

    onnx: ClassVar = "ArgMin"
    find: ClassVar = np.argmin


# Sums and products of all elements up to each position.


@primitive
class CumSum(Primitive):
    """The sum along `axis` of all elements up to each one: without itself if `exclusive`, from the end if `reverse`."""

    precision: ClassVar = OperandPrecision.SINGLE

    exclusive: bool = False
    reverse: bool = False
    axis: int = 0
    statics: ClassVar = ("axis",)

    def infer(self, x: TensorType) -> TensorType:
        require(-x.ndim <= self.axis < x.ndim, "axis out of range", axis=self.axis, x=x)
        require(x.dtype is not dt.bool_, "needs numbers", x=x)
        return x

    def kernel(self, x: np.ndarray) -> np.ndarray:
        moved = np.moveaxis(x, self.axis, -1)
        moved = moved[..., ::-1] if self.reverse else moved
        sums = np.cumsum(moved, -1, dtype=x.dtype)
        if self.exclusive:
            sums = np.concatenate((np.zeros_like(sums[..., :1]), sums[..., :-1]), -1)
        return np.moveaxis(sums[..., ::-1] if self.reverse else sums, -1, self.axis)

    def part(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> PartRule | None:
        return apart_from(self, types, axes, [self.axis])

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (CumSum(self.exclusive, not self.reverse, self.axis)(douts[0]),)

    def lower(self, b: Builder, x: str) -> str:
        dtype = b.type(x).dtype
        has_kernel = dtype in (dt.int32, dt.int64, dt.float32, dt.float64)
        wide = x if has_kernel else b.node("Cast", (x,), to=dt.float32 if dtype.is_float else dt.int64)
        at = b.const(np.array(self.axis, np.int64))
        sums = b.node("CumSum", (wide, at), exclusive=int(self.exclusive), reverse=int(self.reverse))
        return sums if has_kernel else b.node("Cast", (sums,), to=dtype)


@primitive
class CumProd(Primitive):
    """The products of the elements so far along an axis: `CumProd()(x, axis)`.

    `exclusive` leaves the element itself out, so the first product is 1; `reverse` begins at the end of the axis. As in
    MindSpore, the gradient divides by x and is NaN where x is 0.
    """

    precision: ClassVar = OperandPrecision.SINGLE
    wider: ClassVar = ORDERED

    exclusive: bool = False
    reverse: bool = False
    axis: int = 0
    statics: ClassVar = ("axis",)

    def infer(self, x: TensorType) -> TensorType:
        resolve_axes(self.axis, x.ndim)
        require(x.dtype.numpy.kind in "fiu", "needs numbers", x=x)
        return x

    def kernel(self, x: np.ndarray) -> np.ndarray:
        turned = np.flip(x, self.axis) if self.reverse else x
        if self.exclusive:
            first = np.ones_like(np.take(turned, [0] * (x.shape[self.axis] > 0), self.axis))
            turned = np.concatenate([first, np.take(turned, range(x.shape[self.axis] - 1), self.axis)], self.axis)
        result = np.cumprod(turned, self.axis, dtype=x.dtype)
        return np.flip(result, self.axis) if self.reverse else result

    def part(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> PartRule | None:
        return apart_from(self, types, axes, [self.axis])

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        """The sum over the products in which an element is, each divided by it."""
        (x,), (y,) = inputs, outputs
        axis, count = self.axis % x.ndim, x.shape[self.axis]
        later = np.tri(count, k=-1 if self.exclusive else 0, dtype=x.dtype.numpy)
        perm = (*(k for k in range(x.ndim) if k != axis), axis)
        moved = Transpose(perm)(douts[0] * y)
        flat = Reshape((x.size // max(count, 1), count))(moved)
        summed = flat @ Tensor(later.T if self.reverse else later)
        back = tuple(perm.index(k) for k in range(x.ndim))
        return (Transpose(back)(Reshape(moved.shape)(summed)) / x,)

    def lower(self, b: Builder, x: str) -> str:
        """By doubling: products of 1, 2, 4, ... neighbours."""
        shape, one = b.type(x).shape, b.const(np.array(1, b.type(x).dtype.numpy))
        axis, count = self.axis % len(shape), shape[self.axis]
        result = self._shifted(b, x, axis, len(shape), 1, one) if self.exclusive else x
        step = 1
        while step < count:
            result = b.node("Mul", (result, self._shifted(b, result, axis, len(shape), step, one)))
            step *= 2
        return b.node("Identity", (result,)) if result == x else result

    def _shifted(self, b: Builder, x: str, axis: int, ndim: int, by: int, one: str) -> str:
        """The elements moved along the axis, with ones in front: negative padding removes the others."""
        low, high = [0] * ndim, [0] * ndim
        low[axis], high[axis] = (-by, by) if self.reverse else (by, -by)
        return b.node("Pad", (x, b.const(low + high), one))
