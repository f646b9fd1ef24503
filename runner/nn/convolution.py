"""Convolution layers, with the signatures and defaults of r1.2 (spec section 8.2)."""

import dataclasses

from runner import ops
from runner.common.initializer import Initial, initializer
from runner.core.value import Parameter, Value
from runner.errors import ConfigError
from runner.nn.cell import Cell
from runner.ops.array import require
from runner.ops.window import Pair, Quad, pair, quad
from runner.validation.arguments import whole

__all__ = ["Conv2d", "Conv2dTranspose"]

Geometry = tuple[Pair, int, str, Quad, Pair, Pair, int]  # kernel_size, mode, pad_mode, pad, stride, dilation, group


class _Convolution(Cell):
    """Base of both layers, which differ in their operator and in the shape of the weight."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Pair,
        stride: int | Pair = 1,
        pad_mode: str = "same",
        padding: int | Quad = 0,
        dilation: int | Pair = 1,
        group: int = 1,
        has_bias: bool = False,
        weight_init: Initial = "normal",
        bias_init: Initial = "zeros",
    ) -> None:
        super().__init__()
        whole({"layer": type(self).__name__}, 1, in_channels=in_channels, out_channels=out_channels, group=group)
        kernel = pair(kernel_size, "kernel_size")
        pad, strides, dilations = quad(padding, "padding"), pair(stride, "stride"), pair(dilation, "dilation")
        channels = self._prepare(in_channels, out_channels, (kernel, 1, pad_mode, pad, strides, dilations, group))
        self.weight = Parameter(initializer(weight_init, (*channels, *kernel)), "weight")
        self.has_bias = has_bias
        if has_bias:
            self.bias = Parameter(initializer(bias_init, (out_channels,)), "bias")
            self.bias_add = ops.BiasAdd()

    def _prepare(self, in_channels: int, out_channels: int, geometry: Geometry) -> Pair:
        """Create the operator; the first two axes of the weight. Raises ConfigError for invalid groups."""
        raise NotImplementedError

    def _biased(self, output: Value) -> Value:
        return self.bias_add(output, self.bias) if self.has_bias else output


class Conv2d(_Convolution):
    """Convolution of (N, in_channels, H, W).

    `pad_mode` `same` gives ceil(size / stride), an odd row or column of padding at bottom and right; `valid` pads
    nothing; `pad` pads by `padding` (an int, or top, bottom, left, right).
    weight: (out_channels, in_channels/group, KH, KW).
    """

    def _prepare(self, in_channels: int, out_channels: int, geometry: Geometry) -> Pair:
        *_, group = geometry
        if in_channels % group:
            raise ConfigError("group must divide in_channels", layer="Conv2d", in_channels=in_channels, group=group)
        self.conv2d = ops.Conv2D(out_channels, *geometry)
        return out_channels, in_channels // group

    def construct(self, x: Value) -> Value:
        return self._biased(self.conv2d(x, self.weight))


class Conv2dTranspose(_Convolution):
    """Transposed convolution of (N, in_channels, H, W): the gradient of Conv2d with respect to its input.

    `pad_mode` `same` gives size * stride; `valid` adds the part of the kernel beyond the stride; `pad` subtracts
    `padding` from that. weight: (in_channels, out_channels/group, KH, KW).
    """

    def _prepare(self, in_channels: int, out_channels: int, geometry: Geometry) -> Pair:
        *_, group = geometry
        if out_channels % group:
            raise ConfigError(
                "group must divide out_channels", layer="Conv2dTranspose", out_channels=out_channels, group=group
            )
        self.out_channels = out_channels
        # The transposed convolution has in_channels outputs and out_channels inputs.
        self.conv2d_transpose = ops.Conv2DBackpropInput(in_channels, *geometry)
        return in_channels, out_channels // group

    def construct(self, x: Value) -> Value:
        require(x.ndim == 4, "Conv2dTranspose needs floats (N, C, H, W)", x=x.type)
        size = (x.shape[0], self.out_channels, self._length(x, 0), self._length(x, 1))
        require(min(size) >= 1, "Conv2dTranspose: the padding leaves no result", x=x.type, result=size)
        return self._biased(dataclasses.replace(self.conv2d_transpose, input_size=size)(x, self.weight))

    def _length(self, x: Value, axis: int) -> int:
        """Height (0) or width (1) of the result: the smallest image whose convolution has the size of x."""
        op = self.conv2d_transpose
        stride, extent = op.stride[axis], op.dilation[axis] * (op.kernel_size[axis] - 1) + 1
        length = x.shape[2 + axis] * stride
        if op.pad_mode == "same":
            return length
        beyond = extent - stride
        return length + (max(beyond, 0) if op.pad_mode == "valid" else beyond - sum(op.pad[2 * axis : 2 * axis + 2]))
