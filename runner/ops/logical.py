"""Elementwise logic of Bool tensors with broadcasting."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from runner import dtype as dt
from runner.core.primitive import Gradient, primitive
from runner.core.value import Value
from runner.ops.array import require
from runner.ops.elementwise import Binary, Unary
from runner.types import TensorType

__all__ = ["LogicalAnd", "LogicalNot", "LogicalOr"]


class Logic(Binary):
    """Base: two Bool operands, no gradient."""

    bools: ClassVar = True

    def infer(self, x: TensorType, y: TensorType) -> TensorType:
        require(x.dtype is y.dtype is dt.bool_, "both operands must be Bool", x=x, y=y)
        return super().infer(x, y)

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return None, None


@primitive
class LogicalAnd(Logic):
    """x and y."""

    ufunc: ClassVar = np.logical_and
    onnx: ClassVar = "And"


@primitive
class LogicalOr(Logic):
    """x or y."""

    ufunc: ClassVar = np.logical_or
    onnx: ClassVar = "Or"


@primitive
class LogicalNot(Unary):
    """not x."""

    ufunc: ClassVar = np.logical_not
    onnx: ClassVar = "Not"

    def infer(self, x: TensorType) -> TensorType:
        require(x.dtype is dt.bool_, "the operand must be Bool", x=x)
        return x

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (None,)
