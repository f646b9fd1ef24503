"""Convolution and pooling layers over one and two axes, with the signatures and defaults of r1.2."""

import dataclasses
from dataclasses import replace
from typing import ClassVar

from runner import ops
from runner.common.initializer import Initial, initializer
from runner.core.operators import Primitive
from runner.core.values import Parameter, Tensor, Value
from runner.errors import ConfigError
from runner.nn.cell import Cell
from runner.ops.array import require, require_nchw
from runner.ops.convolution.windows import Pair, Quad, pair, quad
from runner.validation.arguments import one_of, whole

Geometry = tuple[Pair, int, str, Quad, Pair, Pair, int]  # kernel_size, mode, pad_mode, pad, stride, dilation, group


class _Convolution(Cell):
    """Base of the layers, which differ in their operator and in the shape of the weight."""

    # The printed form of MindSpore, with its commas and spaces.
    shown: ClassVar = (
        "input_channels={in_channels}, output_channels={out_channels}, kernel_size={kernel_size},"
        "stride={stride},  pad_mode={pad_mode}, padding={padding}, dilation={dilation}, group={group}, "
        "has_bias={has_bias},weight_init={weight_init}, bias_init={bias_init}"
    )

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
        self.in_channels, self.out_channels, self.group = in_channels, out_channels, group
        self.kernel_size, self.stride = pair(kernel_size, "kernel_size"), pair(stride, "stride")
        self.dilation, self.pad_mode, self.padding = pair(dilation, "dilation"), pad_mode, padding
        # Only to be printed: a parameter as an attribute would be another parameter of this layer.
        self.weight_init, self.bias_init = (_value(init) for init in (weight_init, bias_init))
        self.has_bias = has_bias
        pad = quad(padding, "padding")
        channels = self._prepare((self.kernel_size, 1, pad_mode, pad, self.stride, self.dilation, group))
        self.weight = Parameter(initializer(weight_init, (*channels, *self.kernel_size)), "weight")
        self.bias: Parameter | None = None
        if has_bias:
            self.bias = Parameter(initializer(bias_init, (out_channels,)), "bias")
            self.bias_add = ops.BiasAdd()

    def _prepare(self, geometry: Geometry) -> Pair:
        """Create the operator; the first two axes of the weight. Raises ConfigError for invalid groups."""
        raise NotImplementedError

    def _images(self, x: Value) -> Value:
        """The result for images (N, in_channels, H, W)."""
        raise NotImplementedError

    def _biased(self, output: Value) -> Value:
        return self.bias_add(output, self.bias) if self.has_bias else output

    def _require_divisible(self, name: str, channels: int) -> None:
        if channels % self.group:
            where: dict[str, object] = {"layer": type(self).__name__, name: channels, "group": self.group}
            raise ConfigError(f"group must divide {name}", **where)

    def construct(self, x: Value) -> Value:
        return self._images(x)

    def extend_repr(self) -> str:
        return self.shown.format(**self.__dict__)


def _value(init: Initial) -> Initial:
    return Tensor(init) if isinstance(init, Parameter) else init


class _Forward(_Convolution):
    """Base of Conv1d and Conv2d."""

    def _prepare(self, geometry: Geometry) -> Pair:
        self._require_divisible("in_channels", self.in_channels)
        self.conv2d = ops.Conv2D(self.out_channels, *geometry)
        return self.out_channels, self.in_channels // self.group

    def change_outputs(self, weight: Parameter, before: int, now: int) -> None:
        self.out_channels, self.conv2d = now, dataclasses.replace(self.conv2d, out_channel=now)

    def _images(self, x: Value) -> Value:
        return self._biased(self.conv2d(x, self.weight))


class _Transposed(_Convolution):
    """Base of Conv1dTranspose and Conv2dTranspose."""

    def _prepare(self, geometry: Geometry) -> Pair:
        self._require_divisible("out_channels", self.out_channels)
        # The transposed convolution has in_channels outputs and out_channels inputs.
        self.conv2d_transpose = ops.Conv2DBackpropInput(self.in_channels, *geometry)
        return self.in_channels, self.out_channels // self.group

    def _images(self, x: Value) -> Value:
        require(x.ndim == 4, f"{type(self).__name__} needs floats (N, C, H, W)", x=x.type)
        size = (x.shape[0], self.out_channels, self._length(x, 0), self._length(x, 1))
        require(min(size) >= 1, f"{type(self).__name__}: the padding leaves no result", x=x.type, result=size)
        return self._biased(self.conv2d_transpose(x, self.weight, size))

    def _length(self, x: Value, axis: int) -> int:
        """Height (0) or width (1) of the result: the smallest image whose convolution has the size of x."""
        op = self.conv2d_transpose
        stride, extent = op.stride[axis], op.dilation[axis] * (op.kernel_size[axis] - 1) + 1
        length = x.shape[2 + axis] * stride
        if op.pad_mode == "same":
            return length
        beyond = extent - stride
        return length + (max(beyond, 0) if op.pad_mode == "valid" else beyond - sum(op.pad[2 * axis : 2 * axis + 2]))


