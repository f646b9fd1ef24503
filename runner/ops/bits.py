"""Operators on the bits of whole numbers."""

from typing import ClassVar

import numpy as np

from runner.core.operators import primitive
from runner.ops.array import require
from runner.ops.elementwise import Binary, Unary
from runner.types import TensorType

__all__ = ["BitwiseAnd", "BitwiseOr", "BitwiseXor", "Invert"]


class Bitwise(Binary):
    """Base: two operands of whole numbers that are broadcast."""

    is_flat: ClassVar = True

    def infer(self, x: TensorType, y: TensorType) -> TensorType:
        require(x.dtype.numpy.kind in "iu", "needs whole numbers", x=x)
        return super().infer(x, y)


@primitive
class BitwiseAnd(Bitwise):
    """The bits that both x and y have."""

    ufunc: ClassVar = np.bitwise_and


@primitive
class BitwiseOr(Bitwise):
    """The bits that x or y has."""

    ufunc: ClassVar = np.bitwise_or


@primitive
class BitwiseXor(Bitwise):
    """The bits that one of x and y has."""

    ufunc: ClassVar = np.bitwise_xor


@primitive
class Invert(Unary):
    """The bits that x does not have."""

    is_flat: ClassVar = True
    floats_only: ClassVar = False
    ufunc: ClassVar = np.invert
    onnx: ClassVar = "BitwiseNot"

    def infer(self, x: TensorType) -> TensorType:
        require(x.dtype.numpy.kind in "iu", "needs whole numbers", x=x)
        return x
