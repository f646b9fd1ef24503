"""What is wrong with the numbers of a tensor."""

from collections.abc import Sequence

import numpy as np

from runner.core.lowering import LAST, PLAIN, TILED, Builder, Form, can_tile
from runner.core.primitive import Gradient, Primitive, primitive
from runner.core.value import Value
from runner.ops.array import require
from runner.types import TensorType


@primitive
class FloatStatus(Primitive):
    """0 when all elements of x (floats) are finite, else 1: (1,) in the element type of x."""

    def infer(self, x: TensorType) -> TensorType:
        require(x.dtype.is_float, "needs floats", x=x)
        return x.with_shape(1)

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return np.asarray([not np.isfinite(x).all()], x.dtype)

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (None,)

    def lower(self, b: Builder, x: str) -> str:
        # 0 times a number is 0, but NaN for what is not finite; and a sum of zeros cannot overflow.
        nothing = b.node("Mul", (x, b.const(0.0, like=x)))
        wrong = b.node("IsNaN", (b.node("ReduceSum", (nothing,), keepdims=0),))
        return b.reshape(b.node("Cast", (wrong,), to=b.type(x).dtype), (1,))

    def forms(self, x: TensorType) -> Sequence[Form]:
        ways = [PLAIN, *[LAST] * (x.ndim > 1), *[TILED] * can_tile(x)]
        return tuple(Form(way.name.lower(), self.lower, (way,)) for way in ways)
