"""Layers of matrices, and of stacks of matrices in the last two axes."""

import numpy as np

from runner import ops
from runner.core.value import Tensor, Value
from runner.nn.cell import Cell
from runner.ops.array import require
from runner.validation.arguments import flag, whole

__all__ = [
    "MatDet",
    "MatInverse",
    "MatMul",
    "MatrixDiag",
    "MatrixDiagPart",
    "MatrixSetDiag",
    "Tril",
    "Triu",
]


def where(mask: np.ndarray, x: Value, y: Value | None = None) -> Value:
    """x where the mask holds, else y, or 0 in the type of x."""
    other = Tensor(np.zeros((), x.dtype.numpy)) if y is None else y
    result: Value = ops.Select()(Tensor(mask), x, other)
    return result


class Tril(Cell):
    """x with zeros above diagonal `k` of its last two axes."""

    def construct(self, x: Value, k: int = 0) -> Value:
        return where(self._kept(x, k), x)

    def _kept(self, x: Value, k: int) -> np.ndarray:
        require(x.ndim >= 2, f"{type(self).__name__} needs at least two axes", x=x.type)
        whole({"layer": type(self).__name__}, -(2**31), k=k)
        kept: np.ndarray = np.tri(x.shape[-2], x.shape[-1], k, dtype=bool)
        return kept


class Triu(Tril):
    """x with zeros below diagonal `k` of its last two axes."""

    def construct(self, x: Value, k: int = 0) -> Value:
        return where(~self._kept(x, k - 1), x)


class MatrixDiag(Cell):
    """Matrices with the last axis of x on the diagonal, else 0: (..., N) to (..., N, N)."""

    def construct(self, x: Value) -> Value:
        require(x.ndim >= 1, "MatrixDiag needs at least one axis", x=x.type)
        return where(np.eye(x.shape[-1], dtype=bool), x[..., None])


class MatrixDiagPart(Cell):
    """The diagonals of matrices: (..., M, N) to (..., min(M, N))."""

    def construct(self, x: Value) -> Value:
        require(x.ndim >= 2, "MatrixDiagPart needs at least two axes", x=x.type)
        rows, columns = x.shape[-2:]
        count, flat = min(rows, columns), ops.Reshape()(x, (*x.shape[:-2], rows * columns))
        output: Value = ops.Gather(x.ndim - 2)(flat, Tensor(np.arange(count) * (columns + 1)))
        return output


class MatrixSetDiag(Cell):
    """Matrices x (..., M, N) with their diagonal replaced by `diagonal` (..., min(M, N))."""

    def construct(self, x: Value, diagonal: Value) -> Value:
        require(x.ndim >= 2, "MatrixSetDiag needs at least two axes", x=x.type)
        rows, columns = x.shape[-2:]
        expected = x.type.with_shape(*x.shape[:-2], min(rows, columns))
        require(diagonal.type == expected, "not the diagonal of x", diagonal=diagonal.type, expected=expected)
        # One number for each column, or for each row: whichever is the shorter side of x.
        spread = diagonal[..., None, :] if columns <= rows else diagonal[..., None]
        return where(np.eye(rows, columns, dtype=bool), spread, x)


class MatMul(Cell):
    """Product of matrices, of stacks that are broadcast, or of vectors, as numpy's `matmul`.

    `transpose_x1` and `transpose_x2` transpose the last two axes of an operand; a vector is not transposed.
    """

    def __init__(self, transpose_x1: bool = False, transpose_x2: bool = False) -> None:
        super().__init__()
        flag({"layer": "MatMul"}, transpose_x1=transpose_x1, transpose_x2=transpose_x2)
        self.transpose_x1, self.transpose_x2 = transpose_x1, transpose_x2

    def construct(self, x1: Value, x2: Value) -> Value:
        require(min(x1.ndim, x2.ndim) >= 1, "MatMul needs operands with axes", x1=x1.type, x2=x2.type)
        turns = self.transpose_x1 and x1.ndim > 1, self.transpose_x2 and x2.ndim > 1
        a, b = x1[None] if x1.ndim == 1 else x1, x2[:, None] if x2.ndim == 1 else x2
        if a.ndim == b.ndim == 2:
            product: Value = ops.MatMul(*turns)(a, b)
        else:
            lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
            a, b = (ops.BroadcastTo((*lead, *x.shape[-2:]))(x) for x in (a, b))
            product = ops.BatchMatMul(*turns)(a, b)
        product = product[..., 0] if x2.ndim == 1 else product
        return product if x1.ndim > 1 else product[..., 0] if x2.ndim == 1 else product[..., 0, :]


class MatInverse(Cell):
    """Inverses of positive definite matrices (N, N), or of stacks of them, by elimination without row exchange."""

    def construct(self, x: Value) -> Value:
        _require_square(x)
        n = x.shape[-1]
        unit = ops.BroadcastTo(x.shape)(Tensor(np.eye(n, dtype=x.dtype.numpy)))
        both: Value = ops.Concat(-1)([x, unit])
        for k in range(n):
            pivot = both[..., k : k + 1, :] / both[..., k : k + 1, k : k + 1]
            others = where(np.arange(n)[:, None] != k, both[..., :, k : k + 1])
            both = where(np.arange(n)[:, None] == k, ops.BroadcastTo(both.shape)(pivot), both - others * pivot)
        return both[..., n:]


class MatDet(Cell):
    """Determinants of positive definite matrices (N, N), or of stacks of them, by elimination."""

    def construct(self, x: Value) -> Value:
        _require_square(x)
        determinant = x[..., 0, 0]
        while x.shape[-1] > 1:
            x = x[..., 1:, 1:] - x[..., 1:, :1] * (x[..., :1, 1:] / x[..., :1, :1])
            determinant = determinant * x[..., 0, 0]
        return determinant


def _require_square(x: Value) -> None:
    square = x.ndim >= 2 and x.shape[-1] == x.shape[-2] and x.dtype.is_float
    require(square, "needs square matrices of floats", x=x.type)
