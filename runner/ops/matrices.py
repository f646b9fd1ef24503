"""Products of matrices and of stacks of matrices, and addition of a bias; first the products of numpy's kernels.

Convolutions use the same products (`blocked_product`, `unpacked_product`, `unpacked_sum`).
"""

import math
from collections.abc import Sequence
from dataclasses import InitVar
from functools import partial
from itertools import product
from typing import ClassVar

import numpy as np

from runner import dtype as dt
from runner.core.lowering import LAST, MODULAR, PLAIN, TILED, Builder, Layout, Lowering, can_tile
from runner.core.operators import Gradient, Primitive, family, primitive
from runner.core.parts import Axes, PartRule, Parts, each_sample
from runner.core.precision import OperandPrecision
from runner.core.values import Operand, Value
from runner.host.threads import compute_parts, slices
from runner.ops.array import Reshape, require, require_nchw
from runner.ops.reduce import BroadcastTo, ReduceSum
from runner.types import TensorType

# Products of matrices in parts: blocks, which threads compute, and small ones, which are not packed.

BLOCK_FLOPS = 250_000_000  # large enough that packing the other operand costs little
UNPACKED = 1_000_000  # rows * inner * columns up to which OpenBLAS reads matrices where they are
LEAST_COLUMNS, LEAST_TERMS = 256, 1024  # of a part; shorter ones take longer than packing


