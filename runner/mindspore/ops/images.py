"""Operators on images (N, C, H, W), composed of others: normalization across channels, depthwise convolution."""

from dataclasses import dataclass
from typing import Any

from runner.core.operators import ComposedOperator
from runner.core.values import Value
from runner.ops.array import Pad, Reshape, Slice, Transpose, require
from runner.ops.convolution.conv import Conv2D
from runner.ops.elementwise.arithmetic import Pow, Square


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
        return x * Pow()(total * self.alpha + self.bias, -self.beta)


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
        return convolution(x, filters)
