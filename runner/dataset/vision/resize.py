"""Resampling of a stack of images, bit-exact on every machine.

With pixel centres at halves, pixel i of the result is at `((2i + 1) * old - new) / (2 * new)` of the old axis, a
fraction. So bytes are interpolated in integers and rounded once, halves up; no tie depends on float rounding.
"""

import math

import numpy as np

from runner.dataset.vision.inter import Inter
from runner.dataset.vision.resize_cubic import resize_cubic
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
