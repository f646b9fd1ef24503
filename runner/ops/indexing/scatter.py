"""A tensor with other elements at positions that are an operand, rows of it as in GatherNd."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from runner import dtype as dt
from runner.core.lowering import Builder
from runner.core.operators import Gradient, Primitive, primitive
from runner.core.values import Value
from runner.errors import ConfigError
from runner.ops.arrangement import ZerosLike
from runner.ops.array import require
from runner.ops.indexing.gather import GatherNd, as_index, block_shape
from runner.types import TensorType


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


UFUNCS: dict[str, Any] = {
    "update": None,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": np.maximum,
    "min": np.minimum,
}


@primitive
class ScatterReduce(Primitive):
    """x with the blocks at `indices` changed by `updates` (`mode`: update, add, sub, mul, div, max, min).

    x (*L, ...), indices (..., K) Int32 or Int64 for the first K axes, from 0; updates (*indices.shape[:-1],
    *x.shape[K:]) in the element type of x. Of several updates of one block all count, except for `update`, where one of
    them remains. It has no gradient.
    """

    needs_elements: ClassVar = True

    mode: str = "update"

    def __post_init__(self) -> None:
        if self.mode not in UFUNCS:
            raise ConfigError("unknown mode", given=self.mode, allowed=", ".join(UFUNCS))

    def infer(self, x: TensorType, indices: TensorType, updates: TensorType) -> TensorType:
        require(indices.dtype in (dt.int32, dt.int64), "indices must be Int32 or Int64", indices=indices)
        depth = indices.shape[-1] if indices.ndim else 0
        require(1 <= depth <= x.ndim, "indices must name one axis of x or more", x=x, indices=indices)
        expected = x.with_shape(*indices.shape[:-1], *x.shape[depth:])
        require(updates == expected, "updates do not fit x and indices", updates=updates, expected=expected)
        require(self.mode != "div" or x.dtype.is_float, "divides floats only", x=x)
        require(self.mode == "update" or x.dtype is not dt.bool_, "needs numbers", x=x)
        return x

    def kernel(self, x: np.ndarray, indices: np.ndarray, updates: np.ndarray) -> np.ndarray:
        places = tuple(np.moveaxis(indices, -1, 0))
        for axis, place in enumerate(places):
            if place.size and place.min() < 0:
                raise IndexError(f"index {place.min()} is out of range, 0 to {x.shape[axis] - 1}")
        result = x.copy()
        ufunc = UFUNCS[self.mode]
        if ufunc is None:
            result[places] = updates
        else:
            ufunc.at(result, places, updates)
        return result

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return inputs[2].size if self.mode != "update" else 0

    def lower(self, b: Builder, x: str, indices: str, updates: str) -> str:
        places = b.node("Cast", (indices,), to=dt.int64)
        if self.mode in ("sub", "div"):  # ONNX has the inverse operations
            return self._lower_inverse(b, x, places, updates)
        if self.mode in ("max", "min") and b.type(x).dtype.is_float:
            return self._lower_extremum(b, x, places, updates)
        reduction = {"update": "none"}.get(self.mode, self.mode)
        return b.node("ScatterND", (x, places, updates), reduction=reduction)

    def _lower_inverse(self, b: Builder, x: str, places: str, updates: str) -> str:
        dtype, shape = b.type(x).dtype.numpy, b.const(list(b.type(x).shape))
        is_sub = self.mode == "sub"
        neutral = b.node("Expand", (b.const(np.array(0 if is_sub else 1, dtype)), shape))
        total = b.node("ScatterND", (neutral, places, updates), reduction="add" if is_sub else "mul")
        return b.node("Sub" if is_sub else "Div", (x, total))

    def _lower_extremum(self, b: Builder, x: str, places: str, updates: str) -> str:
        """Unlike onnxruntime's, an update with NaN is NaN."""
        extremum = b.node("ScatterND", (x, places, updates), reduction=self.mode)
        nan = b.node("Cast", (b.node("IsNaN", (updates,)),), to=dt.float32)  # CUDA adds no whole numbers so
        start = b.node("Cast", (b.node("IsNaN", (x,)),), to=dt.float32)
        count = b.node("ScatterND", (start, places, nan), reduction="add")
        return b.node("Where", (b.node("Cast", (count,), to=dt.bool_), b.const(math.nan, like=x), extremum))
