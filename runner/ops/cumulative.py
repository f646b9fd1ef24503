"""Operators along one axis: products so far, and reversal."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from runner.core.lowering import Builder
from runner.core.operators import Gradient, Primitive, primitive
from runner.core.precision import Needs
from runner.core.values import Tensor, Value
from runner.ops.array import Reshape, Transpose, as_tuples, require
from runner.ops.matrices import MatMul
from runner.types import TensorType, resolve_axes


@primitive
class ReverseV2(Primitive):
    """x with the axes in `axis`, a number or a tuple, in reverse order."""

    computes: ClassVar = False

    axis: int | tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "axis", as_tuples(self.axis))

    def infer(self, x: TensorType) -> TensorType:
        if self.axis != ():
            resolve_axes(self.axis, x.ndim)
        return x

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return np.flip(x, self.axis)

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (self(douts[0]),)

    def lower(self, b: Builder, x: str) -> str:
        axes = [self.axis] if isinstance(self.axis, int) else list(self.axis)
        if not axes:
            return b.node("Identity", (x,))
        ends = b.const([np.iinfo(np.int64).min] * len(axes))
        return b.node("Slice", (x, b.const([-1] * len(axes)), ends, b.const(axes), b.const([-1] * len(axes))))


@primitive
class CumProd(Primitive):
    """The products of the elements so far along an axis: `CumProd()(x, axis)`.

    `exclusive` leaves the element itself out, so the first product is 1; `reverse` begins at the end of the axis. As in
    the reference, the gradient divides by x and is NaN where x is 0.
    """

    needs: ClassVar = Needs.SINGLE

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

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        """The sum over the products in which an element is, each divided by it."""
        (x,), (y,) = inputs, outputs
        axis, count = self.axis % x.ndim, x.shape[self.axis]
        later = np.tri(count, k=-1 if self.exclusive else 0, dtype=x.dtype.numpy)
        perm = (*(k for k in range(x.ndim) if k != axis), axis)
        moved = Transpose(perm)(douts[0] * y)
        flat = Reshape((x.size // max(count, 1), count))(moved)
        summed = MatMul()(flat, Tensor(later.T if self.reverse else later))
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
