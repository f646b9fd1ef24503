"""Rules for GridSample, images read at positions that are an operand, and AffineGrid, which makes such positions."""

import math
from functools import reduce

import numpy as np

from runner import dtype as dt, ops
from runner.core.values import Tensor, Value
from runner.host.machine import require_memory
from runner.importer.node_call import NodeCall
from runner.importer.table import onnx_operator


@onnx_operator("GridSample")
def grid_sample(call: NodeCall, x: Value, grid: Value) -> Value:
    """Images (N, C, H, W) at positions (N, h, w, 2) from -1 to 1: bilinear or nearest, with every padding."""
    mode = call.choice("mode", "linear", "linear", "bilinear", "nearest")
    padding = call.choice("padding_mode", "zeros", "zeros", "border", "reflection")
    corners = bool(call.attribute("align_corners", 0))
    if x.ndim != 4 or grid.ndim != 4 or grid.shape[0] != x.shape[0] or grid.shape[3] != 2:
        raise call.error("needs images (N, C, H, W) and positions (N, h, w, 2)", x=x.type, grid=grid.type)
    columns, rows = (_unnormalized(grid[..., k], x.shape[3 - k], corners, padding) for k in range(2))
    if mode == "nearest":
        return _pixels(x, ops.Rint()(rows), ops.Rint()(columns))
    top, left = ops.Floor()(rows), ops.Floor()(columns)
    down, right = rows - top, columns - left
    parts = [
        _pixels(x, top, left) * _weight((1.0 - down) * (1.0 - right)),
        _pixels(x, top, left + 1.0) * _weight((1.0 - down) * right),
        _pixels(x, top + 1.0, left) * _weight(down * (1.0 - right)),
        _pixels(x, top + 1.0, left + 1.0) * _weight(down * right),
    ]
    return parts[0] + parts[1] + parts[2] + parts[3]


def _unnormalized(position: Value, length: int, corners: bool, padding: str) -> Value:
    """Positions from -1 to 1 as places of pixels; those outside, as the padding says, moved inside."""
    place = (position + 1.0) * ((length - 1) / 2) if corners else (position + 1.0) * (length / 2) - 0.5
    if padding == "reflection":
        low, span = (0.0, float(length - 1)) if corners else (-0.5, float(length))
        # A period of two lengths, there and back; an axis with one pixel has only this one.
        way = ops.FloorMod()(place - low, 2 * span) if span else ops.ZerosLike()(place)
        place = span - ops.Abs()(way - span) + low
    if padding != "zeros":
        place = ops.clip_by_value(place, 0.0, float(length - 1))
    return place


def _weight(share: Value) -> Value:
    """Shares (N, h, w) for all channels."""
    result: Value = ops.ExpandDims()(share, 1)
    return result


def _pixels(x: Value, rows: Value, columns: Value) -> Value:
    """The pixels (N, C, h, w) at whole places (N, h, w), 0 outside of the images."""
    n, c, height, width = x.shape
    bounds = rows >= 0.0, rows <= height - 1.0, columns >= 0.0, columns <= width - 1.0
    inside = reduce(ops.LogicalAnd(), bounds)
    safe = [
        ops.Cast()(ops.clip_by_value(place, 0.0, length - 1.0), dt.int64)
        for place, length in ((rows, height), (columns, width))
    ]
    first = Tensor(np.arange(n).reshape(n, 1, 1) * height * width, dt.int64)
    table = ops.Reshape()(ops.Transpose()(x, (0, 2, 3, 1)), (n * height * width, c))
    found = ops.Gather(0)(table, first + safe[0] * width + safe[1])
    pixels = ops.Transpose()(found, (0, 3, 1, 2))
    result: Value = ops.Select()(ops.ExpandDims()(inside, 1), pixels, Tensor(0.0, x.dtype))
    return result


@onnx_operator("AffineGrid", static=("size",))
def affine_grid(call: NodeCall, theta: Value, size: np.ndarray) -> Value:
    """Positions of the pixels of images of a size known at import, under affine maps: (N, d, d + 1) to (N, ..., d)."""
    samples, lengths = theta.shape[0], [int(n) for n in size[2:]]
    axes, corners = len(lengths), bool(call.attribute("align_corners", 0))
    fits = int(size[0]) == samples or call.fixed_batch(int(size[0]), theta)
    if not fits or theta.shape[1:] != (axes, axes + 1):
        raise call.error("needs a matrix (d, d + 1) for each sample", theta=theta.type, size=size.tolist())
    require_memory(math.prod(lengths) * (axes + 1) * 16, node=call.node.name)
    centers = [np.linspace(-1, 1, n) if corners else (2 * np.arange(n) + 1) / n - 1 for n in lengths]
    columns = [*np.meshgrid(*centers, indexing="ij")[::-1], np.ones(lengths)]  # the last axis, x, is the first number
    pixels = Tensor(np.stack(columns, -1).reshape(-1, axes + 1), theta.dtype)
    mapped = ops.MatMul(transpose_b=True)(pixels, ops.Reshape()(theta, (samples * axes, axes + 1)))
    split = ops.Transpose()(ops.Reshape()(mapped, (-1, samples, axes)), (1, 0, 2))
    result: Value = ops.Reshape()(split, (samples, *lengths, axes))
    return result
