"""Rules of shapes: what they are is known when the network is imported."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from runner import dtype as dt, ops
from runner.core.values import Tensor, Value
from runner.host.machine import require_memory
from runner.importer.node_call import NodeCall, OtherBatch, onnx_operator
from runner.importer.rules.elementwise import reshaped, spread

# The numbers of element types in ONNX files.
TYPES = {
    1: dt.float32,
    2: dt.uint8,
    3: dt.int8,
    4: dt.uint16,
    5: dt.int16,
    6: dt.int32,
    7: dt.int64,
    9: dt.bool_,
    10: dt.float16,
    11: dt.float64,
    12: dt.uint32,
    13: dt.uint64,
}


@onnx_operator("Shape")
def shape(call: NodeCall, x: Value) -> np.ndarray:
    """The lengths of the axes, known at import."""
    return np.asarray(x.shape[call.attribute("start", 0) : call.attribute("end", x.ndim)], np.int64)


@onnx_operator("Size")
def size(call: NodeCall, x: Value) -> np.ndarray:
    """The number of elements, known at import."""
    return np.asarray(x.size, np.int64)


@onnx_operator("Reshape", static=("shape",))
def reshape(call: NodeCall, x: Value, shape: np.ndarray) -> Value:
    """x in another shape: 0 keeps a length, -1 is what is left. A batch size that the file fixes may be another one."""
    other = call.other_batch.reshaped(call.node.inputs[0], call.node.outputs[0], x.shape) if call.other_batch else None
    if other is not None:
        return reshaped(x, other)
    wanted = call.adapted([int(n) for n in shape.tolist()])
    if not call.attribute("allowzero", 0):
        wanted = [x.shape[k] if n == 0 and k < x.ndim else n for k, n in enumerate(wanted)]
    known = math.prod(n for n in wanted if n != -1)
    if -1 in wanted and known and x.size % known == 0:
        wanted[wanted.index(-1)] = x.size // known
    return reshaped(x, tuple(wanted))


@onnx_operator("Flatten")
def flatten(call: NodeCall, x: Value) -> Value:
    """x as a matrix: the axes before `axis`, and those from it on."""
    axis = call.attribute("axis", 1)
    axis += x.ndim if axis < 0 else 0
    return reshaped(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


@onnx_operator("Squeeze", static=("axes",))
def squeeze(call: NodeCall, x: Value, axes: np.ndarray | None = None) -> Value:
    """x without axes of length 1."""
    chosen = call.setting("axes", axes)
    gone = {axis % x.ndim for axis in chosen} if chosen is not None else {k for k, n in enumerate(x.shape) if n == 1}
    if any(x.shape[axis] != 1 for axis in gone):
        raise call.error("only axes of length 1 can be removed", axes=sorted(gone), shape=x.shape)
    return reshaped(x, tuple(n for k, n in enumerate(x.shape) if k not in gone))


@onnx_operator("Unsqueeze", static=("axes",))
def unsqueeze(call: NodeCall, x: Value, axes: np.ndarray | None = None) -> Value:
    """x with new axes of length 1."""
    chosen = call.setting("axes", axes) or []
    ndim = x.ndim + len(chosen)
    new, lengths = {axis % ndim for axis in chosen}, iter(x.shape)
    return reshaped(x, tuple(1 if k in new else next(lengths) for k in range(ndim)))


@onnx_operator("Transpose")
def transpose(call: NodeCall, x: Value) -> Value:
    """x with its axes in another order, by default reversed."""
    perm = tuple(call.attribute("perm", tuple(reversed(range(x.ndim)))))
    return x if perm == tuple(range(x.ndim)) else ops.Transpose()(x, perm)


@onnx_operator("Concat")
def concat(call: NodeCall, *xs: Value) -> Value:
    """Values one after another along an axis."""
    if call.attribute("axis") != 0 and call.other_batch is not None:
        xs = _of_one_batch(call, xs, call.other_batch)
    parts = [x for x in xs if x.ndim > 1 or x.size] or list(xs[:1])
    return parts[0] if len(parts) == 1 else ops.Concat(call.attribute("axis"))(tuple(parts))


def _of_one_batch(call: NodeCall, xs: tuple[Value, ...], other: OtherBatch) -> tuple[Value, ...]:
    """The values, where those that are equal for all samples of the file's batch are so for all of another one."""
    if not any(x.ndim and x.shape[0] == other.rows for x in xs):
        return xs
    return tuple(
        spread(_first(x), (other.rows, *x.shape[1:])) if other.is_constant(name, x.shape) and _has_equal_rows(x) else x
        for name, x in zip(call.node.inputs, xs, strict=True)
    )


