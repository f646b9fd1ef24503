"""Rounding to whole numbers, and tests for numbers that are not finite."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from runner import dtype as dt
from runner.core.lowering import Builder, Form, elementwise_forms
from runner.core.operators import Primitive, primitive
from runner.ops.elementwise import Unary
from runner.types import TensorType

__all__ = ["Ceil", "IsFinite", "IsInf", "IsNan", "Rint", "Round"]


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


class FloatTest(Primitive):
    """Base: Bool for each element, a constant for whole numbers and Bool."""

    is_flat: ClassVar = True
    ufunc: ClassVar[Any]

    def infer(self, x: TensorType) -> TensorType:
        return x.with_dtype(dt.bool_)

    def kernel(self, x: np.ndarray) -> np.ndarray:
        result: np.ndarray = self.ufunc(x)
        return result

    def lower(self, b: Builder, x: str) -> str:
        type = b.type(x)
        if type.dtype.is_float:
            return self.lower_floats(b, x)
        same = b.node("Equal", (x, x))  # onnxruntime's tests of numbers take floats only
        return same if self.ufunc(0) else b.node("Not", (same,))

    def lower_floats(self, b: Builder, x: str) -> str:
        """The test of floats in ONNX."""
        return b.node(self.onnx, (x,))

    def forms(self, x: TensorType) -> Sequence[Form]:
        return elementwise_forms(self.lower, x)


@primitive
class IsNan(FloatTest):
    """Whether each element is NaN."""

    ufunc: ClassVar = np.isnan
    onnx: ClassVar = "IsNaN"


@primitive
class IsInf(FloatTest):
    """Whether each element is infinite."""

    ufunc: ClassVar = np.isinf


@primitive
class IsFinite(FloatTest):
    """Whether each element is neither NaN nor infinite."""

    ufunc: ClassVar = np.isfinite

    def lower_floats(self, b: Builder, x: str) -> str:
        return b.node("Not", (b.node("Or", (b.node("IsNaN", (x,)), b.node("IsInf", (x,)))),))
