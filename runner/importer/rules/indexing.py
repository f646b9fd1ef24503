"""Rules of operators that select elements at positions, or change them there."""

from collections.abc import Sequence

import numpy as np

from runner import dtype as dt, ops
from runner.core.values import Tensor, Value
from runner.importer.node_call import NodeCall, onnx_operator
from runner.importer.rules.elementwise import reshaped

# Selection: Gather and its relatives, Slice, Compress, CenterCropPad.


@onnx_operator("Gather")
def gather(call: NodeCall, data: Value, indices: Value) -> Value:
    """The slices of data at positions along `axis`; negative ones count from the end."""
    axis = call.axis(0, data.ndim)
    known = call.known("indices")
    if known is None:
        return ops.Gather(axis)(data, indices)
    if data.ndim == 1 and np.array_equal(known.reshape(-1), np.arange(known.size)):
        other = call.other_batch
        shape = other.reshaped(call.node.inputs[0], call.node.outputs[0], data.shape) if other else None
        if shape is not None or known.size == data.size:  # all elements in their order, as PyTorch writes as_strided
            return reshaped(data, shape or known.shape)
    return taken(call, data, axis, known)


@onnx_operator("GatherElements")
def gather_elements(call: NodeCall, data: Value, indices: Value) -> Value:
    """The elements of data at positions along `axis`, in the shape of the positions."""
    axis = call.axis(0, data.ndim)
    return ops.GatherD(axis)(data, indices)


@onnx_operator("GatherND")
def gather_nd(call: NodeCall, data: Value, indices: Value) -> Value:
    """The blocks of data at positions that are the rows of indices, for each of `batch_dims` axes of samples."""
    batch = int(call.attribute("batch_dims", 0))
    if not 0 <= batch < min(data.ndim, indices.ndim) or data.shape[:batch] != indices.shape[:batch]:
        rows = {"data": data.type, "indices": indices.type}
        raise call.error("the operands have no such samples", batch_dims=batch, **rows)
    if batch:
        samples = places(indices.shape[:-1], range(batch))
        indices = ops.Concat(-1)(Tensor(samples, indices.dtype), indices)
    return ops.GatherNd()(data, indices)


@onnx_operator("Slice", static=("starts", "ends", "axes", "steps"))
def slice_(
    call: NodeCall,
    data: Value,
    starts: np.ndarray | None = None,
    ends: np.ndarray | None = None,
    axes: np.ndarray | None = None,
    steps: np.ndarray | None = None,
) -> Value:
    """The part of data between bounds that are known at import; negative steps go backwards."""
    first, last = call.numbers("starts", starts), call.numbers("ends", ends)
    if first is None or last is None:
        raise call.error("a slice needs starts and ends")
    named = call.axes(call.numbers("axes", axes, range(len(first))), data.ndim)
    by = [1] * len(first) if steps is None else steps.tolist()
    if not len(first) == len(last) == len(named) == len(by) == len(set(named)) or 0 in by:
        rows = {"starts": first, "ends": last, "axes": named, "steps": by}
        raise call.error("starts, ends, axes and steps do not match, or a step is 0", **rows)
    ranges = list(map(range, data.shape))
    for axis, low, high, step in zip(named, first, last, by, strict=True):
        ranges[axis] = _range(int(low), int(high), int(step), data.shape[axis])
    return sliced(data, ranges)


@onnx_operator("Compress", static=("condition",))
def compress(call: NodeCall, data: Value, condition: np.ndarray) -> Value:
    """The slices (without `axis` the elements) where a condition holds that is known at import."""
    axis = call.attribute("axis", None)
    if axis is None:
        data, axis = ops.Reshape()(data, (-1,)), 0
    return taken(call, data, call.axis(0, data.ndim), np.flatnonzero(condition))


@onnx_operator("ReverseSequence")
def reverse_sequence(call: NodeCall, data: Value, sequence_lens: Value) -> Value:
    """The first elements of each sample in reverse order, as many as its length says."""
    axes = call.axis(0, data.ndim, "time_axis"), call.axis(1, data.ndim, "batch_axis")
    return ops.ReverseSequence(*axes)(data, sequence_lens)


