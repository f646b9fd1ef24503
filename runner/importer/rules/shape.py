"""Rules of shapes, known when the network is imported: other shapes, joins and parts, padding; and of branches."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

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
    axis = call.axis(1, x.ndim + 1) if call.attribute("axis", 1) >= 0 else call.axis(1, x.ndim)
    return reshaped(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


@onnx_operator("Squeeze", static=("axes",))
def squeeze(call: NodeCall, x: Value, axes: np.ndarray | None = None) -> Value:
    """x without axes of length 1."""
    chosen = call.numbers("axes", axes)
    gone = [k for k, n in enumerate(x.shape) if n == 1] if chosen is None else call.axes(chosen, x.ndim)
    if any(x.shape[axis] != 1 for axis in gone):
        raise call.error("only axes of length 1 can be removed", axes=sorted(gone), shape=x.shape)
    return reshaped(x, tuple(n for k, n in enumerate(x.shape) if k not in gone))


@onnx_operator("Unsqueeze", static=("axes",))
def unsqueeze(call: NodeCall, x: Value, axes: np.ndarray | None = None) -> Value:
    """x with new axes of length 1."""
    chosen = call.numbers("axes", axes) or []
    ndim = x.ndim + len(chosen)
    new, lengths = call.axes(chosen, ndim), iter(x.shape)
    return reshaped(x, tuple(1 if k in new else next(lengths) for k in range(ndim)))


@onnx_operator("Transpose")
def transpose(call: NodeCall, x: Value) -> Value:
    """x with its axes in another order, by default reversed."""
    perm = tuple(call.attribute("perm", tuple(reversed(range(x.ndim)))))
    return x if perm == tuple(range(x.ndim)) else ops.Transpose()(x, perm)


@onnx_operator("Concat")
def concat(call: NodeCall, *xs: Value) -> Value:
    """Values one after another along an axis."""
    (axis,) = call.axes([call.attribute("axis")], max(x.ndim for x in xs))
    if axis != 0 and call.other_batch is not None:
        xs = _of_one_batch(call, xs, call.other_batch)
    parts = [x for x in xs if x.ndim > 1 or x.size] or list(xs[:1])
    return parts[0] if len(parts) == 1 else ops.Concat(axis)(tuple(parts))


def _of_one_batch(call: NodeCall, xs: tuple[Value, ...], other: OtherBatch) -> tuple[Value, ...]:
    """The values, where those that are equal for all samples of the file's batch are so for all of another one."""
    if not any(x.ndim and x.shape[0] == other.rows for x in xs):
        return xs
    return tuple(
        spread(_first(x), (other.rows, *x.shape[1:]))
        if other.is_constant(name, x.shape) and (x.shape[0] == 1 or _has_equal_rows(call.known(k)))
        else x
        for k, (name, x) in enumerate(zip(call.node.inputs, xs, strict=True))
    )


def _has_equal_rows(known: np.ndarray | None) -> bool:
    return known is not None and bool((known == known[:1]).all())


def _first(x: Value) -> Value:
    return x if x.shape[0] == 1 else _part(x, 0, 0, 1)


