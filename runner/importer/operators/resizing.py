"""Rules for Resize and Upsample: one axis after the other, with positions that are known at import.

Nearest neighbours are a Gather, or the operator for images. Linear and cubic interpolation along an axis is a
product with a matrix, whose rows are the weights of the elements of the axis; so its gradient is a product as well.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from runner import ops
from runner.core.values import Tensor, Value
from runner.host.machine import require_memory
from runner.importer.node_call import NodeCall
from runner.importer.operators.indexing import axis_of
from runner.importer.operators.interpolation import COORDINATES, NEAREST, ResizedAxis, weights
from runner.importer.table import onnx_operator

POLICIES = "stretch", "not_larger", "not_smaller"


@onnx_operator("Resize", static=("roi", "scales", "sizes"))
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
    axes = [axis_of(call, axis, x.ndim) for axis in given]
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
            return image(x)  # type: ignore[no-any-return]
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
    result: Value = made if axis == x.ndim - 1 else ops.Transpose()(made, back)
    return result
