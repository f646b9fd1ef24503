"""Product over axes."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from runner.core.lowering import Builder
from runner.core.precision import Needs
from runner.core.primitive import Gradient, primitive
from runner.core.value import Tensor, Value
from runner.ops.array import Reshape, Transpose
from runner.ops.compare import Select
from runner.ops.reduce import Reduction
from runner.types import TensorType

__all__ = ["ReduceProd"]


@primitive
class ReduceProd(Reduction):
    """Product over `axis` (all axes by default).

    The gradient of each element is the product of all others, which is exact for elements of 0, and takes n * n
    multiplications and elements of memory for a product of n elements.
    """

    needs: ClassVar = Needs.SINGLE

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(x.prod(self.axes(TensorType.of(x)), dtype=x.dtype, keepdims=self.keep_dims))

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        (x,), axes = inputs, self.axes(inputs[0])
        perm = (*(k for k in range(x.ndim) if k not in axes), *axes)
        moved = Transpose(perm)(x)
        count = x.size // max(outputs[0].size, 1)
        rows = Reshape((-1, 1, count))(moved)
        others = ReduceProd(axis=-1)(Select()(Tensor(np.eye(count, dtype=bool)), Tensor(1.0, x.dtype), rows))
        back = tuple(perm.index(k) for k in range(x.ndim))
        return (self.broadcast_back(douts[0], x) * Transpose(back)(Reshape(moved.shape)(others)),)

    def lower(self, b: Builder, x: str) -> str:
        return self.lower_as(b, "ReduceProd", x)
