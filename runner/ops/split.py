"""Operators that split and join tensors along an axis, and that remove or repeat axes."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from runner.core.lowering import Builder, Form
from runner.core.operators import Gradient, Primitive, primitive
from runner.core.values import Value
from runner.ops.array import Concat, Reshape, Reshaping, as_tuples, require
from runner.ops.reduce import ReduceSum
from runner.types import Shape, TensorType, resolve_axes

__all__ = ["Split", "Squeeze", "Stack", "Tile", "Unstack"]


class TupleOutput(Primitive):
    """Base of operators that always return a tuple, even of a single tensor."""

    computes: ClassVar = False

    def __call__(self, *operands: Any) -> tuple[Any, ...]:
        outputs = super().__call__(*operands)
        return outputs if isinstance(outputs, tuple) else (outputs,)


def split_evenly(b: Builder, x: str, axis: int, count: int) -> tuple[str, ...]:
    """Lower a split into `count` equal parts, by Slices: unused ones can be removed, unused outputs of a Split not."""
    length = b.type(x).shape[axis] // count
    ends = [(k * length, (k + 1) * length) for k in range(count)]
    return tuple(b.node("Slice", (x, b.const([low]), b.const([high]), b.const([axis]))) for low, high in ends)


@primitive
class Split(TupleOutput):
    """A tuple of `output_num` equal parts of a tensor along `axis`. The adjoint is Concat."""

    axis: int = 0
    output_num: int = 1

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        (axis,) = resolve_axes(self.axis, x.ndim)
        fits = self.output_num >= 1 and x.shape[axis] % self.output_num == 0
        require(fits, "the axis does not split evenly", x=x, axis=self.axis, output_num=self.output_num)
        part = x.with_shape(*x.shape[:axis], x.shape[axis] // self.output_num, *x.shape[axis + 1 :])
        return (part,) * self.output_num

    def kernel(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        return tuple(np.split(x, self.output_num, self.axis))

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (Concat(self.axis)(*douts),)

    def lower(self, b: Builder, x: str) -> tuple[str, ...]:
        return split_evenly(b, x, self.axis % b.type(x).ndim, self.output_num)


@primitive
class Unstack(TupleOutput):
    """A tuple of the tensors along `axis`, without that axis. The adjoint is Stack."""

    axis: int = 0

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        (axis,) = resolve_axes(self.axis, x.ndim)
        require(x.shape[axis] >= 1, "the axis has length 0", x=x, axis=self.axis)
        return (x.with_shape(*x.shape[:axis], *x.shape[axis + 1 :]),) * x.shape[axis]

    def kernel(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        return tuple(np.moveaxis(x, self.axis, 0))

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (Stack(self.axis % inputs[0].ndim)(*douts),)

    def lower(self, b: Builder, x: str) -> tuple[str, ...]:
        types = self.infer(b.type(x))
        axis = self.axis % b.type(x).ndim
        return tuple(b.reshape(part, types[0].shape) for part in split_evenly(b, x, axis, len(types)))


@primitive
class Stack(Primitive):
    """Tensors of one type joined along a new axis."""

    computes: ClassVar = False

    axis: int = 0

    def infer(self, *xs: TensorType) -> TensorType:
        require(len(xs) > 0, "needs at least one tensor")
        require(len(set(xs)) == 1, "all tensors must have one type", given=", ".join(map(str, xs)))
        at = self._at(xs[0].ndim)
        return xs[0].with_shape(*xs[0].shape[:at], len(xs), *xs[0].shape[at:])

    def kernel(self, *xs: np.ndarray) -> np.ndarray:
        return np.stack(xs, self.axis)

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return Unstack(self.axis)(douts[0])

    def lower(self, b: Builder, *xs: str) -> str:
        shape, at = b.type(xs[0]).shape, self._at(b.type(xs[0]).ndim)
        return b.node("Concat", [b.reshape(x, (*shape[:at], 1, *shape[at:])) for x in xs], axis=at)

    def _at(self, ndim: int) -> int:
        require(-ndim - 1 <= self.axis <= ndim, "axis out of range", axis=self.axis, allowed=f"{-ndim - 1} to {ndim}")
        return self.axis % (ndim + 1)


@primitive
class Squeeze(Reshaping):
    """x without the axes in `axis`, which must have length 1; () removes all axes of length 1."""

    axis: int | tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "axis", as_tuples(self.axis))

    def infer(self, x: TensorType) -> TensorType:
        ones = tuple(k for k, n in enumerate(x.shape) if n == 1)
        removed = ones if self.axis == () else resolve_axes(self.axis, x.ndim)
        require(set(removed) <= set(ones), "only axes of length 1 can be removed", x=x, axis=self.axis)
        return x.with_shape(*(n for k, n in enumerate(x.shape) if k not in removed))

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return x.reshape(self.infer(TensorType.of(x)).shape)

    def forms(self, x: TensorType) -> Sequence[Form]:
        return (Form("plain", self.lower),)


@primitive
class Tile(Primitive):
    """x repeated `multiples` times along each axis; more multiples than axes add leading axes."""

    computes: ClassVar = False

    multiples: Shape = ()
    statics: ClassVar = ("multiples",)

    def infer(self, x: TensorType) -> TensorType:
        fits = len(self.multiples) >= x.ndim and all(m >= 1 for m in self.multiples)
        require(fits, "needs a positive multiple for each axis", x=x, multiples=self.multiples)
        return x.with_shape(*(m * n for m, n in zip(self.multiples, self._with_leading_axes(x.shape), strict=True)))

    def kernel(self, x: np.ndarray) -> np.ndarray:
        return np.tile(x, self.multiples)

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        shape = self._with_leading_axes(inputs[0].shape)
        interleaved = tuple(k for pair in zip(self.multiples, shape, strict=True) for k in pair)
        if math.prod(self.multiples) == 1:
            return (Reshape(inputs[0].shape)(douts[0]),)
        summed = ReduceSum(axis=tuple(range(0, len(interleaved), 2)))(Reshape(interleaved)(douts[0]))
        return (Reshape(inputs[0].shape)(summed),)

    def lower(self, b: Builder, x: str) -> str:
        return b.node("Tile", (b.reshape(x, self._with_leading_axes(b.type(x).shape)), b.const(list(self.multiples))))

    def identity(self, types: Sequence[TensorType], known: Sequence[np.ndarray | None]) -> int | None:
        return 0 if self.multiples == (1,) * types[0].ndim else None

    def _with_leading_axes(self, shape: Shape) -> Shape:
        return (*(1,) * (len(self.multiples) - len(shape)), *shape)