class Conv2d(_Forward):
    """Convolution of (N, in_channels, H, W).

    `pad_mode` `same` gives ceil(size / stride), an odd row or column of padding at bottom and right; `valid` pads
    nothing; `pad` pads by `padding` (an int, or top, bottom, left, right).
    weight: (out_channels, in_channels/group, KH, KW). `data_format` can only be NCHW, as on CPUs in MindSpore.
    """

    shown: ClassVar = _Convolution.shown.replace("},weight", "}weight") + ", format={format}"

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
        data_format: str = "NCHW",
    ) -> None:
        one_of({"layer": type(self).__name__}, ("NCHW",), data_format=data_format)
        window = kernel_size, stride, pad_mode, padding, dilation, group
        super().__init__(in_channels, out_channels, *window, has_bias, weight_init, bias_init)
        self.format = data_format


class Conv2dTranspose(_Transposed):
    """Transposed convolution of (N, in_channels, H, W): the gradient of Conv2d with respect to its input.

    `pad_mode` `same` gives size * stride; `valid` adds the part of the kernel beyond the stride; `pad` subtracts
    `padding` from that. weight: (in_channels, out_channels/group, KH, KW).
    """

    shown: ClassVar = _Convolution.shown.replace("},weight", "}, weight")


class _OneAxis(_Convolution):
    """Base of the layers of (N, in_channels, L), which is an image of height 1. All numbers are ints."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        pad_mode: str = "same",
        padding: int = 0,
        dilation: int = 1,
        group: int = 1,
        has_bias: bool = False,
        weight_init: Initial = "normal",
        bias_init: Initial = "zeros",
    ) -> None:
        where = {"layer": type(self).__name__}
        whole(where, 1, kernel_size=kernel_size, stride=stride, dilation=dilation)
        whole(where, 0, padding=padding)
        if isinstance(weight_init, Tensor):  # (out, in, K); one from a checkpoint has the axis of height 1 already
            rows = {**where, "given": weight_init.shape, "expected": "three axes"}
            require(weight_init.ndim == 3, "weight_init has another number of axes", **rows)
            weight_init = Tensor(weight_init.asnumpy()[:, :, None])
        window = (1, kernel_size), (1, stride), pad_mode, (0, 0, padding, padding), (1, dilation), group
        super().__init__(in_channels, out_channels, *window, has_bias, weight_init, bias_init)
        self.expand_dims, self.squeeze = ops.ExpandDims(), ops.Squeeze(2)

    def construct(self, x: Value) -> Value:
        require(x.ndim == 3, f"{type(self).__name__} needs floats (N, C, L)", x=x.type)
        return self.squeeze(self._images(self.expand_dims(x, 2)))


class Conv1d(_OneAxis, _Forward):
    """Convolution of (N, in_channels, L), with the padding modes of Conv2d.

    weight: (out_channels, in_channels/group, 1, K), as in MindSpore; `weight_init` as a tensor has no axis of 1.
    """


class Conv1dTranspose(_OneAxis, _Transposed):
    """Transposed convolution of (N, in_channels, L), with the padding modes of Conv2dTranspose.

    weight: (in_channels, out_channels/group, 1, K).
    """

    shown: ClassVar = _Convolution.shown.replace("{kernel_size},stride", "{kernel_size}, stride").replace(",  ", ", ")


# Pooling layers, with the signatures and defaults of r1.2.


class _Pooling(Cell):
    """Base; `kernel_size` and `stride` are kept as they were given, and `pad_mode` in capitals."""

    def __init__(self, kernel_size: int | Pair, stride: int | Pair, pad_mode: str, data_format: str = "NCHW") -> None:
        super().__init__()
        require_nchw(data_format)
        self.kernel_size, self.stride, self.pad_mode = kernel_size, stride, str(pad_mode).upper()
        self._window = pair(kernel_size, "kernel_size"), pair(stride, "stride"), pad_mode

    def extend_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, pad_mode={self.pad_mode}"


class MaxPool2d(_Pooling):
    """Largest element of each window; `pad_mode` `valid` drops incomplete windows, `same` gives ceil(size / stride).

    As in later releases, `pad` pads by `padding` (an int, or top, bottom, left, right), with elements that are never
    the largest; `ceil_mode` then keeps incomplete windows. `dilation` is the distance of the elements of a window.
    """

    def __init__(
        self,
        kernel_size: int | Pair = 1,
        stride: int | Pair = 1,
        pad_mode: str = "valid",
        data_format: str = "NCHW",
        *,
        padding: int | Quad = 0,
        dilation: int | Pair = 1,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__(kernel_size, stride, pad_mode, data_format)
        edge = quad(padding, "padding"), pair(dilation, "dilation")
        self.max_pool = ops.MaxPool(*self._window, padding=edge[0], dilation=edge[1], ceil_mode=ceil_mode)

    def construct(self, x: Value) -> Value:
        return self.max_pool(x)


class AvgPool2d(_Pooling):
    """Mean of each window without padding; `pad_mode` and `ceil_mode` as in MaxPool2d.

    With `pad_mode` `pad`, padding counts as elements of 0 unless `count_include_pad` is False, as in later releases.
    """

    def __init__(
        self,
        kernel_size: int | Pair = 1,
        stride: int | Pair = 1,
        pad_mode: str = "valid",
        data_format: str = "NCHW",
        *,
        padding: int | Quad = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__(kernel_size, stride, pad_mode, data_format)
        edge = quad(padding, "padding")
        self.avg_pool = ops.AvgPool(
            *self._window, padding=edge, ceil_mode=ceil_mode, count_include_pad=count_include_pad
        )

    def construct(self, x: Value) -> Value:
        return self.avg_pool(x)


class _PoolOneAxis(_Pooling):
    """Base of the pools of (N, C, L), which is an image of height 1. All numbers are ints."""

    def __init__(self, kernel_size: int, stride: int, pad_mode: str, padding: int) -> None:
        where = {"layer": type(self).__name__}
        whole(where, 1, kernel_size=kernel_size, stride=stride)
        whole(where, 0, padding=padding)
        super().__init__((1, kernel_size), (1, stride), pad_mode)
        self._padding = 0, 0, padding, padding
        self.expand_dims, self.squeeze = ops.ExpandDims(), ops.Squeeze(2)

    def _pooled(self, x: Value, pool: Primitive) -> Value:
        require(x.ndim == 3, f"{type(self).__name__} needs floats (N, C, L)", x=x.type)
        return self.squeeze(pool(self.expand_dims(x, 2)))


class MaxPool1d(_PoolOneAxis):
    """Largest element of each window of (N, C, L); `pad_mode` and further arguments as in MaxPool2d."""

    def __init__(
        self,
        kernel_size: int = 1,
        stride: int = 1,
        pad_mode: str = "valid",
        *,
        padding: int = 0,
        dilation: int = 1,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__(kernel_size, stride, pad_mode, padding)
        whole({"layer": type(self).__name__}, 1, dilation=dilation)
        edge = self._padding, (1, dilation)
        self.max_pool = ops.MaxPool(*self._window, padding=edge[0], dilation=edge[1], ceil_mode=ceil_mode)

    def construct(self, x: Value) -> Value:
        return self._pooled(x, self.max_pool)


class AvgPool1d(_PoolOneAxis):
    """Mean of each window of (N, C, L) without padding; `pad_mode` and further arguments as in AvgPool2d."""

    def __init__(
        self,
        kernel_size: int = 1,
        stride: int = 1,
        pad_mode: str = "valid",
        *,
        padding: int = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__(kernel_size, stride, pad_mode, padding)
        edge = self._padding
        self.avg_pool = ops.AvgPool(
            *self._window, padding=edge, ceil_mode=ceil_mode, count_include_pad=count_include_pad
        )

    def construct(self, x: Value) -> Value:
        return self._pooled(x, self.avg_pool)


def set_impl_mode(network: Cell, impl_mode: str) -> int:
    """Set how the average pools of a network sum Float16 (`ops.AvgPool.impl_mode`). Returns their number."""
    count = 0
    for _, cell in network.cells_and_names():
        for name, op in list(vars(cell).items()):
            if isinstance(op, ops.AvgPool):
                setattr(cell, name, replace(op, impl_mode=impl_mode))
                count += 1
    return count
