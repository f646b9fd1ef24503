"""Matrix products and the bias that follows them."""

from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import ClassVar

import numpy as np

from runner.core.lowering import LAST, PLAIN, TILED, Builder, Form, Layout, can_tile
from runner.core.precision import Needs
from runner.core.primitive import Gradient, Primitive, primitive
from runner.core.value import OPERATORS, Value
from runner.ops.array import require
from runner.types import Shape, TensorType


@primitive
class MatMul(Primitive):
    """(M, K) times (K, N); each operand may be given transposed."""

    needs: ClassVar = Needs.HALF

    transpose_a: bool = False
    transpose_b: bool = False

    def infer(self, x: TensorType, y: TensorType) -> TensorType:
        fits = x.ndim == y.ndim == 2 and x.dtype is y.dtype and x.dtype.is_float
        require(fits, "needs two matrices of floats, of one element type", x=x, y=y)
        (m, k), (rows, n) = _turned(x.shape, self.transpose_a), _turned(y.shape, self.transpose_b)
        require(k == rows, "inner axes differ", x=f"{x} has {k}", y=f"{y} has {rows}")
        return x.with_shape(m, n)

    def kernel(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        made: np.ndarray = (x.T if self.transpose_a else x) @ (y.T if self.transpose_b else y)
        return made

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        (x, y), (dout,), (ta, tb) = inputs, douts, (self.transpose_a, self.transpose_b)
        return (
            lambda: MatMul(tb, True)(y, dout) if ta else MatMul(False, not tb)(dout, y),
            lambda: MatMul(True, ta)(dout, x) if tb else MatMul(not ta, False)(x, dout),
        )

    def lower(self, b: Builder, x: str, y: str) -> str:
        return self._lower_turned(b, x, y, PLAIN, PLAIN)

    def forms(self, x: TensorType, y: TensorType) -> Sequence[Form]:
        """A matrix that lies batch last is one that is given transposed; the rows of the result come from x."""
        return tuple(
            Form(
                "product", partial(self._lower_turned, x_lies=a, y_lies=b), (a, b), (PLAIN if self.transpose_a else a,)
            )
            for a, b in product((PLAIN, LAST), repeat=2)
        )

    def _lower_turned(self, b: Builder, x: str, y: str, x_lies: Layout, y_lies: Layout) -> str:
        turns = self.transpose_a != (x_lies is LAST), self.transpose_b != (y_lies is LAST)
        if x_lies is LAST and not self.transpose_a:
            return b.node("Gemm", (y, x), transA=int(not turns[1]), transB=int(not turns[0]))
        return b.node("Gemm", (x, y), transA=int(turns[0]), transB=int(turns[1]))


def _turned(shape: Shape, turn: bool) -> Shape:
    return shape[::-1] if turn else shape


@primitive
class BiasAdd(Primitive):
    """x (N, C) or (N, C, H, W) plus a bias (C,)."""

    needs: ClassVar = Needs.FIRST

    def infer(self, x: TensorType, bias: TensorType) -> TensorType:
        require(
            x.ndim in (2, 4) and x.dtype is bias.dtype, "needs two or four axes and one element type", x=x, bias=bias
        )
        require(bias.shape == x.shape[1:2], "one bias per channel", x=f"{x} has {x.shape[1]} channels", bias=bias)
        return x

    def kernel(self, x: np.ndarray, bias: np.ndarray) -> np.ndarray:
        made: np.ndarray = x + bias.reshape(-1, *(1,) * (x.ndim - 2))
        return made

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return douts[0], lambda: BiasAddGrad()(douts[0])

    def lower(self, b: Builder, x: str, bias: str) -> str:
        return b.node("Add", (x, b.reshape(bias, (len_of(b, bias), *(1,) * (b.type(x).ndim - 2)))))

    def forms(self, x: TensorType, bias: TensorType) -> Sequence[Form]:
        ways = (LAST, TILED) if can_tile(x) else (LAST,)
        return Form("plain", self.lower), *(Form(w.name.lower(), self._lower_rows, (w,), (w,)) for w in ways)

    def _lower_rows(self, b: Builder, x: str, bias: str) -> str:
        return b.node("Add", (x, b.reshape(bias, (len_of(b, bias), *(1,) * (b.type(x).ndim - 1)))))


@primitive
class BiasAddGrad(Primitive):
    """Sum of a gradient over everything but the channels: (N, C, ...) to (C,)."""

    needs: ClassVar = Needs.SINGLE

    def infer(self, dout: TensorType) -> TensorType:
        require(dout.ndim in (2, 4), "needs two or four axes", dout=dout)
        return dout.with_shape(dout.shape[1])

    def kernel(self, dout: np.ndarray) -> np.ndarray:
        made: np.ndarray = dout.sum((0, *range(2, dout.ndim)), dtype=dout.dtype)
        return made

    def lower(self, b: Builder, dout: str) -> str:
        axes = [0, *range(2, b.type(dout).ndim)]
        return b.node("ReduceSum", (dout, b.const(axes)), keepdims=0)

    def forms(self, dout: TensorType) -> Sequence[Form]:
        """Each channel is one row of memory, in tiles four."""
        last = Form("last", partial(self._lower_rows, parts=1), (LAST,))
        tiled = Form("tiled", partial(self._lower_rows, parts=4), (TILED,))
        return (Form("plain", self.lower), last, *[tiled] * can_tile(dout))

    def _lower_rows(self, b: Builder, dout: str, parts: int) -> str:
        rows = b.reshape(dout, (parts, b.type(dout).shape[1], b.type(dout).size // (parts * b.type(dout).shape[1])))
        return b.node("ReduceSum", (rows, b.const([0, 2])), keepdims=0)


def len_of(b: Builder, name: str) -> int:
    """Length of the first axis of an operand."""
    return b.type(name).shape[0]


OPERATORS["MatMul"] = MatMul()
