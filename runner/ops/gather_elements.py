"""Elements selected along one axis by a tensor of positions, and orders of elements along an axis."""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from runner import dtype as dt
from runner.core.lowering import Builder
from runner.core.operators import Gradient, Primitive, primitive
from runner.core.precision import Needs
from runner.core.values import Value
from runner.ops.array import require
from runner.types import Shape, TensorType, resolve_axes

__all__ = ["GatherD", "GatherDGrad", "Sort", "TopK"]

ORDERED = (dt.float16, dt.float32, dt.float64, dt.int32, dt.int64)  # what onnxruntime sorts


@primitive
class GatherD(Primitive):
    """The elements of x at the positions `index` along axis `dim`: `GatherD()(x, dim, index)`, in the shape of index.

    index is Int32 or Int64, -n to n - 1 for an axis of length n, and has the lengths of x or smaller ones in the other
    axes.
    """

    computes: ClassVar = False

    dim: int = 0

    def __call__(self, *operands: Any) -> Any:
        if len(operands) != 3:
            return super().__call__(*operands)
        return dataclasses.replace(self, dim=int(operands[1]))(operands[0], operands[2])

    def infer(self, x: TensorType, index: TensorType) -> TensorType:
        require(index.dtype in (dt.int32, dt.int64), "positions must be Int32 or Int64", index=index)
        (axis,) = resolve_axes(self.dim, x.ndim)
        lengths = zip(x.shape, index.shape, strict=False)
        fits = x.ndim == index.ndim and all(k == axis or m <= n for k, (n, m) in enumerate(lengths))
        require(fits, "index must have the axes of x, and no longer ones beside dim", x=x, index=index, dim=self.dim)
        require(x.shape[axis] > 0 or index.size == 0, "there is nothing to select", x=x, dim=self.dim)
        return x.with_shape(*index.shape)

    def kernel(self, x: np.ndarray, index: np.ndarray) -> np.ndarray:
        return np.take_along_axis(_cut(x, index.shape, self.dim), index.astype(np.int64), self.dim)

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return GatherDGrad(self.dim, inputs[0].shape)(douts[0], inputs[1]), None

    def lower(self, b: Builder, x: str, index: str) -> str:
        return b.node("GatherElements", (x, index), axis=self.dim)


def _cut(x: np.ndarray, shape: Shape, dim: int) -> np.ndarray:
    """x without the elements beyond `shape` in the axes beside `dim`."""
    axis = dim % x.ndim
    return x[tuple(slice(None) if k == axis else slice(n) for k, n in enumerate(shape))]


@primitive
class GatherDGrad(Primitive):
    """Adjoint of GatherD: the elements of dout are added to zeros of `x_shape` at their positions."""

    needs: ClassVar = Needs.SINGLE

    dim: int = 0
    x_shape: Shape = ()

    def infer(self, dout: TensorType, index: TensorType) -> TensorType:
        x = dout.with_shape(*self.x_shape)
        fits = GatherD(self.dim).infer(x, index) == dout
        require(fits, "dout must have the shape of the positions", dout=dout, index=index)
        return x

    def kernel(self, dout: np.ndarray, index: np.ndarray) -> np.ndarray:
        result = np.zeros(self.x_shape, dout.dtype)
        places: list[np.ndarray] = list(np.indices(index.shape, sparse=True))
        places[self.dim] = index
        np.add.at(result, tuple(places), dout)
        return result

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return GatherD(self.dim)(douts[0], inputs[1]), None

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return inputs[0].size

    def lower(self, b: Builder, dout: str, index: str) -> str:
        zeros = b.node("Expand", (b.const(np.zeros((), b.type(dout).dtype.numpy)), b.const(list(self.x_shape))))
        return b.node("ScatterElements", (zeros, index, dout), axis=self.dim, reduction="add")


class Ordering(Primitive):
    """Base of Sort and TopK: the first elements of an order along an axis, and their positions as Int32.

    Of equal elements the first one is first. NaN counts as infinity.
    """

    def order(self, x: TensorType) -> tuple[int, int, bool]:
        """The axis, the number of elements, and whether the largest come first."""
        raise NotImplementedError

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        require(x.dtype in ORDERED, "cannot order this element type", x=x, allowed=", ".join(map(str, ORDERED)))
        axis, count, _ = self.order(x)
        values = x.with_shape(*x.shape[:axis], count, *x.shape[axis + 1 :])
        return values, values.with_dtype(dt.int32)

    def kernel(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        axis, count, largest = self.order(TensorType.of(x))
        keys = np.where(np.isnan(x), np.inf, x).astype(x.dtype) if x.dtype.kind == "f" else x
        if largest:  # the reverse of the order of the reversed elements: equal ones keep their order
            order = np.flip(x.shape[axis] - 1 - np.argsort(np.flip(keys, axis), axis, kind="stable"), axis)
        else:
            order = np.argsort(keys, axis, kind="stable")
        order = np.take(order, range(count), axis)
        return np.take_along_axis(x, order, axis), order.astype(np.int32)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return inputs[0].size

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        axis = self.order(inputs[0].type)[0]
        return (GatherDGrad(axis, inputs[0].shape)(douts[0], outputs[1]),)

    def lower(self, b: Builder, x: str) -> tuple[str, str]:
        axis, count, largest = self.order(b.type(x))
        keys = x
        if b.type(x).dtype.is_float:
            keys = b.node("Where", (b.node("IsNaN", (x,)), b.const(np.inf, like=x), x))
        _, order = b.nodes("TopK", (keys, b.const([count])), 2, axis=axis, largest=int(largest), sorted=1)
        return b.node("GatherElements", (x, order), axis=axis), b.node("Cast", (order,), to=dt.int32)


@primitive
class Sort(Ordering):
    """The elements in ascending order along `axis`, or `descending`, and their positions as Int32.

    Of equal elements the first one is first; NaN counts as infinity.
    """

    axis: int = -1
    descending: bool = False

    def order(self, x: TensorType) -> tuple[int, int, bool]:
        """All elements of the axis."""
        (axis,) = resolve_axes(self.axis, x.ndim)
        return axis, x.shape[axis], self.descending


@primitive
class TopK(Ordering):
    """The k largest elements along the last axis in descending order, and their positions as Int32: `TopK()(x, k)`.

    Beyond the reference, along another `axis`, or the smallest ones in ascending order. Of equal elements the first one
    is first; NaN counts as infinity. The result is ordered also for `sorted=False`.
    """

    sorted: bool = False
    k: int = 1
    axis: int = -1
    largest: bool = True
    statics: ClassVar = ("k",)

    def order(self, x: TensorType) -> tuple[int, int, bool]:
        """`k` elements of the axis."""
        (axis,) = resolve_axes(self.axis, x.ndim)
        which = "the last axis" if self.axis == -1 else f"axis {self.axis}"
        require(1 <= self.k <= x.shape[axis], f"k must be 1 to the length of {which}", k=self.k, x=x)
        return axis, self.k, self.largest
