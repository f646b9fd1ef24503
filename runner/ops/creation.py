"""Tensors made of numbers: filled ones, unit matrices, ranges; those like another tensor are operators of graphs."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from runner import dtype as dt
from runner.core.interpreter import is_nested
from runner.core.lowering import Builder
from runner.core.operators import ComposedOperator, Primitive, primitive
from runner.core.values import Tensor, Value
from runner.ops.array import known, require
from runner.ops.composition import as_value, require_floats
from runner.ops.reduce import BroadcastTo
from runner.types import Shape, TensorType

# Filled with one number.


def filled(dtype: dt.DType, shape: int | Shape | list[int], value: Any) -> Value:
    """A tensor whose elements are one number. In a network it is expanded when the graph runs, so that the model does
    not contain it. Raises ShapeError for negative lengths."""
    lengths = (shape,) if isinstance(shape, int) else tuple(shape)
    require(all(isinstance(n, int) and n >= 0 for n in lengths), "needs lengths of axes, from 0", shape=shape)
    number = np.asarray(value.asnumpy() if isinstance(value, Tensor) else value, dt.of(dtype).numpy)
    if not is_nested():
        return Tensor(np.full(lengths, number))
    return BroadcastTo(lengths)(Tensor(number))


@dataclass(frozen=True)
class Fill(ComposedOperator):
    """A tensor of element type, shape and number: `Fill()(type, shape, value)`."""

    def compose(self, type: dt.DType, shape: int | Shape, value: Any) -> Value:
        return filled(type, shape, value)


@dataclass(frozen=True)
class Ones(ComposedOperator):
    """Ones of a shape and element type: `Ones()(shape, type)`."""

    def compose(self, shape: int | Shape, type: dt.DType) -> Value:
        return filled(type, shape, 1)


@dataclass(frozen=True)
class Zeros(ComposedOperator):
    """Zeros of a shape and element type: `Zeros()(shape, type)`."""

    def compose(self, shape: int | Shape, type: dt.DType) -> Value:
        return filled(type, shape, 0)


class ConstantLike(Primitive):
    """Base: a constant in the type of x."""

    computes: ClassVar = False
    is_flat: ClassVar = True
    number: ClassVar[int]

    def infer(self, x: TensorType) -> TensorType:
        return x

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return np.full(x.shape, self.number, x.dtype)

    def lower(self, b: Builder, x: str) -> str:
        kind = b.type(x)
        return b.node("Expand", (b.const(np.array(self.number, kind.dtype.numpy)), b.const(list(kind.shape))))


@primitive
class OnesLike(ConstantLike):
    """Ones in the type of x."""

    number: ClassVar = 1


@primitive
class ZerosLike(ConstantLike):
    """Zeros in the type of x."""

    number: ClassVar = 0


# Unit matrices and ranges.


@dataclass(frozen=True)
class Eye(ComposedOperator):
    """Ones on the diagonal of n rows and m columns, else zeros: `Eye()(n, m, type)`."""

    def compose(self, n: int, m: int, t: dt.DType) -> Value:
        require(n >= 1 and m >= 1, "needs one row and one column at least", n=n, m=m)
        return Tensor(np.eye(n, m, dtype=dt.of(t).numpy))


@dataclass(frozen=True)
class Range(ComposedOperator):
    """start, start + delta, ... below limit, in the element type of start. The three must be known: shapes are static.

    `maxlen` limits the length.
    """

    maxlen: int = 1_000_000

    def compose(self, start: Any, limit: Any, delta: Any) -> Value:
        dtype = as_value(start).dtype
        low, high, step = (known(x, name) for x, name in ((start, "start"), (limit, "limit"), (delta, "delta")))
        require(step != 0, "delta must not be 0", delta=step)
        count = int(max(0, np.ceil((high - low) / step)))
        require(count <= self.maxlen, "the range is too long", length=count, allowed=f"up to maxlen={self.maxlen}")
        return Tensor(np.asarray(low + step * np.arange(count), dtype.numpy))


@dataclass(frozen=True)
class LinSpace(ComposedOperator):
    """`num` numbers in equal distances from start to stop, both included: `LinSpace()(start, stop, num)`."""

    def compose(self, start: Any, stop: Any, num: int) -> Value:
        first, last = as_value(start), as_value(stop)
        require_floats(start=first, stop=last)
        require(num >= 1, "num must be positive", num=num)
        steps = Tensor(np.linspace(0.0, 1.0, num, dtype=first.dtype.numpy))
        return first + (last - first) * steps


@dataclass(frozen=True)
class Eps(ComposedOperator):
    """The smallest number that changes 1 when it is added, in the type of x (floats)."""

    def compose(self, input_x: Any) -> Value:
        x = as_value(input_x)
        require_floats(x=x)
        return filled(x.dtype, x.shape, np.finfo(x.dtype.numpy).eps)
