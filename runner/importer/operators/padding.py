"""Rules that pad, and that move elements between channels and the height and width."""

import math
from collections.abc import Sequence

import numpy as np

from runner import ops
from runner.core.values import Tensor, Value
from runner.host.machine import require_memory
from runner.importer.node_call import NodeCall
from runner.importer.table import onnx_operator

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
    result: Value = ops.Slice()(data, tuple(low for low, _ in removed), tuple(size))
    return result


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
    result: Value = ops.Concat(axis)(*parts)
    return result


def _picked(data: Value, axis: int, places: np.ndarray) -> Value:
    """The elements at places of an axis; a gradient of blocks is much faster than one of single elements."""
    steps = np.unique(np.diff(places))
    if len(steps) > 1:
        return ops.Gather(axis)(data, Tensor(places))  # type: ignore[no-any-return]
    start, end = int(places.min()), int(places.max()) + 1
    begin = tuple(start if k == axis else 0 for k in range(data.ndim))
    block = ops.Slice()(data, begin, tuple(end - start if k == axis else n for k, n in enumerate(data.shape)))
    if len(steps) and steps[0] == -1:
        block = ops.ReverseV2(axis)(block)
    if end - start < len(places):
        block = ops.BroadcastTo(tuple(len(places) if k == axis else n for k, n in enumerate(data.shape)))(block)
    result: Value = block
    return result


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
    result: Value = ops.Reshape((n, c, h * block, w * block))(moved)
    return result


@onnx_operator("SpaceToDepth")
def space_to_depth(call: NodeCall, x: Value) -> Value:
    """Blocks of height and width become channels."""
    block = _block_size(call, x)
    n, c, h, w = x.shape
    if h % block or w % block:
        raise call.error("height and width must consist of whole blocks", x=x.type, blocksize=block)
    split = ops.Reshape((n, c, h // block, block, w // block, block))(x)
    moved = ops.Transpose((0, 3, 5, 1, 2, 4))(split)
    result: Value = ops.Reshape((n, c * block * block, h // block, w // block))(moved)
    return result


def _block_size(call: NodeCall, x: Value) -> int:
    block = int(call.attribute("blocksize"))
    if block < 1 or x.ndim != 4:
        raise call.error("needs images (N, C, H, W) and a blocksize from 1", x=x.type, blocksize=block)
    return block
