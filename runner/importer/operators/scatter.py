"""Rules for operators that change elements at positions: ScatterElements, ScatterND, OneHot, Trilu."""

import numpy as np

from runner import dtype as dt, ops
from runner.core.values import Tensor, Value
from runner.importer.node_call import NodeCall
from runner.importer.operators.indexing import axis_of, one_number, places
from runner.importer.table import onnx_operator


@onnx_operator("ScatterElements")
def scatter_elements(call: NodeCall, data: Value, indices: Value, updates: Value) -> Value:
    """Data with the elements at positions along `axis` replaced, added to, multiplied, or limited by updates."""
    axis = axis_of(call, call.attribute("axis", 0), data.ndim)
    if indices.ndim != data.ndim or indices.shape != updates.shape:
        rows = {"data": data.type, "indices": indices.type, "updates": updates.type}
        raise call.error("indices and updates must have one shape, with the axes of data", **rows)
    parts, others = [ops.Reshape()(indices, (*indices.shape, 1))], [k for k in range(data.ndim) if k != axis]
    if others:
        known = places(indices.shape, others)
        before, after = Tensor(known[..., :axis], indices.dtype), Tensor(known[..., axis:], indices.dtype)
        parts = [part for part in (before, *parts, after) if part.size or not indices.size]
    return _scattered(call, data, ops.Concat(-1)(*parts) if len(parts) > 1 else parts[0], updates)


@onnx_operator("Scatter")
def scatter(call: NodeCall, data: Value, indices: Value, updates: Value) -> Value:
    """Data with the elements at positions along `axis` replaced: the name of ScatterElements before opset 11."""
    return scatter_elements(call, data, indices, updates)


@onnx_operator("ScatterND")
def scatter_nd(call: NodeCall, data: Value, indices: Value, updates: Value) -> Value:
    """Data with the blocks at positions, the rows of indices, replaced, added to, multiplied, or limited by updates."""
    return _scattered(call, data, indices, updates)


def _scattered(call: NodeCall, data: Value, positions: Value, updates: Value) -> Value:
    """Data changed at positions (*N, K) of its first K axes. Products of updates have no gradient."""
    reduction = call.choice("reduction", "none", "none", "add", "mul", "max", "min")
    if 0 in positions.shape:
        return data
    if reduction == "none":
        replaced: Value = ops.TensorScatterUpdate()(data, positions, updates)
        return replaced
    if reduction == "add":
        total: Value = data + ops.ScatterNd()(positions, updates, data.shape)
        return total
    lengths = Tensor(np.array(data.shape[: positions.shape[-1]]), positions.dtype)
    from_zero = ops.Select()(positions < 0, positions + lengths, positions)
    return _reduced(reduction, data, from_zero, updates)


def _reduced(reduction: str, data: Value, positions: Value, updates: Value) -> Value:
    """Products, or extrema: equal ones share the gradient equally."""
    result: Value = ops.ScatterReduce(reduction)(data, positions, updates)
    if reduction == "mul" or not data.dtype.is_float:
        return result
    # The same numbers once more, as the mean of the elements that they come from: this has the gradient.
    add, select, zero = ops.ScatterNd(data.shape), ops.Select(), Tensor(0.0, data.dtype)
    from_data, from_updates = ops.Equal()(result, data), ops.Equal()(ops.GatherNd()(result, positions), updates)
    total = select(from_data, data, zero) + add(positions, select(from_updates, updates, zero))
    kind = ops.Cast(data.dtype)
    mean: Value = total / (kind(from_data) + add(positions, kind(from_updates)))
    return mean


@onnx_operator("OneHot", static=("depth", "values"))
def one_hot(call: NodeCall, indices: Value, depth: np.ndarray, values: np.ndarray) -> Value:
    """Vectors of `depth` elements along `axis`: the second of two known values at the index, else the first one."""
    count, numbers = one_number(call, depth, "depth"), ops.Cast()(indices, dt.int64)
    axis = axis_of(call, call.attribute("axis", -1), indices.ndim + 1)
    if count < 1 or values.shape != (2,):
        raise call.error("needs a positive depth and two values", depth=count, values=values.shape)
    off, on = Tensor(values[0]), Tensor(values[1])
    numbers = ops.Select()(numbers < 0, numbers + count, numbers)
    result: Value = ops.OneHot(axis)(numbers, count, on, off)
    return result


@onnx_operator("Trilu", static=("k",))
def trilu(call: NodeCall, data: Value, k: np.ndarray | None = None) -> Value:
    """The upper (or with upper=0 the lower) triangle of the last two axes from diagonal k, and zeros."""
    if data.ndim < 2:
        raise call.error("needs two axes or more", data=data.type)
    diagonal, (rows, columns) = 0 if k is None else one_number(call, k, "k"), data.shape[-2:]
    upper = bool(call.attribute("upper", 1))
    lower = np.tri(rows, columns, min(max(diagonal, -rows), columns) - upper, dtype=bool)
    result: Value = ops.Select()(Tensor(lower != upper), data, Tensor(0, data.dtype))
    return result
