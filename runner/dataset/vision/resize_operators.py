"""`resize` in operators: the same numbers for images of any size.

Bytes are interpolated in Float64, in whole numbers below 2**53. The quotient of two such numbers is rounded to an
integer only if it is one, so that its floor is exact.
"""

from typing import Any

import numpy as np

from runner import dtype as dt
from runner.dataset.vision.inter import Inter
from runner.dataset.vision.resize import Axis


def resize_operators(images: Any, height: int, width: int, interpolation: Inter, ops: Any) -> Any:
    """Traced images [B, H, W, C] as [B, height, width, C] in the same element type: UInt8, or Float32.

    Lengths of UInt8 images and of nearest neighbours are read at run time; Float32 images keep the traced size.
    """
    if interpolation is Inter.NEAREST:
        for axis, new in ((1, height), (2, width)):
            rows = ops.Floor()(_length(images, axis, ops) * np.arange(new, dtype=np.float64) / np.float64(new))
            images = ops.Gather(axis)(images, ops.Cast(dt.int64)(rows))
        return images
    return (_linear_bytes if images.dtype is dt.uint8 else _linear)(images, height, width, ops)


def _linear(images: Any, height: int, width: int, ops: Any) -> Any:
    if images.shape[1:3] == (height, width):
        return images
    unit = 1
    for axis, new in ((1, height), (2, width)):
        places = Axis.between(images.shape[axis], new)
        unit *= places.unit
        low = ops.Gather(axis)(images, places.low)
        if places.unit == 1:
            images = low
            continue
        weight = places.weight.astype(np.float32).reshape([-1] + [1] * (3 - axis))
        images = low * (np.float32(places.unit) - weight) + ops.Gather(axis)(images, places.high) * weight
    return images / np.float32(unit)


def _linear_bytes(images: Any, height: int, width: int, ops: Any) -> Any:
    total = ops.Cast(dt.float64)(images)
    for axis, new in ((1, height), (2, width)):
        old, unit = _length(images, axis, ops), np.float64(2 * new)
        position = old * np.arange(1.0, 2 * new, 2.0) - np.float64(new)
        low = ops.Floor()(position / unit)
        weight = ops.Reshape((new, *[1] * (3 - axis)))(position - low * unit)
        first, second = (ops.Gather(axis)(total, _clipped(place, old, ops)) for place in (low, low + np.float64(1)))
        total = first * (unit - weight) + second * weight
    unit = np.float64(4 * height * width)
    return ops.Cast(dt.uint8)(ops.Floor()((total + unit / 2) / unit))


def _length(images: Any, axis: int, ops: Any) -> Any:
    """Length of an axis, Float64 (1,), read at run time."""
    return ops.Cast(dt.float64)(ops.Slice((axis,), (1,))(ops.DynamicShape()(images)))


def _clipped(place: Any, old: Any, ops: Any) -> Any:
    """The nearest position on the old axis, Int64."""
    return ops.Cast(dt.int64)(ops.Minimum()(ops.Maximum()(place, np.float64(0)), old - np.float64(1)))
