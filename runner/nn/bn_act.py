"""A convolution or Dense layer with batch normalisation and an activation, as the reference combines them."""

from runner.common.initializer import Initial
from runner.core.primitive import Primitive
from runner.core.value import Value
from runner.nn.activation import LeakyReLU, activation_of
from runner.nn.basic import Dense
from runner.nn.cell import Cell
from runner.nn.convolution import Conv2d
from runner.nn.normalization import BatchNorm1d, BatchNorm2d, BatchNormalization
from runner.ops.window import Pair, Quad
from runner.validation.arguments import flag

__all__ = ["Conv2dBnAct", "DenseBnAct"]


class _Combined(Cell):
    """Base: what follows the layer; `normalization` is None without `has_bn`."""

    def _follow(
        self,
        normalization: BatchNormalization | None,
        activation: str | Cell | Primitive | None,
        alpha: float,
        after_fake: bool,
    ) -> None:
        flag({"layer": type(self).__name__}, after_fake=after_fake)
        self.has_bn, self.has_act = normalization is not None, activation is not None
        self.after_fake = after_fake  # of quantization-aware training, which does not exist here
        if normalization is not None:
            self.batchnorm = normalization
        self.activation = LeakyReLU(alpha) if activation == "leakyrelu" else activation_of(self, activation)

    def _followed(self, x: Value) -> Value:
        if self.has_bn:
            x = self.batchnorm(x)
        return self.activation(x) if self.activation is not None else x


class Conv2dBnAct(_Combined):
    """`Conv2d`, then with `has_bn` a `BatchNorm2d`, then `activation`: a name, a layer, an operator or None.

    `alpha` is the slope of `leakyrelu`; `after_fake` has no effect.
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
        weight_init: Initial = "normal",
        bias_init: Initial = "zeros",
        has_bn: bool = False,
        momentum: float = 0.997,
        eps: float = 1e-5,
        activation: str | Cell | Primitive | None = None,
        alpha: float = 0.2,
        after_fake: bool = True,
    ) -> None:
        super().__init__()
        flag({"layer": type(self).__name__}, has_bn=has_bn)
        window = kernel_size, stride, pad_mode, padding, dilation, group
        self.conv = Conv2d(in_channels, out_channels, *window, has_bias, weight_init, bias_init)
        self._follow(BatchNorm2d(out_channels, eps, momentum) if has_bn else None, activation, alpha, after_fake)

    def construct(self, x: Value) -> Value:
        return self._followed(self.conv(x))


class DenseBnAct(_Combined):
    """`Dense`, then with `has_bn` a `BatchNorm1d`, then `activation`, as in `Conv2dBnAct`."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        weight_init: Initial = "normal",
        bias_init: Initial = "zeros",
        has_bias: bool = True,
        has_bn: bool = False,
        momentum: float = 0.9,
        eps: float = 1e-5,
        activation: str | Cell | Primitive | None = None,
        alpha: float = 0.2,
        after_fake: bool = True,
    ) -> None:
        super().__init__()
        flag({"layer": type(self).__name__}, has_bn=has_bn)
        self.dense = Dense(in_channels, out_channels, weight_init, bias_init, has_bias)
        self._follow(BatchNorm1d(out_channels, eps, momentum) if has_bn else None, activation, alpha, after_fake)

    def construct(self, x: Value) -> Value:
        return self._followed(self.dense(x))
