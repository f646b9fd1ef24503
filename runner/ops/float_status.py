"""Detection of values that are not finite."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from runner.core.lowering import Builder, Form, elementwise_forms
from runner.core.primitive import Primitive, primitive
from runner.ops.array import require
from runner.types import TensorType

__all__ = ["FloatStatus"]


@primitive
class FloatStatus(Primitive):
    """0 when all elements of x (floats) are finite, else 1: (1,) in the element type of x."""

    is_flat: ClassVar = True

    def infer(self, x: TensorType) -> TensorType:
        require(x.dtype.is_float, "needs floats", x=x)
        return x.with_shape(1)

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return np.asarray([not np.isfinite(x).all()], x.dtype)

    def lower(self, b: Builder, x: str) -> str:
        # x * 0 is 0 for finite x, else NaN; and a sum of zeros cannot overflow.
        zeros = b.node("Mul", (x, b.const(0.0, like=x)))
        not_finite = b.node("IsNaN", (b.node("ReduceSum", (zeros,), keepdims=0),))
        return b.reshape(b.node("Cast", (not_finite,), to=b.type(x).dtype), (1,))

    def forms(self, x: TensorType) -> Sequence[Form]:
        return elementwise_forms(self.lower, x, results=0)