def blocked_product(a: np.ndarray, b: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """(M, K) times (K, N), into `out` if it is given; large products in blocks of rows or columns of the result."""
    (rows, inner), columns = a.shape, b.shape[1]
    flops = 2 * rows * inner * columns
    longer = max(rows, columns)
    size = max(64, -(-longer // max(flops // BLOCK_FLOPS, 1)))
    if size >= longer:
        return np.matmul(a, b, out=out)
    result = np.empty((rows, columns), np.result_type(a, b)) if out is None else out
    blocks = slices(longer, size)
    if rows >= columns:
        compute_parts(lambda block: np.matmul(a[block], b, out=result[block]), blocks, flops)
    else:
        compute_parts(lambda block: np.matmul(a, b[:, block], out=result[:, block]), blocks, flops)
    return result


def unpacked_product(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> np.ndarray:
    """(M, K) times (K, N) into `out`; for small (M, K) in parts of the columns that OpenBLAS does not copy first.

    Measured with 6 rows: 66 GFLOP/s instead of 33, with 16 rows 87 instead of 78. One call computes all equal parts, so
    that threads seldom meet at the interpreter's lock.
    """
    step, equal = _unpacked_step(a.size, b.shape[1], LEAST_COLUMNS)
    if step >= b.shape[1]:
        return blocked_product(a, b, out)
    np.matmul(a, _stacked(b[:, :equal], step), out=_stacked(out[:, :equal], step))
    if equal < b.shape[1]:
        np.matmul(a, b[:, equal:], out=out[:, equal:])
    return out


def unpacked_sum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(M, P) times the transposed of (N, P), as (M, N); for small (M, N) as a sum over parts that are not copied first.

    The matrix with more rows is the left operand, for which OpenBLAS is up to twice as fast.
    """
    if len(a) < len(b):
        return unpacked_sum(b, a).T
    step, equal = _unpacked_step(len(a) * len(b), a.shape[1], LEAST_TERMS)
    if step >= a.shape[1]:
        return blocked_product(a, b.T)
    total = np.add.reduce(_stacked(a[:, :equal], step) @ _stacked(b[:, :equal], step).swapaxes(1, 2))
    return np.asarray(total if equal == a.shape[1] else total + a[:, equal:] @ b[:, equal:].T)


def _unpacked_step(size: int, length: int, least: int) -> tuple[int, int]:
    """How long the parts of the third axis of a product are whose other two have `size` elements, and their sum.

    What is left of the axis is shorter than a part.
    """
    most = UNPACKED // max(size, 1)
    if most < least or length <= most:
        return max(length, 1), length
    step = -(-length // -(-length // most))
    return step, length - length % step


def _stacked(x: np.ndarray, step: int) -> np.ndarray:
    """A view of (M, N) as the parts (N / step, M, step)."""
    return x.reshape(len(x), x.shape[1] // step, step).swapaxes(0, 1)


# The operators.


@family
class MatrixProduct(Primitive):
    """Base: products of matrices; `transpose_a` and `transpose_b` transpose the operands."""

    precision: ClassVar = OperandPrecision.HALF

    operands: ClassVar[str]  # what it multiplies
    stacks: ClassVar[bool]  # whether operands have leading axes

    transpose_a: bool = False
    transpose_b: bool = False

    def infer(self, x: TensorType, y: TensorType) -> TensorType:
        fits = x.ndim == y.ndim >= 2 and (x.ndim > 2) == self.stacks and x.dtype is y.dtype and x.dtype.is_float
        require(fits, f"needs two {self.operands} of floats, of one element type", x=x, y=y)
        require(x.shape[:-2] == y.shape[:-2], "leading axes differ", x=x, y=y)
        m, k = x.shape[:-3:-1] if self.transpose_a else x.shape[-2:]
        rows, n = y.shape[:-3:-1] if self.transpose_b else y.shape[-2:]
        require(k == rows, "inner axes differ", x=f"{x} has {k}", y=f"{y} has {rows}")
        return x.with_shape(*x.shape[:-2], m, n)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return 2 * outputs[0].size * inputs[0].shape[-2 if self.transpose_a else -1]

    def part(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> PartRule | None:
        """A stack of products, rows of one, or terms of the sums over the inner axis."""
        last = types[0].ndim - 1
        row, inner = (last, last - 1) if self.transpose_a else (last - 1, last)
        inner_y, column = (last, last - 1) if self.transpose_b else (last - 1, last)
        x, y = axes
        if x == inner or y == inner_y:
            return each_sample(self, axes, (inner, inner_y), (None,))
        if y is None and x == row:
            return PartRule(self, (row, None), (last - 1,))
        if x is None and y == column:
            return PartRule(self, (None, column), (last,))
        stack = y if x is None else x
        return each_sample(self, axes, (stack, stack), (stack,)) if stack is not None and stack < last - 1 else None

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        (x, y), (dout,), (ta, tb) = inputs, douts, (self.transpose_a, self.transpose_b)
        product = type(self)
        return (
            lambda: product(tb, True)(y, dout) if ta else product(False, not tb)(dout, y),
            lambda: product(True, ta)(dout, x) if tb else product(not ta, False)(x, dout),
        )


@primitive
class MatMul(MatrixProduct):
    """(M, K) times (K, N); `transpose_a` and `transpose_b` transpose the operands."""

    operands: ClassVar = "matrices"
    operand_names: ClassVar = ("x1", "x2")
    stacks: ClassVar = False

    def kernel(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return blocked_product(x.T if self.transpose_a else x, y.T if self.transpose_b else y)

    def lower(self, b: Builder, x: str, y: str) -> str:
        return self._lower_layouts(b, x, y, PLAIN, PLAIN)

    def lowerings(self, x: TensorType, y: TensorType) -> Sequence[Lowering]:
        """In batch-last layout a matrix is stored transposed; the result has the rows of x."""

        def lowering(a: Layout, b: Layout) -> Lowering:
            lower = partial(self._lower_layouts, x_layout=a, y_layout=b)
            return Lowering("product", lower, (a, b), (PLAIN if self.transpose_a else a,))

        return tuple(lowering(a, b) for a, b in product((PLAIN, LAST), repeat=2))

    def _lower_layouts(self, b: Builder, x: str, y: str, x_layout: Layout, y_layout: Layout) -> str:
        trans_x, trans_y = self.transpose_a != (x_layout is LAST), self.transpose_b != (y_layout is LAST)
        if x_layout is LAST and not self.transpose_a:
            return b.node("Gemm", (y, x), transA=int(not trans_y), transB=int(not trans_x))
        return b.node("Gemm", (x, y), transA=int(trans_x), transB=int(trans_y))


@primitive
class BatchMatMul(MatrixProduct):
    """(..., M, K) times (..., K, N) with equal leading axes, at least one; each operand can be transposed."""

    operands: ClassVar = "stacks of matrices"
    operand_names: ClassVar = ("x1", "x2")
    stacks: ClassVar = True

    def kernel(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        result: np.ndarray = (x.swapaxes(-1, -2) if self.transpose_a else x) @ (
            y.swapaxes(-1, -2) if self.transpose_b else y
        )
        return result

    def lower(self, b: Builder, x: str, y: str) -> str:
        if not b.type(x).size:  # onnxruntime leaves sums without terms uninitialised
            out = self.infer(b.type(x), b.type(y))
            return b.node("Expand", (b.const(np.zeros((), out.dtype.numpy)), b.const(list(out.shape))))
        ndim = b.type(x).ndim
        perm = (*range(ndim - 2), ndim - 1, ndim - 2)
        left = b.node("Transpose", (x,), perm=perm) if self.transpose_a else x
        right = b.node("Transpose", (y,), perm=perm) if self.transpose_b else y
        return b.node("MatMul", (left, right))


@primitive
class BiasAdd(Primitive):
    """x (N, C), or (N, C, ...) with up to three further axes, plus a bias (C,)."""

    precision: ClassVar = OperandPrecision.FIRST
    operand_names: ClassVar = ("x", "b")

    data_format: InitVar[str] = "NCHW"

    def __post_init__(self, data_format: str) -> None:
        require_nchw(data_format)

    def infer(self, x: TensorType, bias: TensorType) -> TensorType:
        fits = 2 <= x.ndim <= 5 and x.dtype is bias.dtype and x.dtype is not dt.bool_
        require(fits, "needs numbers of two to five axes and one element type", x=x, bias=bias)
        require(bias.shape == x.shape[1:2], "one bias per channel", x=f"{x} has {x.shape[1]} channels", bias=bias)
        return x

    def kernel(self, x: np.ndarray, bias: np.ndarray) -> np.ndarray:
        result: np.ndarray = x + bias.reshape(-1, *(1,) * (x.ndim - 2))
        return result

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return douts[0], lambda: BiasAddGrad()(douts[0])

    def lower(self, b: Builder, x: str, bias: str) -> str:
        return b.node("Add", (x, b.reshape(bias, (len_of(b, bias), *(1,) * (b.type(x).ndim - 2)))))

    def part(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> PartRule | None:
        return each_sample(self, axes, (0, None), (0,))

    def lowerings(self, x: TensorType, bias: TensorType) -> Sequence[Lowering]:
        layouts = (LAST, TILED) if can_tile(x) else (LAST,)
        return Lowering("plain", self.lower), *(Lowering(x.name.lower(), self._lower_rows, (x,), (x,)) for x in layouts)

    def _lower_rows(self, b: Builder, x: str, bias: str) -> str:
        return b.node("Add", (x, b.reshape(bias, (len_of(b, bias), *(1,) * (b.type(x).ndim - 1)))))


@primitive
class BiasAddGrad(Primitive):
    """Sum of a gradient over all axes except the channels: (N, C, ...) to (C,)."""

    precision: ClassVar = OperandPrecision.SINGLE
    wider: ClassVar = MODULAR

    def infer(self, dout: TensorType) -> TensorType:
        require(2 <= dout.ndim <= 5 and dout.dtype is not dt.bool_, "needs numbers of two to five axes", dout=dout)
        return dout.with_shape(dout.shape[1])

    def kernel(self, dout: np.ndarray) -> np.ndarray:
        result: np.ndarray = dout.sum((0, *range(2, dout.ndim)), dtype=dout.dtype)
        return result

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        shape = inputs[0].shape
        return (BroadcastTo(shape)(Reshape((1, shape[1], *(1,) * (len(shape) - 2)))(douts[0])),)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return inputs[0].size

    def lower(self, b: Builder, dout: str) -> str:
        return ReduceSum(axis=(0, *range(2, b.type(dout).ndim))).lower(b, dout)

    def part(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> PartRule | None:
        return each_sample(self, axes, (0,), (None,))

    def lowerings(self, dout: TensorType) -> Sequence[Lowering]:
        """Each channel is one row of memory, or four rows in tiled layout."""
        if not dout.dtype.is_float:
            return (Lowering("plain", self.lower),)
        last = Lowering("last", partial(self._lower_rows, parts=1), (LAST,))
        tiled = Lowering("tiled", partial(self._lower_rows, parts=4), (TILED,))
        return (Lowering("plain", self.lower), last, *[tiled] * can_tile(dout))

    def _lower_rows(self, b: Builder, dout: str, parts: int) -> str:
        batch, channels, *image = b.type(dout).shape
        rows = b.reshape(dout, (parts, channels, batch * math.prod(image) // parts))
        return b.node("ReduceSum", (rows, b.const([0, 2])), keepdims=0)


def len_of(b: Builder, name: str) -> int:
    """Length of the first axis of an operand."""
    return b.type(name).shape[0]


def matmul(x: Operand, y: Operand) -> Value:
    """`x @ y`: of two matrices, or of two stacks of matrices."""
    stacks = all(isinstance(operand, Value | np.ndarray) and operand.ndim > 2 for operand in (x, y))
    return (BatchMatMul() if stacks else MatMul())(x, y)
