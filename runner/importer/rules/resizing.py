"""Rules of images read at other places: Resize and Upsample, GridSample and AffineGrid."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from runner import dtype as dt, ops
from runner.core.values import Tensor, Value
from runner.host.machine import require_memory
from runner.importer.node_call import NodeCall, onnx_operator

# Positions and weights along one axis that is resized, in Float32 as onnxruntime computes them.

COORDINATES = (
    *("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"),
    "tf_half_pixel_for_nn",
)
NEAREST = "round_prefer_floor", "round_prefer_ceil", "floor", "ceil"


@dataclass(frozen=True)
class ResizedAxis:
    """An axis of `length` elements that gets `out` ones; `scale` is their ratio before it is rounded."""

    number: int
    length: int
    out: int
    scale: np.float32

    def positions(self, coordinates: str) -> np.ndarray:
        """Where each new element is among the old ones, in Float32."""
        half, new = np.float32(0.5), np.arange(self.out, dtype=np.float32)
        centers = (new + half) / self.scale
        if coordinates == "asymmetric":
            return new / self.scale
        if coordinates == "tf_half_pixel_for_nn":
            return centers
        if coordinates == "align_corners":
            return new * np.float32(self.length - 1) / np.float32(max(self.out - 1, 1))
        if coordinates == "pytorch_half_pixel" and self.out == 1:
            return np.zeros(1, np.float32)
        offset = np.float32(0)
        if coordinates == "half_pixel_symmetric":
            share = np.float32(self.out) / (self.scale * np.float32(self.length))
            offset = np.float32(self.length) / np.float32(2) * (np.float32(1) - share)
        return offset + centers - half

    def nearest(self, coordinates: str, rounding: str) -> np.ndarray:
        """The old element for each new one."""
        x, half = self.positions(coordinates), np.float32(0.5)
        if rounding == "simple":  # before opset 11
            rounding = "ceil" if self.scale < 1 else "floor"
        moved = {"round_prefer_floor": x - half, "round_prefer_ceil": x + half}.get(rounding, x)
        upwards = rounding in ("ceil", "round_prefer_floor")
        rounded = np.ceil(moved) if upwards else np.floor(moved)
        places: np.ndarray = np.clip(rounded.astype(np.int64), 0, self.length - 1)
        return places


def weights(
    axis: ResizedAxis, coordinates: str, cubic: float | None, exclude_outside: bool, antialias: bool = False
) -> np.ndarray:
    """The matrix (out, length) of linear interpolation or, with a coefficient, of cubic convolution.

    Beyond the ends the outermost elements are repeated, or left out if `exclude_outside`. With `antialias` an axis that
    gets shorter is smoothed: each weight is that of a distance which is shorter by as much.
    """
    positions = axis.positions(coordinates).astype(np.float64)
    if cubic is None and not antialias:
        positions = positions.clip(0, axis.length - 1)
    stretch = max(1.0, 1.0 / float(axis.scale)) if antialias else 1.0
    reach = math.ceil((1 if cubic is None else 2) * stretch)
    places = np.floor(positions)[:, None] + np.arange(1 - reach, reach + 1)
    distances = np.abs(positions[:, None] - places) / stretch
    shares = np.maximum(1 - distances, 0) if cubic is None else _cubic(distances, cubic)
    if exclude_outside:
        shares = shares * ((places >= 0) & (places < axis.length))
    shares = shares / shares.sum(1, keepdims=True)
    matrix = np.zeros((axis.out, axis.length))
    columns = places.clip(0, axis.length - 1).astype(np.int64)
    np.add.at(matrix, (np.arange(axis.out)[:, None], columns), shares)
    return matrix


def _cubic(distance: np.ndarray, a: float) -> np.ndarray:
    """The weight of an element at a distance (Keys, 1981)."""
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((distance - 5) * distance + 8) * distance * a - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0))


# Resize and Upsample: one axis after the other, with positions that are known at import.
#
# Nearest neighbours are a Gather, or the operator for images. Linear and cubic interpolation along an axis is a
# product with a matrix, whose rows are the weights of the elements of the axis; so its gradient is a product as well.

POLICIES = "stretch", "not_larger", "not_smaller"


@onnx_operator("Resize", static=("roi", "scales", "sizes"), without_effect=("extrapolation_value",))
def resize(
    call: NodeCall,
    x: Value,
    roi: np.ndarray | None = None,
    scales: np.ndarray | None = None,
    sizes: np.ndarray | None = None,
) -> Value:
    """Nearest, linear or cubic interpolation, also with antialias, in all coordinates but tf_crop_and_resize."""
    if call.opset < 11:  # the second input was scales
        return _interpolated(call, x, _scaled(call, x, range(x.ndim), roi), "asymmetric", "simple")
    coordinates = call.choice("coordinate_transformation_mode", "half_pixel", *COORDINATES)
    nearest = call.choice("nearest_mode", "round_prefer_floor", *NEAREST)
    given = call.attribute("axes", tuple(range(x.ndim)))
    axes = call.axes(given, x.ndim)
    is_sized = sizes is not None and sizes.size > 0
    found = _sized(call, x, axes, sizes) if is_sized else _scaled(call, x, axes, scales)
    return _interpolated(call, x, found, coordinates, nearest)


@onnx_operator("Upsample", static=("scales",))
def upsample(call: NodeCall, x: Value, scales: np.ndarray) -> Value:
    """Nearest or linear interpolation to scales: Resize before opset 10."""
    return _interpolated(call, x, _scaled(call, x, range(x.ndim), scales), "asymmetric", "simple")


def _scaled(call: NodeCall, x: Value, axes: Sequence[int], scales: np.ndarray | None) -> list[ResizedAxis]:
    """The axes with their lengths times their scales."""
    if scales is None or len(scales) != len(axes) or not (np.isfinite(scales) & (scales > 0)).all():
        given = None if scales is None else scales.tolist()
        raise call.error("needs a positive scale for each axis", scales=given, axes=list(axes), x=x.type)
    numbers = scales.astype(np.float32)
    return [
        ResizedAxis(axis, x.shape[axis], int(scale * np.float32(x.shape[axis])), scale)
        for axis, scale in zip(axes, numbers, strict=True)
    ]


def _sized(call: NodeCall, x: Value, axes: Sequence[int], sizes: np.ndarray | None) -> list[ResizedAxis]:
    """The axes with their new lengths; a policy may make them smaller or larger, to keep the aspect ratio."""
    policy = call.choice("keep_aspect_ratio_policy", "stretch", *POLICIES)
    if sizes is None or len(sizes) != len(axes) or not (sizes > 0).all():
        given = None if sizes is None else sizes.tolist()
        raise call.error("needs a positive size for each axis", sizes=given, axes=list(axes), x=x.type)
    lengths = [x.shape[axis] for axis in axes]
    wanted = [
        length if axis == 0 and call.fixed_batch(size, x) else size
        for axis, length, size in zip(axes, lengths, sizes.tolist(), strict=True)
    ]
    scales = [np.float32(size) / np.float32(length) for size, length in zip(wanted, lengths, strict=True)]
    if policy != "stretch":
        scale = min(scales) if policy == "not_larger" else max(scales)
        outs = [int(np.floor(np.float32(length) * scale + np.float32(0.5))) for length in lengths]
        return [ResizedAxis(axis, n, out, scale) for axis, n, out in zip(axes, lengths, outs, strict=True)]
    return [ResizedAxis(*numbers) for numbers in zip(axes, lengths, wanted, scales, strict=True)]


def _interpolated(call: NodeCall, x: Value, axes: Sequence[ResizedAxis], coordinates: str, nearest: str) -> Value:
    """x with these axes resized, those that change nothing left out."""
    mode = call.choice("mode", "nearest", "nearest", "linear", "cubic")
    changed = [axis for axis in axes if axis.scale != 1 or axis.length != axis.out]
    if not all(axis.length and axis.out for axis in changed):
        raise call.error("an axis without elements cannot be resized", x=x.type, sizes=[axis.out for axis in axes])
    for axis in changed:  # the place of each element, or a row of weights
        require_memory(8 * axis.out * (1 if mode == "nearest" else axis.length), node=call.node.name)
    if mode == "nearest":
        return _nearest(x, {axis.number: axis.nearest(coordinates, nearest) for axis in changed})
    if not x.dtype.is_float:
        raise call.error("interpolates floats only", x=x.type, mode=mode)
    cubic = float(call.attribute("cubic_coeff_a", -0.75)) if mode == "cubic" else None
    excluded, antialias = (bool(call.attribute(name, 0)) for name in ("exclude_outside", "antialias"))
    for axis in changed:
        x = _product(x, axis.number, weights(axis, coordinates, cubic, excluded, antialias))
    return x


def _nearest(x: Value, places: Mapping[int, np.ndarray]) -> Value:
    """The elements at these places along each axis, by the operator for images where it has them: it is faster."""
    if x.ndim == 4 and set(places) <= {2, 3}:
        image = ops.ResizeNearestNeighbor(tuple(len(places.get(k, range(x.shape[k]))) for k in (2, 3)))
        if all(np.array_equal(image.places(x.shape, axis), row) for axis, row in places.items()):
            return image(x)
    for axis, row in places.items():
        x = ops.Gather(axis)(x, row)
    return x


def _product(x: Value, axis: int, matrix: np.ndarray) -> Value:
    """Each vector along an axis times a matrix (new length, length)."""
    order = (*(k for k in range(x.ndim) if k != axis), axis)
    moved = x if axis == x.ndim - 1 else ops.Transpose()(x, order)
    rows = ops.Reshape()(moved, (-1, x.shape[axis]))
    made = ops.MatMul(transpose_b=True)(rows, Tensor(matrix, x.dtype))
    made = ops.Reshape()(made, (*moved.shape[:-1], len(matrix)))
    back = tuple(order.index(k) for k in range(x.ndim))
    return made if axis == x.ndim - 1 else ops.Transpose()(made, back)


# GridSample, images read at positions that are an operand, and AffineGrid, which makes such positions.


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
    return ops.ExpandDims()(share, 1)


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
    return ops.Select()(ops.ExpandDims()(inside, 1), pixels, Tensor(0.0, x.dtype))


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
    return ops.Reshape()(split, (samples, *lengths, axes))
