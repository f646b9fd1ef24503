"""Resampling of a stack of images, bit-exact on every machine.

With pixel centres at halves, pixel i of the result is at `((2i + 1) * old - new) / (2 * new)` of the old axis, a
fraction. So bytes are interpolated in integers and rounded once, halves up; no tie depends on float rounding. CUBIC has
the kernel and the fixed-point weights of OpenCV; `resize_operators` gives the numbers of `resize` in a graph.
"""

import math
from typing import Any

import numpy as np

from runner import dtype as dt
from runner.dataset.vision.image import Inter
from runner.validation.rules import Frozen

CHUNK_PIXELS = 1 << 18  # of a result at a time: the temporaries fit into the L2 cache


class Axis(Frozen):
    """For each new position, its two neighbours on the old axis and the weight of the second, in units of 1/unit."""

    low: np.ndarray
    high: np.ndarray
    weight: np.ndarray
    unit: int

    @classmethod
    def between(cls, old: int, new: int) -> "Axis":
        """The positions of `new` pixels on an axis of `old` ones; edge pixels are repeated outside."""
        low, part = np.divmod((2 * np.arange(new) + 1) * old - new, 2 * new)
        shared = math.gcd(2 * new, *part.tolist())
        edges = (np.clip(low, 0, old - 1), np.clip(low + 1, 0, old - 1))
        return cls(*edges, part // shared, 2 * new // shared)

    def blend(self, images: np.ndarray, axis: int) -> np.ndarray:
        """`unit` times the interpolated values along one axis, in the images' own element type."""
        if self.unit == 1:
            return images.take(self.low, axis)
        weight = self.weight.astype(images.dtype).reshape([-1] + [1] * (images.ndim - 1 - axis))
        result = images.take(self.low, axis)
        result *= images.dtype.type(self.unit) - weight
        second = images.take(self.high, axis)
        second *= weight
        result += second
        return result


def resize(images: np.ndarray, height: int, width: int, interpolation: Inter) -> np.ndarray:
    """[B, H, W, C] to [B, height, width, C] in the same element type: uint8, or float32.

    The stack is processed in chunks, so that additional memory does not grow with it. Images that already have the
    size are returned as they are.
    """
    if images.shape[1:3] == (height, width):
        return images
    linear = _linear_bytes if images.dtype == np.uint8 else _linear
    sample = {Inter.NEAREST: _nearest, Inter.CUBIC: resize_cubic}.get(interpolation, linear)
    result = np.empty((len(images), height, width, *images.shape[3:]), images.dtype)
    step = max(1, CHUNK_PIXELS // max(1, math.prod(result.shape[1:])))
    for start in range(0, len(images), step):
        result[start : start + step] = sample(images[start : start + step], height, width)
    return result


def _nearest(images: np.ndarray, height: int, width: int) -> np.ndarray:
    rows = np.arange(height) * images.shape[1] // height
    columns = np.arange(width) * images.shape[2] // width
    result: np.ndarray = images.take(rows, 1).take(columns, 2)
    return result


def _linear(images: np.ndarray, height: int, width: int) -> np.ndarray:
    down, across = Axis.between(images.shape[1], height), Axis.between(images.shape[2], width)
    total = across.blend(down.blend(images, 1), 2)
    total /= images.dtype.type(down.unit * across.unit)
    return total


def _linear_bytes(images: np.ndarray, height: int, width: int) -> np.ndarray:
    down, across = Axis.between(images.shape[1], height), Axis.between(images.shape[2], width)
    unit = down.unit * across.unit
    wide = np.result_type(np.min_scalar_type(256 * unit - 1), np.uint16)  # holds 255 * unit + unit // 2
    total = across.blend(down.blend(images.astype(wide), 1), 2)
    total += wide.type(unit // 2)
    total //= wide.type(unit)
    return total


# Bicubic resampling of a stack of images, with the kernel and the fixed-point weights of OpenCV's `INTER_CUBIC`.

CUBIC = -0.75  # the slope of the cubic kernel
BYTE_BITS = 11  # of the weights of bytes along each axis


def resize_cubic(images: np.ndarray, height: int, width: int) -> np.ndarray:
    """[B, H, W, C] to [B, height, width, C] in the same element type, uint8 or float32; edge pixels are repeated."""
    is_bytes = images.dtype == np.uint8
    total: np.ndarray = images.astype(np.int64) if is_bytes else images
    for axis, new in ((2, width), (1, height)):
        low, weights = _axis(images.shape[axis], new, is_bytes)
        summed = np.zeros((), total.dtype)
        for k in range(4):
            places = np.clip(low + k - 1, 0, images.shape[axis] - 1)
            shape = [-1] + [1] * (images.ndim - 1 - axis)
            summed = summed + total.take(places, axis) * weights[:, k].reshape(shape)
        total = summed
    if not is_bytes:
        return total
    result: np.ndarray = np.clip((total + (1 << (2 * BYTE_BITS - 1))) >> (2 * BYTE_BITS), 0, 255).astype(np.uint8)
    return result


def _axis(old: int, new: int, is_bytes: bool) -> tuple[np.ndarray, np.ndarray]:
    """For each new position, the old one before it, and the weights of its four neighbours, [new, 4]."""
    positions = ((np.arange(new) + 0.5) * (old / new) - 0.5).astype(np.float32)
    low = np.floor(positions)
    weights = cubic_weights(positions - low)
    if is_bytes:
        weights = np.rint(weights * np.float32(1 << BYTE_BITS)).astype(np.int64)
    return low.astype(np.int64), weights


def cubic_weights(part: np.ndarray) -> np.ndarray:
    """Weights of the four neighbours of positions at these fractions, [..., 4]."""
    a = part.dtype.type(CUBIC)
    first = ((a * (part + 1) - 5 * a) * (part + 1) + 8 * a) * (part + 1) - 4 * a
    second = ((a + 2) * part - (a + 3)) * part * part + 1
    third = ((a + 2) * (1 - part) - (a + 3)) * (1 - part) * (1 - part) + 1
    return np.stack([first, second, third, 1 - first - second - third], -1)


# `resize` in operators: the same numbers for images of any size.
#
# Bytes are interpolated in Float64, in whole numbers below 2**53. The quotient of two such numbers is rounded to an
# integer only if it is one, so that its floor is exact.


def resize_operators(images: Any, height: int, width: int, interpolation: Inter, ops: Any) -> Any:
    """Traced images [B, H, W, C] as [B, height, width, C] in the same element type: UInt8, or Float32.

    Lengths of UInt8 images and of nearest neighbours are read at run time; Float32 images keep the traced size.
    """
    if interpolation is Inter.NEAREST:
        for axis, new in ((1, height), (2, width)):
            rows = ops.Floor()(_length(images, axis, ops) * np.arange(new, dtype=np.float64) / np.float64(new))
            images = ops.Gather(axis)(images, ops.Cast(dt.int64)(rows))
        return images
    lowered = _lowered_bytes if images.dtype is dt.uint8 else _lowered
    return lowered(images, height, width, ops)


def _lowered(images: Any, height: int, width: int, ops: Any) -> Any:
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


def _lowered_bytes(images: Any, height: int, width: int, ops: Any) -> Any:
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