@onnx_operator("Split", static=("sizes",))
def split(call: NodeCall, x: Value, sizes: np.ndarray | None = None) -> tuple[Value, ...]:
    """Parts of x along an axis, of equal or given lengths."""
    axis = call.axis(0, x.ndim)
    call.choice("num_outputs", call.outputs, call.outputs)
    length, count = x.shape[axis], call.outputs
    each = -(-length // count)
    lengths = call.numbers("split", sizes) or [min(each, length - k * each) for k in range(count)]
    _require_whole(call, axis, length, lengths, count)
    return _as_tuple(ops.Split(axis, count)(x)) if len(set(lengths)) == 1 else _parts(x, axis, lengths)


def _require_whole(call: NodeCall, axis: int, length: int, lengths: list[int], count: int) -> None:
    if sum(lengths) != length or min(lengths, default=0) < 0 or len(lengths) != count:
        raise call.error("the parts of a split are not the whole", axis=axis, length=length, parts=lengths)


def _parts(x: Value, axis: int, lengths: list[int]) -> tuple[Value, ...]:
    starts = [sum(lengths[:k]) for k in range(len(lengths))]
    return tuple(_part(x, axis, start, n) for start, n in zip(starts, lengths, strict=True))


# Sequences of tensors, as exporters write the parts of a tensor: tuples of values, and of arrays that are known.

Sequence: TypeAlias = tuple[Value | np.ndarray, ...]


@onnx_operator("SplitToSequence", static=("sizes",))
def split_to_sequence(call: NodeCall, x: Value, sizes: np.ndarray | None = None) -> tuple[tuple[Value, ...]]:
    """Parts of x along an axis as a sequence: of the given lengths, or of one, the last perhaps shorter."""
    axis, keeps = call.axis(0, x.ndim), sizes is not None or call.attribute("keepdims", 1) != 0
    length = x.shape[axis]
    lengths = [1] * length if sizes is None else [int(n) for n in sizes.reshape(-1)]
    if sizes is not None and sizes.ndim == 0 and lengths[0] > 0:
        lengths = [min(lengths[0], length - start) for start in range(0, length, lengths[0])]
    _require_whole(call, axis, length, lengths, len(lengths))
    parts = _parts(x, axis, lengths)
    shape = x.shape[:axis] + x.shape[axis + 1 :]
    return (parts if keeps else tuple(reshaped(part, shape) for part in parts),)


@onnx_operator("SequenceConstruct")
def sequence_construct(call: NodeCall, *xs: Value) -> tuple[tuple[Value, ...]]:
    """A sequence of these tensors."""
    return (xs,)


@onnx_operator("SequenceAt", static=("position",))
def sequence_at(call: NodeCall, sequence: Sequence, position: np.ndarray) -> Value | np.ndarray:
    """A tensor of a sequence, by its position, from the end if it is negative."""
    place, length = int(position), len(sequence)
    if not -length <= place < length:
        raise call.error("a sequence has no such position", position=place, length=length)
    return sequence[place]


@onnx_operator("SequenceLength")
def sequence_length(call: NodeCall, sequence: Sequence) -> np.ndarray:
    """The number of tensors in a sequence, known at import."""
    return np.asarray(len(sequence), np.int64)


@onnx_operator("ConcatFromSequence")
def concat_from_sequence(call: NodeCall, sequence: Sequence) -> Value:
    """The tensors of a sequence one after another along an axis, or along a new one."""
    parts = [Tensor(x) if isinstance(x, np.ndarray) else x for x in sequence]
    is_new = call.attribute("new_axis", 0)
    (axis,) = call.axes([call.attribute("axis")], max(x.ndim for x in parts) + is_new)
    if is_new:
        parts = [reshaped(x, (*x.shape[:axis], 1, *x.shape[axis:])) for x in parts]
    return parts[0] if len(parts) == 1 else ops.Concat(axis)(tuple(parts))


def _as_tuple(value: Any) -> tuple[Value, ...]:
    return value if isinstance(value, tuple) else (value,)


def _part(x: Value, axis: int, start: int, length: int) -> Value:
    begin = tuple(start if k == axis else 0 for k in range(x.ndim))
    return ops.Slice()(x, begin, tuple(length if k == axis else n for k, n in enumerate(x.shape)))


@onnx_operator("Expand", static=("shape",))
def expand(call: NodeCall, x: Value, shape: np.ndarray) -> Value:
    """x broadcast against a shape. A batch size that the file fixes may be another one."""
    batch, wanted = call.other_batch, tuple(int(n) for n in shape.tolist())
    if batch is not None:
        wanted = batch.expanded(call.node.inputs[0], call.node.outputs[0], x.shape) or wanted
        x = call.fitted(x, wanted)
        lengths = zip(range(-1, -x.ndim - 1, -1), reversed(x.shape), reversed(wanted), strict=False)
        ends = [axis + len(wanted) for axis, before, after in lengths if before == 1 and after == batch.length]
        batch.repeated.update((call.node.outputs[0], axis) for axis in ends)
    try:
        common = np.broadcast_shapes(x.shape, wanted)
    except ValueError:
        raise call.error("a value cannot be broadcast to a shape", x=x.type, shape=wanted) from None
    return spread(x, common)


@onnx_operator("Tile", static=("repeats",))
def tile(call: NodeCall, x: Value, repeats: np.ndarray) -> Value:
    """x repeated along each axis. One sample is repeated for a batch of another size than that of the file."""
    counts = tuple(int(n) for n in repeats.tolist())
    other = call.other_batch
    if other is not None and x.ndim and x.shape[0] == 1 and counts[0] == other.length > 1:
        counts = other.rows, *counts[1:]
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


@onnx_operator("Range", static=("start", "limit", "delta"), without_effect=("stash_type",))
def range_(call: NodeCall, start: np.ndarray, limit: np.ndarray, delta: np.ndarray) -> np.ndarray:
    """Numbers from start up to limit in steps of delta, known at import."""
    if not (start.size == limit.size == delta.size == 1 and delta.item()):
        rows = {"start": start.tolist(), "limit": limit.tolist(), "delta": delta.tolist()}
        raise call.error("a Range needs three numbers, of which the step is not 0", **rows)
    count = max(0.0, math.ceil((limit.item() - start.item()) / delta.item()))
    require_memory(int(count) * start.itemsize, node=call.node.name)
    return np.asarray(np.arange(start.item(), limit.item(), delta.item()), start.dtype)


@onnx_operator("EyeLike")
def eye_like(call: NodeCall, x: Value) -> np.ndarray:
    """A matrix of the shape of x with ones on a diagonal, known at import."""
    kind = _type(call, call.attribute("dtype")) if "dtype" in call.node.attributes else x.dtype
    rows, columns = x.shape
    return np.asarray(np.eye(rows, columns, k=call.attribute("k", 0)), kind.numpy)


@onnx_operator("Cast", without_effect=("saturate", "round_mode"))
def cast(call: NodeCall, x: Value) -> Value:
    """x in another element type."""
    return _cast(x, _type(call, call.attribute("to")))


@onnx_operator("CastLike", without_effect=("saturate", "round_mode"))
def cast_like(call: NodeCall, x: Value, like: Value) -> Value:
    """x in the element type of another value."""
    return _cast(x, like.dtype)


def _cast(x: Value, kind: dt.DType) -> Value:
    return x if x.dtype is kind else ops.Cast()(x, kind)


def _type(call: NodeCall, code: int) -> dt.DType:
    if code not in TYPES:
        raise call.error("an element type is not supported", value=code, allowed=tuple(map(str, TYPES.values())))
    return TYPES[code]


# Padding, and elements moved between channels and the height and width.

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
    pairs = _pairs(call, call.numbers("pads", pads), axes, data.ndim)
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
    chosen = call.axes(range(ndim) if axes is None else axes.tolist(), ndim)
    given = [*(pads or ())]
    if len(given) != 2 * len(chosen):
        raise call.error("needs two pads for each axis", pads=given, axes=chosen)
    pairs = [(0, 0)] * ndim
    for axis, low, high in zip(chosen, given[: len(chosen)], given[len(chosen) :], strict=True):
        pairs[axis] = int(low), int(high)
    return pairs


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
    require_memory(4 * 8 * (low + length + high), node=call.node.name, pads=(low, high))
    places = _places(np.arange(-low, length + high), length, mode)
    sides = [_picked(data, axis, part) for part in (places[:low], places[low + length :]) if part.size]
    parts = [*sides[: low > 0], data, *sides[low > 0 :]]
    return ops.Concat(axis)(*parts)


def _places(positions: np.ndarray, length: int, mode: str) -> np.ndarray:
    """Where the elements at positions outside of an axis come from."""
    if mode == "edge":
        return positions.clip(0, length - 1)
    if mode == "wrap":
        return positions % length
    period = max(1, 2 * (length - 1))
    places: np.ndarray = np.minimum(positions % period, -positions % period)
    return places


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
    """Blocks of height and width become channels; mode DCR, or CRD as of torch's PixelUnshuffle."""
    block, is_crd = _block_size(call, x), call.choice("mode", "DCR", "DCR", "CRD") == "CRD"
    n, c, h, w = x.shape
    if h % block or w % block:
        raise call.error("height and width must consist of whole blocks", x=x.type, blocksize=block)
    split = ops.Reshape((n, c, h // block, block, w // block, block))(x)
    moved = ops.Transpose((0, 1, 3, 5, 2, 4) if is_crd else (0, 3, 5, 1, 2, 4))(split)
    return ops.Reshape((n, c * block * block, h // block, w // block))(moved)


def _block_size(call: NodeCall, x: Value) -> int:
    block = int(call.attribute("blocksize"))
    if block < 1 or x.ndim != 4:
        raise call.error("needs images (N, C, H, W) and a blocksize from 1", x=x.type, blocksize=block)
    return block


# Branches.


@onnx_operator("If")
def if_(call: NodeCall, condition: Value) -> tuple[Any, ...]:
    """One of two graphs; each step chooses by its data where the condition is not known at import."""
    if condition.size != 1:
        raise call.error("the condition of a branch needs one element", condition=condition.type)
    known = call.known("condition")
    chosen = bool(condition) if known is None else bool(known)
    results = call.inner(call.attribute("then_branch" if chosen else "else_branch"))
    # What one branch knows at import is not known after a choice by data.
    return tuple(Tensor(x) if known is None and isinstance(x, np.ndarray) else x for x in results)