@onnx_operator("CenterCropPad", static=("shape",))
def center_crop_pad(call: NodeCall, data: Value, shape: np.ndarray) -> Value:
    """The middle of data in axes that get shorter, and zeros around it in axes that get longer."""
    axes = call.axes(call.attribute("axes", range(data.ndim)), data.ndim)
    lengths = dict(zip(axes, (int(n) for n in shape), strict=True))
    ranges, paddings = list(map(range, data.shape)), [(0, 0)] * data.ndim
    for axis, length in lengths.items():
        missing = length - data.shape[axis]
        if missing < 0:
            ranges[axis] = range(-missing // 2, -missing // 2 + length)
        else:
            paddings[axis] = missing // 2, missing - missing // 2
    part = sliced(data, ranges)
    return ops.Pad(tuple(paddings))(part) if any(map(sum, paddings)) else part


def one_number(call: NodeCall, given: np.ndarray, name: str) -> int:
    """The whole number in an input that is known at import. Raises a located error for several ones, or none."""
    if given.size != 1 or not np.isfinite(given).all():
        raise call.error("an input must be one number", input=name, given=given.tolist())
    return int(given.reshape(-1)[0])


def taken(call: NodeCall, data: Value, axis: int, positions: np.ndarray) -> Value:
    """The slices of data at known positions: a plain slice where they are equally spaced, which is faster and has a
    simpler gradient. Raises a located error for a position out of range."""
    length = data.shape[axis]
    outside = positions[(positions < -length) | (positions >= length)]
    if outside.size:
        allowed = f"{-length} to {length - 1}"
        raise call.error("an index is out of range", index=int(outside[0]), axis=axis, allowed=allowed, data=data.type)
    found = np.where(positions < 0, positions + length, positions).astype(np.int64).reshape(-1)
    even = _as_range(found)
    if even is None:
        part: Value = ops.Gather(axis)(data, found)
    else:
        part = sliced(data, [even if k == axis else range(n) for k, n in enumerate(data.shape)])
    return reshaped(part, (*data.shape[:axis], *positions.shape, *data.shape[axis + 1 :]))


def sliced(data: Value, ranges: Sequence[range]) -> Value:
    """The part of data at these positions of each axis; an axis with a negative step is reversed afterwards."""
    if list(ranges) == list(map(range, data.shape)):
        return data
    if not all(ranges):
        begin = tuple(r.start if r else 0 for r in ranges)
        data = ops.Slice()(data, begin, tuple(1 if r else 0 for r in ranges))
        return reshaped(data, tuple(map(len, ranges)))
    upwards = [r if r.step > 0 else r[::-1] for r in ranges]
    if upwards != list(map(range, data.shape)):
        begin, end, steps = zip(*((r.start, r.stop, r.step) for r in upwards), strict=True)
        data = ops.StridedSlice()(data, begin, end, steps)
    reversed_axes = tuple(k for k, r in enumerate(ranges) if r.step < 0 and len(r) > 1)
    return ops.ReverseV2(reversed_axes)(data) if reversed_axes else data


def places(shape: Sequence[int], axes: Sequence[int]) -> np.ndarray:
    """The place of each element of an array of this shape along these axes: (*shape, axes), Int64."""
    grids = [np.arange(n).reshape([-1 if k == axis else 1 for k in range(len(shape))]) for axis, n in enumerate(shape)]
    return np.stack([np.broadcast_to(grids[axis], shape) for axis in axes], -1).astype(np.int64)


def _range(start: int, end: int, step: int, length: int) -> range:
    """The positions of a slice, with bounds that count from the end or lie outside."""
    low, high = (bound + length if bound < 0 else bound for bound in (start, end))
    longest = max(length, 1)
    step = min(max(step, -longest), longest)
    if step > 0:
        return range(min(max(low, 0), length), min(max(high, 0), length), step)
    return range(min(max(low, 0), length - 1), min(max(high, -1), length - 1), step)


def _as_range(positions: np.ndarray) -> range | None:
    """Equally spaced positions as a range, or None."""
    if positions.size == 0:
        return range(0)
    step = int(positions[1] - positions[0]) if positions.size > 1 else 1
    even = range(int(positions[0]), int(positions[0]) + step * positions.size, step) if step else None
    return even if even is not None and np.array_equal(even, positions) else None


# Changes: ScatterElements, ScatterND, OneHot, Trilu.


@onnx_operator("ScatterElements")
def scatter_elements(call: NodeCall, data: Value, indices: Value, updates: Value) -> Value:
    """Data with the elements at positions along `axis` replaced, added to, multiplied, or limited by updates."""
    axis = call.axis(0, data.ndim)
    if axis:
        data, indices, updates = map(call.with_rows, (data, indices, updates))
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
        return ops.TensorScatterUpdate()(data, positions, updates)
    if reduction == "add":
        return data + ops.ScatterNd()(positions, updates, data.shape)
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
    return total / (kind(from_data) + add(positions, kind(from_updates)))


@onnx_operator("OneHot", static=("depth", "values"))
def one_hot(call: NodeCall, indices: Value, depth: np.ndarray, values: np.ndarray) -> Value:
    """Vectors of `depth` elements along `axis`: the second of two known values at the index, else the first one."""
    count, numbers = one_number(call, depth, "depth"), ops.Cast()(indices, dt.int64)
    axis = call.axis(-1, indices.ndim + 1)
    if count < 1 or values.shape != (2,):
        raise call.error("needs a positive depth and two values", depth=count, values=values.shape)
    off, on = Tensor(values[0]), Tensor(values[1])
    numbers = ops.Select()(numbers < 0, numbers + count, numbers)
    return ops.OneHot(axis)(numbers, count, on, off)


@onnx_operator("Trilu", static=("k",))
def trilu(call: NodeCall, data: Value, k: np.ndarray | None = None) -> Value:
    """The upper (or with upper=0 the lower) triangle of the last two axes from diagonal k, and zeros."""
    if data.ndim < 2:
        raise call.error("needs two axes or more", data=data.type)
    diagonal, (rows, columns) = 0 if k is None else one_number(call, k, "k"), data.shape[-2:]
    upper = bool(call.attribute("upper", 1))
    lower = np.tri(rows, columns, min(max(diagonal, -rows), columns) - upper, dtype=bool)
    return ops.Select()(Tensor(lower != upper), data, Tensor(0, data.dtype))
