"""Elements and blocks at positions that are rows of an integer operand: GatherNd, ScatterNd, TensorScatterUpdate.

`indices` (*N, K) has one position for each of its rows, along the first K axes of the tensor; the rest of the axes are
taken whole. Negative numbers count from the end of their axis.
"""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from runner import dtype as dt
from runner.core.lowering import Builder
from runner.core.operators import Gradient, Primitive, primitive
from runner.core.precision import Needs
from runner.core.values import Value
from runner.ops.array import require
from runner.ops.math import ZerosLike
from runner.types import Shape, TensorType

__all__ = ["GatherNd", "ScatterNd", "TensorScatterUpdate"]


def block_shape(x: TensorType, indices: TensorType) -> Shape:
    """Shape of the blocks of x at the positions. Raises ShapeError for indices that do not fit x."""
    require(indices.dtype in (dt.int32, dt.int64), "indices must be Int32 or Int64", indices=indices)
    fits = indices.ndim >= 1 and 1 <= indices.shape[-1] <= x.ndim
    require(fits, "the last axis of indices must have one number for each indexed axis", x=x, indices=indices)
    require(0 not in x.shape[: indices.shape[-1]], "there are no elements at any position", x=x, indices=indices)
    return (*indices.shape[:-1], *x.shape[indices.shape[-1] :])


def as_index(indices: np.ndarray) -> tuple[np.ndarray, ...]:
    """The positions as an index of numpy."""
    return tuple(np.moveaxis(indices, -1, 0))


@primitive
class GatherNd(Primitive):
    """The elements or blocks of x at the positions: (*N, *blocks)."""

    computes: ClassVar = False

    def infer(self, x: TensorType, indices: TensorType) -> TensorType:
        return x.with_shape(*block_shape(x, indices))

    def kernel(self, x: np.ndarray, indices: np.ndarray) -> np.ndarray:
        return np.asarray(x[as_index(indices)])

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        x, indices = inputs
        return lambda: ScatterNd(x.shape)(indices, douts[0]), None

    def lower(self, b: Builder, x: str, indices: str) -> str:
        return b.node("GatherND", (x, b.node("Cast", (indices,), to=dt.int64)))


@primitive
class ScatterNd(Primitive):
    """Zeros of `shape` with `updates` added at the positions. Adjoint of GatherNd."""

    needs: ClassVar = Needs.SINGLE

    shape: Shape = ()
    statics: ClassVar = ("shape",)

    def infer(self, indices: TensorType, updates: TensorType) -> TensorType:
        out = updates.with_shape(*self.shape)
        expected = block_shape(out, indices)
        require(updates.shape == expected, "updates have another shape", updates=updates, expected=expected)
        return out

    def kernel(self, indices: np.ndarray, updates: np.ndarray) -> np.ndarray:
        out = np.zeros(self.shape, updates.dtype)
        np.add.at(out, as_index(indices), updates)
        return out

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return inputs[1].size

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return None, lambda: GatherNd()(douts[0], inputs[0])

    def lower(self, b: Builder, indices: str, updates: str) -> str:
        zeros = b.node("Expand", (b.const(np.zeros((), b.type(updates).dtype.numpy)), b.const(list(self.shape))))
        return b.node("ScatterND", (zeros, b.node("Cast", (indices,), to=dt.int64), updates), reduction="add")


@primitive
class TensorScatterUpdate(Primitive):
    """x with `updates` in place of what is at the positions, which have to differ from each other."""

    computes: ClassVar = False

    def infer(self, x: TensorType, indices: TensorType, updates: TensorType) -> TensorType:
        expected = x.with_shape(*block_shape(x, indices))
        require(updates == expected, "updates have another type", updates=updates, expected=expected)
        return x

    def kernel(self, x: np.ndarray, indices: np.ndarray, updates: np.ndarray) -> np.ndarray:
        out = x.copy()
        out[as_index(indices)] = updates
        return out

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        _, indices, updates = inputs
        return (
            lambda: TensorScatterUpdate()(douts[0], indices, ZerosLike()(updates)),
            None,
            lambda: GatherNd()(douts[0], indices),
        )

    def lower(self, b: Builder, x: str, indices: str, updates: str) -> str:
        return b.node("ScatterND", (x, b.node("Cast", (indices,), to=dt.int64), updates))
