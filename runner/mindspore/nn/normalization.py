"""Normalisation of each sample by itself, and convolution or Dense layers combined with batch normalisation."""

from runner import ops
from runner.common.initializer import Initial, initializer
from runner.core.operators import Primitive
from runner.core.values import Parameter, Value
from runner.errors import ConfigError
from runner.nn.basic import Dense, LeakyReLU, activation_of
from runner.nn.cell import Cell
from runner.nn.convolution import Conv2d
from runner.nn.normalization import BatchNorm1d, BatchNorm2d, BatchNormalization
from runner.ops.array import require
from runner.ops.convolution.windows import Pair, Quad
from runner.types import Shape
from runner.validation.arguments import above, at_least, at_most, flag, whole

# Each sample by itself: over groups of channels, and over single channels.


class _PerSample(Cell):
    """Base: x (N, C, H, W) normalised by mean and biased variance of groups of channels, for each sample.

    gamma and beta: one number for each channel, trained if `affine`.
    """

    def _create(
        self, groups: int, channels: int, eps: float, affine: bool, gamma_init: Initial, beta_init: Initial
    ) -> None:
        where = {"layer": type(self).__name__}
        above(where, 0.0, eps=eps)
        flag(where, affine=affine)
        self._groups, self._channels, self.eps = groups, channels, eps
        self.gamma = Parameter(initializer(gamma_init, (channels,)), "gamma", requires_grad=affine)
        self.beta = Parameter(initializer(beta_init, (channels,)), "beta", requires_grad=affine)
        self.reshape, self.mean = ops.Reshape(), ops.ReduceMean(True, 2)
        self.square, self.sqrt = ops.Square(), ops.Sqrt()

    def _centred(self, grouped: Value) -> tuple[Value, Value]:
        """The elements less their mean, and their variance."""
        centred = grouped - self.mean(grouped)
        return centred, self.mean(self.square(centred))

    def construct(self, x: Value) -> Value:
        fits = x.ndim == 4 and x.shape[1] == self._channels
        require(fits, f"{type(self).__name__} takes (N, {self._channels}, H, W)", x=x.type)
        grouped = self.reshape(x, (x.shape[0], self._groups, -1))
        centred, variance = self._centred(grouped)
        normal = centred / self.sqrt(variance + self.eps)
        each: Shape = (self._channels, 1, 1)
        return self.reshape(normal, x.shape) * self.reshape(self.gamma, each) + self.reshape(self.beta, each)


class GroupNorm(_PerSample):
    """Group normalisation (Wu and He, 2018) of (N, num_channels, H, W) in `num_groups` groups of channels."""

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        gamma_init: Initial = "ones",
        beta_init: Initial = "zeros",
    ) -> None:
        super().__init__()
        whole({"layer": type(self).__name__}, 1, num_groups=num_groups, num_channels=num_channels)
        if num_channels % num_groups:
            where = {"layer": "GroupNorm", "num_groups": num_groups, "num_channels": num_channels}
            raise ConfigError("num_groups must divide num_channels", **where)
        self.num_groups, self.num_channels = num_groups, num_channels
        self._create(num_groups, num_channels, eps, affine, gamma_init, beta_init)

    def extend_repr(self) -> str:
        return f"num_groups={self.num_groups}, num_channels={self.num_channels}"


class InstanceNorm2d(_PerSample):
    """Instance normalisation (Ulyanov and others, 2016) of (N, num_features, H, W), in training and inference.

    The parameters `mean` and `variance` are those of the reference's checkpoints. They are read without
    `use_batch_statistics` only, and keep their values: `momentum` has no effect.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = True,
        gamma_init: Initial = "ones",
        beta_init: Initial = "zeros",
        moving_mean_init: Initial = "zeros",
        moving_var_init: Initial = "ones",
        use_batch_statistics: bool = True,
    ) -> None:
        super().__init__()
        where = {"layer": type(self).__name__}
        whole(where, 1, num_features=num_features)
        flag(where, use_batch_statistics=use_batch_statistics)
        at_least(where, 0.0, momentum=momentum)
        at_most(where, 1.0, momentum=momentum)
        self.num_features, self.momentum, self.use_batch_statistics = num_features, momentum, use_batch_statistics
        self.moving_mean = Parameter(initializer(moving_mean_init, (num_features,)), "mean", requires_grad=False)
        self.moving_variance = Parameter(initializer(moving_var_init, (num_features,)), "variance", requires_grad=False)
        self._create(num_features, num_features, eps, affine, gamma_init, beta_init)

    def _centred(self, grouped: Value) -> tuple[Value, Value]:
        if self.use_batch_statistics:
            return super()._centred(grouped)
        each: Shape = (self.num_features, 1)
        return grouped - self.reshape(self.moving_mean, each), self.reshape(self.moving_variance, each)

    def extend_repr(self) -> str:
        names = "num_features", "eps", "momentum", "gamma", "beta", "moving_mean", "moving_variance"
        return ", ".join(f"{name}={getattr(self, name)}" for name in names)


# A layer with batch normalisation and an activation, as the reference combines them.


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
