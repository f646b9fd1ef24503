"""Selection by arrays of positions, as in numpy: `x[rows]`, `x[rows, columns]`, `x[:, rows, None, columns]`."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from runner import dtype as dt
from runner.core.values import OPERATORS, Value
from runner.ops.array import Cast, Transpose
from runner.types import Shape, TensorType, broadcast

Array = np.ndarray | Value


def take_arrays(x: Value, arrays: Mapping[int, Any]) -> Value:
    """The elements of x at the positions that the arrays, by axis, have after they are broadcast against each other.

    Their common axes replace the axes of adjacent arrays; if there are others between these, they come first.
    """
    operator = OPERATORS["class"]
    axes = list(arrays)
    if len(axes) == 1:
        result: Value = operator("Gather")(axes[0])(x, _as_operand(arrays[axes[0]]))
        return result
    rest = [axis for axis in range(x.ndim) if axis not in arrays]
    common = broadcast(*map(_type, arrays.values()))
    blocks: Value = operator("GatherNd")()(_moved(x, (*axes, *rest)), _stacked([*arrays.values()], common))
    is_adjacent = axes == list(range(axes[0], axes[-1] + 1))
    before = sum(axis < axes[0] for axis in rest) if is_adjacent else 0
    count = len(common)
    return _moved(blocks, (*range(count, count + before), *range(count), *range(count + before, blocks.ndim)))


def _type(array: Array) -> TensorType:
    return array.type if isinstance(array, Value) else TensorType.of(array)


def _moved(x: Value, order: tuple[int, ...]) -> Value:
    return x if order == tuple(range(x.ndim)) else Transpose(order)(x)


def _as_operand(array: Array) -> Array:
    is_index = not isinstance(array, Value) or array.dtype in (dt.int32, dt.int64)
    return array if is_index else Cast(dt.int64)(array)


def _stacked(arrays: Sequence[Array], shape: Shape) -> Any:
    """The positions along a new last axis, as GatherNd takes them."""
    known = [array for array in arrays if not isinstance(array, Value)]
    if len(known) == len(arrays):
        return np.stack(np.broadcast_arrays(*known), -1)
    operator = OPERATORS["class"]
    columns = [Cast(dt.int64)(array) if isinstance(array, Value) else array for array in arrays]
    return operator("Stack")(-1)([operator("BroadcastTo")(shape)(column) for column in columns])
