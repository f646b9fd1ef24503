"""Orders of elements along an axis: Sort, and TopK, the largest ones."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from runner import dtype as dt
from runner.core.lowering import Builder
from runner.core.operators import Gradient, Primitive, primitive
from runner.core.values import Value
from runner.ops.array import require
from runner.ops.indexing.gather import GatherDGrad
from runner.types import TensorType, resolve_axes

ORDERED = (dt.float16, dt.float32, dt.float64, dt.int32, dt.int64)  # what onnxruntime sorts


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
        (axis,) = resolve_axes(self.axis, x.ndim)
        which = "the last axis" if self.axis == -1 else f"axis {self.axis}"
        require(1 <= self.k <= x.shape[axis], f"k must be 1 to the length of {which}", k=self.k, x=x)
        return axis, self.k, self.largest
