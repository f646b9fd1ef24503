"""Sum, mean, broadcasting (the adjoint of a sum), and positions of extrema."""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from runner import dtype as dt
from runner.core.lowering import LAST, Builder, Form, axis_last
from runner.core.operators import Gradient, Primitive, family, primitive
from runner.core.precision import Needs
from runner.core.values import Value
from runner.ops.array import Reshape, require
from runner.types import Shape, TensorType, broadcast, resolve_axes

Axis = int | tuple[int, ...] | None


@family
class Reduction(Primitive):
    """Base of operators that reduce axes by `ufunc`; `keep_dims` keeps them with length 1."""

    ufunc: ClassVar[np.ufunc]

    keep_dims: bool = False
    axis: Axis = ()
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

    def broadcast_back(self, value: Value, x: Value) -> Value:
        """A value of the shape of the result, repeated over the reduced axes."""
        return BroadcastTo(x.shape)(Reshape(self.keepdims_shape(x))(value))

    def kernel(self, x: np.ndarray) -> np.ndarray:
        axes = self.axes(TensorType.of(x))
        return np.asarray(self.ufunc.reduce(x, axes, dtype=x.dtype, keepdims=self.keep_dims))

    def lower(self, b: Builder, x: str) -> str:
        return b.node(self.onnx, (x, b.const(list(self.axes(b.type(x))))), keepdims=int(self.keep_dims))

    def forms(self, x: TensorType) -> Sequence[Form]:
        """Batch last the axes have other positions; a result without the batch axis is plain."""
        plain, axes = Form("plain", self.lower), self.axes(x)
        if x.ndim < 2:
            return (plain,)
        moved = dataclasses.replace(self, axis=tuple(axis_last(axis, x.ndim) for axis in axes))
        if 0 not in axes:
            return plain, Form("last", moved.lower, (LAST,), (LAST,))
        shape = self.infer(x).shape
        return plain, Form("last", lambda b, name: b.reshape(moved.lower(b, name), shape), (LAST,))


def is_nan(b: Builder, x: str) -> str:
    """1 where x is NaN, else 0, as bytes."""
    return b.node("Cast", (b.node("IsNaN", (x,)),), to=dt.uint8)


def nan_where(b: Builder, mask: str, value: str, dtype: dt.DType) -> str:
    """NaN where the mask of bytes is not 0, else the value."""
    nan = b.const(np.array(np.nan, dtype.numpy))
    return b.node("Where", (b.node("Cast", (mask,), to=dt.bool_), nan, value))


@primitive
class ReduceSum(Reduction):
    """Sum over `axis` (all axes by default)."""

    needs: ClassVar = Needs.SINGLE
    ufunc: ClassVar = np.add

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (self.broadcast_back(douts[0], inputs[0]),)

    def identity(self, types: Sequence[TensorType], known: Sequence[np.ndarray | None]) -> int | None:
        return 0 if types[0].shape == self.infer(types[0]).shape else None


@primitive
class ReduceMean(Reduction):
    """Mean over `axis` (all axes by default) of floats."""

    needs: ClassVar = Needs.SINGLE
    needs_elements: ClassVar = True

    def infer(self, x: TensorType) -> TensorType:
        require(x.dtype.is_float, "needs floats", x=x)
        return super().infer(x)

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(x.mean(self.axes(TensorType.of(x)), dtype=x.dtype, keepdims=self.keep_dims))

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (self.broadcast_back(douts[0] * (outputs[0].size / inputs[0].size), inputs[0]),)


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
class Argmax(Primitive):
    """Position of the first maximum along `axis`, or of the first NaN, as Int32 (r1.2's default) or `output_type`."""

    onnx: ClassVar = "ArgMax"

    is_flat: ClassVar = True

    needs_elements: ClassVar = True

    axis: int = -1
    output_type: dt.DType = dt.int32

    def infer(self, x: TensorType) -> TensorType:
        (axis,) = resolve_axes(self.axis, x.ndim)
        return TensorType(self.output_type, x.shape[:axis] + x.shape[axis + 1 :])

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(x.argmax(self.axis).astype(self.output_type.numpy))

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
class Argmin(Argmax):
    """Position of the first minimum along `axis`, or of the first NaN, as Int32 (r1.2's default) or `output_type`."""

    onnx: ClassVar = "ArgMin"

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(x.argmin(self.axis).astype(self.output_type.numpy))


# Sums of all elements up to each position.


@primitive
class CumSum(Primitive):
    """The sum along `axis` of all elements up to each one: without itself if `exclusive`, from the end if `reverse`."""

    needs: ClassVar = Needs.SINGLE

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

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (CumSum(self.exclusive, not self.reverse, self.axis)(douts[0]),)

    def lower(self, b: Builder, x: str) -> str:
        dtype = b.type(x).dtype
        has_kernel = dtype in (dt.int32, dt.int64, dt.float32, dt.float64)
        wide = x if has_kernel else b.node("Cast", (x,), to=dt.float32 if dtype.is_float else dt.int64)
        at = b.const(np.array(self.axis, np.int64))
        sums = b.node("CumSum", (wide, at), exclusive=int(self.exclusive), reverse=int(self.reverse))
        return sums if has_kernel else b.node("Cast", (sums,), to=dtype)
