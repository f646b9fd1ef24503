"""Batched matrix product."""

import numpy as np

from runner.core.lowering import Builder
from runner.core.primitive import primitive
from runner.ops.array import require
from runner.ops.matmul import MatrixProduct
from runner.types import TensorType

__all__ = ["BatchMatMul"]


@primitive
class BatchMatMul(MatrixProduct):
    """(..., M, K) times (..., K, N) with equal leading axes, at least one; each operand can be transposed."""

    def infer(self, x: TensorType, y: TensorType) -> TensorType:
        fits = x.ndim == y.ndim >= 3 and x.dtype is y.dtype and x.dtype.is_float
        require(fits, "needs two stacks of matrices of floats, of one element type", x=x, y=y)
        require(x.shape[:-2] == y.shape[:-2], "leading axes differ", x=x, y=y)
        m, k = x.shape[:-3:-1] if self.transpose_a else x.shape[-2:]
        rows, n = y.shape[:-3:-1] if self.transpose_b else y.shape[-2:]
        require(k == rows, "inner axes differ", x=f"{x} has {k}", y=f"{y} has {rows}")
        return x.with_shape(*x.shape[:-2], m, n)

    def kernel(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        result: np.ndarray = (x.swapaxes(-1, -2) if self.transpose_a else x) @ (
            y.swapaxes(-1, -2) if self.transpose_b else y
        )
        return result

    def lower(self, b: Builder, x: str, y: str) -> str:
        ndim = b.type(x).ndim
        perm = (*range(ndim - 2), ndim - 1, ndim - 2)
        left = b.node("Transpose", (x,), perm=perm) if self.transpose_a else x
        right = b.node("Transpose", (y,), perm=perm) if self.transpose_b else y
        return b.node("MatMul", (left, right))
