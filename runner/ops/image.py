"""Operators on images (N, C, H, W), composed of others: sizes, normalization across channels, depthwise products."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from runner.core.value import Tensor, Value
from runner.ops.array import Pad, Reshape, Slice, Transpose, require
from runner.ops.composition import ComposedOperator
from runner.ops.conv import Conv2D
from runner.ops.elementwise import Pow, Square
from runner.ops.rows import Gather
from runner.ops.window import pair

__all__ = ["LRN", "DepthwiseConv2dNative", "ResizeBilinear", "ResizeNearestNeighbor"]


@dataclass(frozen=True)
class Resize(ComposedOperator):
    """Base: `size` is the new (H, W); with `align_corners` the corners keep their values."""

    size: Any
    align_corners: bool = False

    def new_size(self, x: Value) -> tuple[int, int]:
        """The new height and width."""
        size = pair(tuple(self.size), "size")
        require(x.ndim == 4 and min(x.shape[2:]) > 0, "needs images (N, C, H, W)", x=x.type)
        return size

    def places(self, length: int, count: int) -> np.ndarray:
        """The position in an axis of `length` elements of each of the `count` new ones."""
        if self.align_corners and count > 1:
            return np.arange(count) * ((length - 1) / (count - 1))
        return np.arange(count) * (length / count)


@dataclass(frozen=True)
class ResizeNearestNeighbor(Resize):
    """Images of another `size` (H, W): element k is number floor(k * old / new), of which the last one is the limit.

    With `align_corners`, the number nearest to k * (old - 1) / (new - 1).
    """

    def compose(self, x: Value) -> Value:
        rounded: Callable[[np.ndarray], np.ndarray] = _half_up if self.align_corners else np.floor
        for axis, count in zip((2, 3), self.new_size(x), strict=True):
            numbers = np.minimum(rounded(self.places(x.shape[axis], count)), x.shape[axis] - 1)
            x = Gather(axis)(x, Tensor(numbers.astype(np.int32)))
        return x


def _half_up(x: np.ndarray) -> np.ndarray:
    return np.floor(x + 0.5)


@dataclass(frozen=True)
class ResizeBilinear(Resize):
    """Images of another `size` (H, W), interpolated between the two nearest rows and columns.

    Element k is at k * old / new; with `align_corners` at k * (old - 1) / (new - 1).
    """

    def compose(self, x: Value) -> Value:
        require(x.dtype.is_float, "needs floats", x=x.type)
        for axis, count in zip((2, 3), self.new_size(x), strict=True):
            places = self.places(x.shape[axis], count)
            low = np.minimum(np.floor(places), x.shape[axis] - 1)
            share = Tensor(np.asarray(places - low, x.dtype.numpy).reshape((-1,) + (1,) * (3 - axis)))
            next_ones = np.minimum(low + 1, x.shape[axis] - 1)
            first = Gather(axis)(x, Tensor(low.astype(np.int32)))
            x = first + (Gather(axis)(x, Tensor(next_ones.astype(np.int32))) - first) * share
        return x


@dataclass(frozen=True)
class LRN(ComposedOperator):
    """x / (bias + alpha * the sum of the squares of up to `depth_radius` channels on each side) ** beta."""

    depth_radius: int = 5
    bias: float = 1.0
    alpha: float = 1.0
    beta: float = 0.5
    norm_region: str = "ACROSS_CHANNELS"

    def __post_init__(self) -> None:
        region = self.norm_region
        require(region == "ACROSS_CHANNELS", "unknown norm_region", given=region, allowed="ACROSS_CHANNELS")
        require(self.depth_radius >= 0, "depth_radius must not be negative", given=self.depth_radius)

    def compose(self, x: Value) -> Value:
        require(x.ndim == 4 and x.dtype.is_float, "needs floats (N, C, H, W)", x=x.type)
        radius = min(self.depth_radius, x.shape[1])
        squares = Pad(((0, 0), (radius, radius), (0, 0), (0, 0)))(Square()(x))
        total = Slice((0, 0, 0, 0), x.shape)(squares)
        for start in range(1, 2 * radius + 1):
            total = total + Slice((0, start, 0, 0), x.shape)(squares)
        result: Value = x * Pow()(total * self.alpha + self.bias, -self.beta)
        return result


@dataclass(frozen=True)
class DepthwiseConv2dNative(ComposedOperator):
    """Each channel of x (N, C, H, W) cross-correlated with its own filters (channel_multiplier, C, KH, KW): to
    (N, C * channel_multiplier, H', W')."""

    channel_multiplier: int
    kernel_size: Any
    mode: int = 3
    pad_mode: str = "valid"
    pad: Any = 0
    stride: Any = 1
    dilation: Any = 1
    group: int = 1

    def compose(self, x: Value, weight: Value) -> Value:
        require(x.ndim == weight.ndim == 4, "needs images and filters", x=x.type, weight=weight.type)
        channels, multiplier = x.shape[1], self.channel_multiplier
        fits = weight.shape[:2] == (multiplier, channels)
        require(fits, "needs filters (channel_multiplier, C, KH, KW)", x=x.type, weight=weight.type)
        filters = Reshape((channels * multiplier, 1, *weight.shape[2:]))(Transpose((1, 0, 2, 3))(weight))
        geometry = self.pad_mode, self.pad, self.stride, self.dilation
        convolution = Conv2D(channels * multiplier, self.kernel_size, 1, *geometry, channels)
        result: Value = convolution(x, filters)
        return result