def _has_equal_rows(x: Value) -> bool:
    if x.shape[0] == 1:
        return True
    array = x.asnumpy() if isinstance(x, Tensor) else None
    return array is not None and bool((array == array[:1]).all())


def _first(x: Value) -> Value:
    return x if x.shape[0] == 1 else _part(x, 0, 0, 1)


@onnx_operator("Split", static=("sizes",))
def split(call: NodeCall, x: Value, sizes: np.ndarray | None = None) -> tuple[Value, ...]:
    """Parts of x along an axis, of equal or given lengths."""
    axis = call.attribute("axis", 0) % x.ndim
    length, count = x.shape[axis], call.attribute("num_outputs", call.outputs)
    each = -(-length // count)
    lengths = call.setting("split", sizes) or [min(each, length - k * each) for k in range(count)]
    if sum(lengths) != length or min(lengths) < 0:
        raise call.error("the parts of a split are not the whole", axis=axis, length=length, parts=lengths)
    if len(set(lengths)) == 1:
        return _as_tuple(ops.Split(axis, len(lengths))(x))
    starts = [sum(lengths[:k]) for k in range(len(lengths))]
    return tuple(_part(x, axis, start, n) for start, n in zip(starts, lengths, strict=True))


def _as_tuple(value: Any) -> tuple[Value, ...]:
    return value if isinstance(value, tuple) else (value,)


def _part(x: Value, axis: int, start: int, length: int) -> Value:
    begin = tuple(start if k == axis else 0 for k in range(x.ndim))
    return ops.Slice()(x, begin, tuple(length if k == axis else n for k, n in enumerate(x.shape)))


@onnx_operator("Expand", static=("shape",))
def expand(call: NodeCall, x: Value, shape: np.ndarray) -> Value:
    """x broadcast against a shape. A batch size that the file fixes may be another one."""
    other = call.other_batch.expanded(call.node.inputs[0], call.node.outputs[0], x.shape) if call.other_batch else None
    wanted = other or tuple(int(n) for n in shape.tolist())
    return spread(x, np.broadcast_shapes(x.shape, wanted))


@onnx_operator("Tile", static=("repeats",))
def tile(call: NodeCall, x: Value, repeats: np.ndarray) -> Value:
    """x repeated along each axis."""
    counts = tuple(int(n) for n in repeats.tolist())
    return x if set(counts) <= {1} else ops.Tile()(x, counts)


@onnx_operator("ConstantOfShape", static=("shape",))
def constant_of_shape(call: NodeCall, shape: np.ndarray) -> np.ndarray:
    """One number in all places of a shape, known at import."""
    value = call.attribute("value", np.zeros(1, np.float32))
    lengths = tuple(int(n) for n in shape.tolist())
    if any(n < 0 for n in lengths):
        raise call.error("a shape has a negative length", shape=lengths)
    require_memory(math.prod(lengths) * value.itemsize, node=call.node.name)
    return np.full(lengths, value.reshape(-1)[0], value.dtype)


@onnx_operator("Range", static=("start", "limit", "delta"))
def range_(call: NodeCall, start: np.ndarray, limit: np.ndarray, delta: np.ndarray) -> np.ndarray:
    """Numbers from start up to limit in steps of delta, known at import."""
    if not delta:
        raise call.error("the step of a Range is 0")
    count = max(0.0, math.ceil((float(limit) - float(start)) / float(delta)))
    require_memory(int(count) * start.itemsize, node=call.node.name)
    return np.asarray(np.arange(start.item(), limit.item(), delta.item()), start.dtype)


@onnx_operator("EyeLike")
def eye_like(call: NodeCall, x: Value) -> np.ndarray:
    """A matrix of the shape of x with ones on a diagonal, known at import."""
    kind = _type(call, call.attribute("dtype")) if "dtype" in call.node.attributes else x.dtype
    rows, columns = x.shape
    return np.asarray(np.eye(rows, columns, k=call.attribute("k", 0)), kind.numpy)


@onnx_operator("Cast")
def cast(call: NodeCall, x: Value) -> Value:
    """x in another element type."""
    return _cast(x, _type(call, call.attribute("to")))


@onnx_operator("CastLike")
def cast_like(call: NodeCall, x: Value, like: Value) -> Value:
    """x in the element type of another value."""
    return _cast(x, like.dtype)


def _cast(x: Value, kind: dt.DType) -> Value:
    return x if x.dtype is kind else ops.Cast()(x, kind)


def _type(call: NodeCall, code: int) -> dt.DType:
    if code not in TYPES:
        raise call.error("an element type is not supported", value=code, allowed=tuple(map(str, TYPES.values())))
    return TYPES[code]


# Rules for operators that select elements at positions: Gather and its relatives, Slice, Compress, CenterCropPad.


@onnx_operator("Gather")
def gather(call: NodeCall, data: Value, indices: Value) -> Value:
    """The slices of data at positions along `axis`; negative ones count from the end."""
    axis = axis_of(call, call.attribute("axis", 0), data.ndim)
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
    axis = axis_of(call, call.attribute("axis", 0), data.ndim)
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
    first, last = call.setting("starts", starts), call.setting("ends", ends)
    if first is None or last is None:
        raise call.error("a slice needs starts and ends")
    named = [axis_of(call, axis, data.ndim) for axis in call.setting("axes", axes, range(len(first)))]
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
    return taken(call, data, axis_of(call, axis, data.ndim), np.flatnonzero(condition))


@onnx_operator("ReverseSequence")
def reverse_sequence(call: NodeCall, data: Value, sequence_lens: Value) -> Value:
    """The first elements of each sample in reverse order, as many as its length says."""
    axes = (axis_of(call, call.attribute(name, k), data.ndim) for name, k in (("time_axis", 0), ("batch_axis", 1)))
    return ops.ReverseSequence(*axes)(data, sequence_lens)


@onnx_operator("CenterCropPad", static=("shape",))
def center_crop_pad(call: NodeCall, data: Value, shape: np.ndarray) -> Value:
    """The middle of data in axes that get shorter, and zeros around it in axes that get longer."""
    axes = [axis_of(call, axis, data.ndim) for axis in call.attribute("axes", tuple(range(data.ndim)))]
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


def axis_of(call: NodeCall, axis: int, ndim: int) -> int:
    """An axis from 0. Raises a located error for one out of range."""
    if not -ndim <= axis < ndim:
        raise call.error("an axis is out of range", axis=axis, allowed=f"{-ndim} to {ndim - 1}")
    return int(axis) % ndim


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


# Rules that pad, and that move elements between channels and the height and width.

MODES = "constant", "reflect", "edge", "wrap"


@onnx_operator("Pad", static=("pads", "constant_value", "axes"))
def pad(
    call: NodeCall,
    data: Value,
    pads: np.ndarray | None = None,
    constant_value: np.ndarray | None = None,
    axes: np.ndarray | None = None,
) -> Value:
    """data with elements before and after each axis: a constant, the reflected data, its edge, or the data again.

    Negative pads remove elements: of the constant ones too, and otherwise before others are added.
    """
    mode = call.choice("mode", "constant", *MODES)
    pairs = _pairs(call, call.setting("pads", pads), axes, data.ndim)
    added = tuple((max(low, 0), max(high, 0)) for low, high in pairs)
    removed = tuple((max(-low, 0), max(-high, 0)) for low, high in pairs)
    size = math.prod(low + n + high for n, (low, high) in zip(data.shape, added, strict=True))
    require_memory(size * data.dtype.size, node=call.node.name, pads=added)
    if mode == "constant":
        value = call.attribute("value", 0.0) if constant_value is None else constant_value.reshape(-1)[0].item()
        padded = ops.Pad(added, value=value)(data) if any(map(any, added)) else data
        return _cropped(call, padded, removed)
    data = _cropped(call, data, removed)
    for axis, (low, high) in enumerate(added):
        data = _extended(call, data, axis, low, high, mode)
    return data


def _pairs(call: NodeCall, pads: list[int] | None, axes: np.ndarray | None, ndim: int) -> list[tuple[int, int]]:
    """(before, after) for each axis. Raises ConfigError when they do not fit."""
    chosen = _axes(call, [*range(ndim)] if axes is None else axes.tolist(), ndim)
    given = [*(pads or ())]
    if len(given) != 2 * len(chosen):
        raise call.error("needs two pads for each axis", pads=given, axes=chosen)
    pairs = [(0, 0)] * ndim
    for axis, low, high in zip(chosen, given[: len(chosen)], given[len(chosen) :], strict=True):
        pairs[axis] = int(low), int(high)
    return pairs


def _axes(call: NodeCall, axes: Sequence[int], ndim: int) -> list[int]:
    """Axes as numbers from 0. Raises ConfigError for others than those of `ndim` axes."""
    if any(not -ndim <= axis < ndim for axis in axes):
        raise call.error("an axis is out of range", axes=axes, allowed=f"{-ndim} to {ndim - 1}")
    return [axis % ndim for axis in axes]


def _cropped(call: NodeCall, data: Value, removed: tuple[tuple[int, int], ...]) -> Value:
    """data without so many elements before and after each axis."""
    if not any(map(any, removed)):
        return data
    size = [n - low - high for n, (low, high) in zip(data.shape, removed, strict=True)]
    if min(size) < 0:
        raise call.error("negative pads remove more than there is", data=data.type, removed=removed)
    return ops.Slice()(data, tuple(low for low, _ in removed), tuple(size))


def _extended(call: NodeCall, data: Value, axis: int, low: int, high: int, mode: str) -> Value:
    """data with copies of its elements before and after one axis."""
    length = data.shape[axis]
    if low == high == 0:
        return data
    if length == 0:
        raise call.error("an axis without elements can only be padded by a constant", data=data.type, mode=mode)
    places = np.pad(np.arange(length), (low, high), mode=mode)  # type: ignore[call-overload]
    sides = [_picked(data, axis, part) for part in (places[:low], places[low + length :]) if part.size]
    parts = [*sides[: low > 0], data, *sides[low > 0 :]]
    return ops.Concat(axis)(*parts)


def _picked(data: Value, axis: int, places: np.ndarray) -> Value:
    """The elements at places of an axis; a gradient of blocks is much faster than one of single elements."""
    steps = np.unique(np.diff(places))
    if len(steps) > 1:
        return ops.Gather(axis)(data, Tensor(places))
    start, end = int(places.min()), int(places.max()) + 1
    begin = tuple(start if k == axis else 0 for k in range(data.ndim))
    block = ops.Slice()(data, begin, tuple(end - start if k == axis else n for k, n in enumerate(data.shape)))
    if len(steps) and steps[0] == -1:
        block = ops.ReverseV2(axis)(block)
    if end - start < len(places):
        block = ops.BroadcastTo(tuple(len(places) if k == axis else n for k, n in enumerate(data.shape)))(block)
    return block


@onnx_operator("DepthToSpace")
def depth_to_space(call: NodeCall, x: Value) -> Value:
    """Channels become blocks of height and width; mode DCR, or CRD as of torch's PixelShuffle."""
    block = _block_size(call, x)
    n, c, h, w = x.shape
    if c % (block * block):
        raise call.error("needs blocksize * blocksize channels for each", x=x.type, blocksize=block)
    c //= block * block
    is_crd = call.choice("mode", "DCR", "DCR", "CRD") == "CRD"
    split = ops.Reshape((n, c, block, block, h, w) if is_crd else (n, block, block, c, h, w))(x)
    moved = ops.Transpose((0, 1, 4, 2, 5, 3) if is_crd else (0, 3, 4, 1, 5, 2))(split)
    return ops.Reshape((n, c, h * block, w * block))(moved)


@onnx_operator("SpaceToDepth")
def space_to_depth(call: NodeCall, x: Value) -> Value:
    """Blocks of height and width become channels."""
    block = _block_size(call, x)
    n, c, h, w = x.shape
    if h % block or w % block:
        raise call.error("height and width must consist of whole blocks", x=x.type, blocksize=block)
    split = ops.Reshape((n, c, h // block, block, w // block, block))(x)
    moved = ops.Transpose((0, 3, 5, 1, 2, 4))(split)
    return ops.Reshape((n, c * block * block, h // block, w // block))(moved)


def _block_size(call: NodeCall, x: Value) -> int:
    block = int(call.attribute("blocksize"))
    if block < 1 or x.ndim != 4:
        raise call.error("needs images (N, C, H, W) and a blocksize from 1", x=x.type, blocksize=block)
    return block


# Rules for operators that change elements at positions: ScatterElements, ScatterND, OneHot, Trilu.


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
    axis = axis_of(call, call.attribute("axis", -1), indices.ndim + 1)
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


# Rules for operators that compare or sum along an axis: TopK, ArgMax, ArgMin, CumSum, NonZero, Unique.


@onnx_operator("TopK", static=("k",))
def top_k(call: NodeCall, x: Value, k: np.ndarray | None = None) -> tuple[Value, Value]:
    """The largest (or with largest=0 the smallest) elements along `axis`, in order, and their positions."""
    axis = axis_of(call, call.attribute("axis", -1), x.ndim)
    count = call.attribute("k") if k is None else one_number(call, k, "k")
    if not 1 <= count <= x.shape[axis]:
        raise call.error("k is out of range", k=count, allowed=f"1 to {x.shape[axis]}", x=x.type)
    values, numbers = ops.TopK(True, count, axis, bool(call.attribute("largest", 1)))(x)
    return values, ops.Cast()(numbers, dt.int64)


@onnx_operator("ArgMax")
def arg_max(call: NodeCall, data: Value) -> Value:
    """The position of the largest element along `axis`: the first of equal ones, or the last one."""
    return _extremum(call, data, ops.Argmax)


@onnx_operator("ArgMin")
def arg_min(call: NodeCall, data: Value) -> Value:
    """The position of the smallest element along `axis`: the first of equal ones, or the last one."""
    return _extremum(call, data, ops.Argmin)


def _extremum(call: NodeCall, data: Value, kind: type[ops.Argmax | ops.Argmin]) -> Value:
    axis = axis_of(call, call.attribute("axis", 0), data.ndim)
    is_last = bool(call.attribute("select_last_index", 0))
    position: Value = kind(axis, dt.int64)(ops.ReverseV2(axis)(data) if is_last else data)
    if is_last:
        position = data.shape[axis] - 1 - position
    return ops.ExpandDims()(position, axis) if call.attribute("keepdims", 1) else position


@onnx_operator("CumSum", static=("axis",))
def cum_sum(call: NodeCall, x: Value, axis: np.ndarray) -> Value:
    """The sums of the elements up to each one along an axis that is known at import."""
    at = axis_of(call, one_number(call, axis, "axis"), x.ndim)
    return ops.CumSum(bool(call.attribute("exclusive", 0)), bool(call.attribute("reverse", 0)))(x, at)


@onnx_operator("NonZero", static=("x",))
def non_zero(call: NodeCall, x: np.ndarray) -> np.ndarray:
    """The positions of the elements that are not 0, a column for each; x must be known at import."""
    return np.array(np.nonzero(x), np.int64).reshape(x.ndim, -1)


@onnx_operator("Unique", static=("x",))
def unique(call: NodeCall, x: np.ndarray) -> tuple[np.ndarray, ...]:
    """The different elements, or slices along `axis`, with first positions, places and counts; x must be known."""
    axis = call.attribute("axis", None)
    found, first, places, counts = np.unique(x, True, True, True, axis=axis)
    if not call.attribute("sorted", 1):
        order = np.argsort(first)
        found, first, counts = np.take(found, order, 0 if axis is None else axis), first[order], counts[order]
        places = np.argsort(order)[places]
    return found, first.astype(np.int64), places.reshape(-1).astype(np.int64), counts.astype(np.int64)
