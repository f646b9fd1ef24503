"""Convolution layers, with the signatures and defaults of r1.2 (spec section 8.2)."""

from runner import ops
from runner.common.initializer import initializer
from runner.core.value import Parameter, Value
from runner.errors import ConfigError
from runner.nn.arguments import Init, positive
from runner.nn.cell import Cell
from runner.ops.window import Pair, Quad, pair, quad


class Conv2d(Cell):
    """Convolution of (N, in_channels, H, W).

    `pad_mode` `same` keeps ceil(size / stride), with the odd row and column at bottom and right, `valid` pads nothing,
    `pad` pads by `padding` (an int, or top, bottom, left, right). weight: (out_channels, in_channels/group, KH, KW).
    """

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
        weight_init: Init = "normal",
        bias_init: Init = "zeros",
    ) -> None:
        super().__init__()
        positive(self, in_channels=in_channels, out_channels=out_channels, group=group)
        if in_channels % group:
            raise ConfigError("group must divide in_channels", layer="Conv2d", in_channels=in_channels, group=group)
        self.conv2d = ops.Conv2D(
            out_channels,
            pair(kernel_size, "kernel_size"),
            1,
            pad_mode,
            quad(padding, "padding"),
            pair(stride, "stride"),
            pair(dilation, "dilation"),
            group,
        )
        shape = (out_channels, in_channels // group, *pair(kernel_size, "kernel_size"))
        self.weight = Parameter(initializer(weight_init, shape), "weight")
        self.has_bias = has_bias
        if has_bias:
            self.bias = Parameter(initializer(bias_init, (out_channels,)), "bias")
            self.bias_add = ops.BiasAdd()

    def construct(self, x: Value) -> Value:
        output: Value = self.conv2d(x, self.weight)
        if self.has_bias:
            output = self.bias_add(output, self.bias)
        return output
