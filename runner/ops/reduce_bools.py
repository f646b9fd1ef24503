"""Reductions of Bool tensors: whether all, or any, of their elements hold."""

from typing import ClassVar

import numpy as np

from runner import dtype as dt
from runner.core.lowering import Builder
from runner.core.primitive import primitive
from runner.ops.array import require
from runner.ops.reduce import Reduction
from runner.types import TensorType

__all__ = ["ReduceAll", "ReduceAny"]


class BoolReduction(Reduction):
    """Base: onnxruntime reduces no Bool, so bytes are reduced."""

    is_flat: ClassVar = True
    needs_elements: ClassVar = True

    def infer(self, x: TensorType) -> TensorType:
        require(x.dtype is dt.bool_, "the operand must be Bool", x=x)
        return super().infer(x)

    def lower(self, b: Builder, x: str) -> str:
        axes = b.const(list(self.axes(b.type(x))))
        reduced = b.node(self.onnx, (b.node("Cast", (x,), to=dt.uint8), axes), keepdims=int(self.keep_dims))
        return b.node("Cast", (reduced,), to=dt.bool_)


@primitive
class ReduceAll(BoolReduction):
    """Whether all elements over `axis` (all axes by default) are true."""

    onnx: ClassVar = "ReduceMin"
    ufunc: ClassVar = np.logical_and


@primitive
class ReduceAny(BoolReduction):
    """Whether any element over `axis` (all axes by default) is true."""

    onnx: ClassVar = "ReduceMax"
    ufunc: ClassVar = np.logical_or
