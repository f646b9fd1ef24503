"""Operators composed of others that rearrange, mirror or pad elements: diagonals, grids, edges, blocks of images; and
tensors made of numbers: filled ones, unit matrices, ranges.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from runner import dtype as dt
from runner.core.interpreter import is_nested
from runner.core.lowering import Builder
from runner.core.operators import ComposedOperator, Primitive, primitive
from runner.core.values import Symbol, Tensor, Value
from runner.ops.array import (
    Concat,
    Pad,
    Reshape,
    ReverseV2,
    Slice,
    Transpose,
    as_tensors,
    as_value,
    known,
    require,
    require_floats,
)
from runner.ops.elementwise.compare import Greater, Select
from runner.ops.indexing.gather import GatherD
from runner.ops.indexing.slices import StridedSlice
from runner.ops.reduce import BroadcastTo
from runner.types import Shape, TensorType

# Diagonals and grids.


@dataclass(frozen=True)
class Diag(ComposedOperator):
    """x (*S) on the diagonal of zeros (*S, *S)."""

    def compose(self, input_x: Value) -> Value:
        require(input_x.ndim >= 1, "needs at least one axis", x=input_x.type)
        diagonal = Tensor(np.eye(input_x.size, dtype=bool))
        rows = Select()(diagonal, Reshape((input_x.size, 1))(input_x), Tensor(np.zeros((), input_x.dtype.numpy)))
        return Reshape(input_x.shape * 2)(rows)


@dataclass(frozen=True)
class DiagPart(ComposedOperator):
    """The diagonal (*S) of x (*S, *S)."""

    def compose(self, input_x: Value) -> Value:
        half = input_x.ndim // 2
        shape = input_x.shape[:half]
        require(half > 0 and input_x.shape == shape * 2, "needs the same axes twice", x=input_x.type)
        count = int(np.prod(shape))
        flat = Reshape((input_x.size,))(input_x)
        return Reshape(shape)(StridedSlice()(flat, (0,), (input_x.size,), (count + 1,)))


@dataclass(frozen=True)
class Meshgrid(ComposedOperator):
    """The coordinates of a grid: from vectors of lengths n1, n2, ... one tensor each. `indexing` `xy` exchanges the
    first two axes."""

    indexing: str = "xy"

    def __post_init__(self) -> None:
        require(self.indexing in ("xy", "ij"), "unknown indexing", given=self.indexing, allowed="xy, ij")

    def compose(self, *vectors: Any) -> tuple[Value, ...]:
        xs = as_tensors(vectors)
        require(all(x.ndim == 1 for x in xs), "needs vectors", given=", ".join(str(x.type) for x in xs))
        places = list(range(len(xs)))
        if self.indexing == "xy" and len(xs) > 1:
            places[:2] = 1, 0
        shape = tuple(xs[places.index(k)].size for k in range(len(xs)))
        aligned = [_along(x, place, len(xs)) for place, x in zip(places, xs, strict=True)]
        return tuple(BroadcastTo(shape)(x) for x in aligned)


# Edges, joins and reversed beginnings.


@dataclass(frozen=True)
class MirrorPad(ComposedOperator):
    """x with mirrored elements around it: `MirrorPad(mode)(x, paddings)`, (before, after) for each axis.

    `REFLECT` leaves the element at the edge out, `SYMMETRIC` repeats it.
    """

    mode: str = "REFLECT"

    def __post_init__(self) -> None:
        allowed = "REFLECT, SYMMETRIC"
        require(self.mode in ("REFLECT", "SYMMETRIC"), "unknown mode", given=self.mode, allowed=allowed)

    def compose(self, input_x: Value, paddings: Any) -> Value:
        pairs = (paddings.asnumpy() if isinstance(paddings, Tensor | Symbol) else np.asarray(paddings)).tolist()
        require(len(pairs) == input_x.ndim, "one pair of paddings per axis", x=input_x.type, paddings=pairs)
        for axis, (low, high) in enumerate(pairs):
            input_x = self._padded(input_x, axis, low, high)
        return input_x

    def _padded(self, x: Value, axis: int, low: int, high: int) -> Value:
        edge, length = int(self.mode == "REFLECT"), x.shape[axis]
        fits = min(low, high) >= 0 and max(low, high) <= length - edge
        require(fits, "no more can be mirrored than there is", x=x.type, axis=axis, paddings=(low, high))
        parts = [x]
        if low:
            parts.insert(0, ReverseV2(axis)(_block(x, axis, edge, low)))
        if high:
            parts.append(ReverseV2(axis)(_block(x, axis, length - edge - high, high)))
        return Concat(axis)(*parts) if len(parts) > 1 else x


def _block(x: Value, axis: int, start: int, count: int) -> Value:
    """`count` elements of an axis, and the others whole."""
    begin, size = [0] * x.ndim, list(x.shape)
    begin[axis], size[axis] = start, count
    return Slice()(x, begin, size)


@dataclass(frozen=True)
class Padding(ComposedOperator):
    """The last axis of length 1 padded with zeros to `pad_dim_size`."""

    pad_dim_size: int = 8

    def compose(self, x: Value) -> Value:
        require(x.ndim >= 1 and x.shape[-1] == 1, "the last axis must have length 1", x=x.type)
        require(self.pad_dim_size >= 1, "pad_dim_size must be positive", given=self.pad_dim_size)
        return Pad((*((0, 0),) * (x.ndim - 1), (0, self.pad_dim_size - 1)))(x)


@dataclass(frozen=True)
class ParallelConcat(ComposedOperator):
    """Tensors joined along their first axis, whose length is 1."""

    def compose(self, *values: Any) -> Value:
        xs = as_tensors(values)
        fits = all(x.ndim >= 1 and x.shape[0] == 1 for x in xs)
        require(fits, "the first axes must have length 1", given=", ".join(str(x.type) for x in xs))
        return Concat(0)(*xs)


@dataclass(frozen=True)
class ReverseSequence(ComposedOperator):
    """The first `seq_lengths[k]` elements of axis `seq_dim` in reverse order, for each k of axis `batch_dim`."""

    seq_dim: int
    batch_dim: int = 0

    def compose(self, x: Value, seq_lengths: Any) -> Value:
        lengths = as_value(seq_lengths)
        seq, batch = self.seq_dim % x.ndim, self.batch_dim % x.ndim
        fits = seq != batch and lengths.shape == x.shape[batch : batch + 1]
        require(fits, "needs a length for each element of batch_dim", x=x.type, seq_lengths=lengths.type)
        steps = _along(Tensor(np.arange(x.shape[seq], dtype=lengths.dtype.numpy)), seq, x.ndim)
        ends = _along(lengths, batch, x.ndim)
        places = Select()(Greater()(ends, steps), ends - 1 - steps, steps)
        return GatherD(seq)(x, BroadcastTo(x.shape)(places))


def _along(vector: Value, axis: int, ndim: int) -> Value:
    """A vector along an axis, with length 1 in the others."""
    return Reshape(tuple(-1 if k == axis else 1 for k in range(ndim)))(vector)


# Blocks of the height and width of images, moved to the channels or to the batch.


@dataclass(frozen=True)
class SpaceToDepth(ComposedOperator):
    """(N, C, H, W) to (N, C * b * b, H / b, W / b): the elements of blocks of b = `block_size` become channels."""

    block_size: int

    def compose(self, x: Value) -> Value:
        b = _block_size(self.block_size)
        fits = x.ndim == 4 and x.shape[2] % b == x.shape[3] % b == 0
        require(fits, "needs (N, C, H, W) of whole blocks", x=x.type, block_size=b)
        n, c, h, w = x.shape
        split = Reshape((n, c, h // b, b, w // b, b))(x)
        return Reshape((n, c * b * b, h // b, w // b))(Transpose((0, 3, 5, 1, 2, 4))(split))


@dataclass(frozen=True)
class DepthToSpace(ComposedOperator):
    """(N, C * b * b, H, W) to (N, C, H * b, W * b): channels become the elements of blocks of b = `block_size`."""

    block_size: int

    def compose(self, x: Value) -> Value:
        b = _block_size(self.block_size)
        require(x.ndim == 4 and x.shape[1] % (b * b) == 0, "needs b * b channels for each", x=x.type, block_size=b)
        n, c, h, w = x.shape
        split = Reshape((n, b, b, c // (b * b), h, w))(x)
        return Reshape((n, c // (b * b), h * b, w * b))(Transpose((0, 3, 4, 1, 5, 2))(split))


def _block_size(given: Any) -> int:
    require(isinstance(given, int) and given >= 2, "block_size must be a whole number from 2", given=given)
    return int(given)


@dataclass(frozen=True)
class SpaceToBatchND(ComposedOperator):
    """(N, C, H, W), padded with zeros, to (N * b1 * b2, C, H / b1, W / b2): blocks are distributed over the batch."""

    block_shape: Any
    paddings: Any

    def compose(self, x: Value) -> Value:
        (b1, b2), pairs = _blocks(self.block_shape), _two_pairs(self.paddings)
        require(x.ndim == 4, "needs (N, C, H, W)", x=x.type)
        padded = Pad(((0, 0), (0, 0), *pairs))(x)
        n, c, h, w = padded.shape
        require(h % b1 == w % b2 == 0, "needs whole blocks after padding", padded=padded.type, block_shape=(b1, b2))
        split = Reshape((n, c, h // b1, b1, w // b2, b2))(padded)
        return Reshape((n * b1 * b2, c, h // b1, w // b2))(Transpose((3, 5, 0, 1, 2, 4))(split))


@dataclass(frozen=True)
class BatchToSpaceND(ComposedOperator):
    """(N * b1 * b2, C, H, W) to (N, C, H * b1, W * b2), then cropped: the inverse of SpaceToBatchND."""

    block_shape: Any
    crops: Any

    def compose(self, x: Value) -> Value:
        (b1, b2), ((top, bottom), (left, right)) = _blocks(self.block_shape), _two_pairs(self.crops)
        fits = x.ndim == 4 and x.shape[0] % (b1 * b2) == 0
        require(fits, "needs (N, C, H, W), and b1 * b2 samples for each", x=x.type, block_shape=(b1, b2))
        n, c, h, w = x.shape
        split = Reshape((b1, b2, n // (b1 * b2), c, h, w))(x)
        whole = Reshape((n // (b1 * b2), c, h * b1, w * b2))(Transpose((2, 3, 4, 0, 5, 1))(split))
        size = (*whole.shape[:2], h * b1 - top - bottom, w * b2 - left - right)
        return Slice()(whole, (0, 0, top, left), size)


@dataclass(frozen=True)
class SpaceToBatch(ComposedOperator):
    """SpaceToBatchND with one `block_size`."""

    block_size: int
    paddings: Any

    def compose(self, x: Value) -> Value:
        return SpaceToBatchND(_block_size(self.block_size), self.paddings)(x)


@dataclass(frozen=True)
class BatchToSpace(ComposedOperator):
    """BatchToSpaceND with one `block_size`."""

    block_size: int
    crops: Any

    def compose(self, x: Value) -> Value:
        return BatchToSpaceND(_block_size(self.block_size), self.crops)(x)


def _blocks(given: Any) -> tuple[int, int]:
    sizes = (given, given) if isinstance(given, int) else tuple(given)
    require(len(sizes) == 2 and min(sizes) >= 1, "block_shape must be two positive numbers", given=given)
    return sizes


def _two_pairs(given: Any) -> tuple[tuple[int, int], ...]:
    pairs = tuple(tuple(pair) for pair in given)
    fits = len(pairs) == 2 and all(len(pair) == 2 and min(pair) >= 0 for pair in pairs)
    require(fits, "needs (before, after) for height and width, from 0", given=given)
    return pairs


# Tensors made of numbers: filled ones, unit matrices, ranges; those like another tensor are operators of graphs.

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

    elementwise: ClassVar = True
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
