"""Sums of all elements up to each position."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from runner import dtype as dt
from runner.core.lowering import Builder
from runner.core.operators import Gradient, Primitive, primitive
from runner.core.precision import Needs
from runner.core.values import Value
from runner.ops.array import require
from runner.types import TensorType

__all__ = ["CumSum"]


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
