"""Convolution layers over three axes, with the signatures and defaults of r1.2."""

from typing import Any, ClassVar

from runner import ops
from runner.common.initializer import Initial, initializer
from runner.core.values import Parameter, Tensor, Value
from runner.errors import ConfigError
from runner.nn.cell import Cell
from runner.ops.array import require
from runner.ops.convolution.volumes import convolve, convolve_back
from runner.ops.convolution.windows import Windows
from runner.types import Shape
from runner.validation.arguments import one_of, whole

Triple = tuple[int, int, int]
Sides = tuple[int, int, int, int, int, int]  # head, tail, top, bottom, left, right
MODES = "same", "valid", "pad"


class _Convolution3d(Cell):
    """Base of both layers."""

    # The printed form of the reference, with its commas and spaces.
    shown: ClassVar = (
        "input_channels={in_channels}, output_channels={out_channels}, kernel_size={kernel_size},"
        "stride={stride},  pad_mode={pad_mode}, padding={padding}, dilation={dilation}, group={group}, "
        "has_bias={has_bias},weight_init={weight_init}, bias_init={bias_init}"
    )

    def _create(self, has_bias: bool, weight_init: Initial, bias_init: Initial, **geometry: Any) -> None:
        """Set the geometry and create the parameters. Raises ConfigError for invalid numbers."""
        where = {"layer": type(self).__name__}
        names = "in_channels", "out_channels", "group"
        whole(where, 1, **{name: geometry[name] for name in names})
        one_of(where, MODES, pad_mode=geometry["pad_mode"])
        one_of(where, ("NCDHW",), data_format=geometry["data_format"])
        for name in ("in_channels", "out_channels"):
            if geometry[name] % geometry["group"]:
                rows = {**where, name: geometry[name], "group": geometry["group"]}
                raise ConfigError(f"group must divide {name}", **rows)
        if geometry["pad_mode"] != "pad" and geometry["padding"] not in (0, (0,) * 6):
            raise ConfigError("padding needs pad_mode='pad'", **where, padding=repr(geometry["padding"]))
        self.in_channels, self.out_channels, self.group = (int(geometry[name]) for name in names)
        window = [self._numbers(name, geometry[name], 3, 1) for name in ("kernel_size", "stride", "dilation")]
        self.kernel_size, self.stride, self.dilation = window
        self.pad_mode, self.padding, self.format = (geometry[k] for k in ("pad_mode", "padding", "data_format"))
        self._sides = self._numbers("padding", self.padding, 6, 0)
        self.weight_init, self.bias_init = (
            Tensor(init) if isinstance(init, Parameter) else init for init in (weight_init, bias_init)
        )
        self.has_bias = has_bias
        self.weight = Parameter(initializer(weight_init, (*self._channels(), *self.kernel_size)), "weight")
        self.bias = Parameter(initializer(bias_init, (self.out_channels,)), "bias") if has_bias else None

    def _numbers(self, name: str, given: Any, count: int, least: int) -> tuple[int, ...]:
        """One int for all axes, or one for each."""
        numbers = (given,) * count if isinstance(given, int) else tuple(given)
        if len(numbers) != count or any(type(n) is not int or n < least for n in numbers):
            allowed = f"an int of at least {least}, or {count} of them"
            raise ConfigError(f"{name} does not fit", layer=type(self).__name__, given=repr(given), allowed=allowed)
        return numbers

    def _channels(self) -> Shape:
        """The first two axes of the weight."""
        raise NotImplementedError

    def _planes(self) -> dict[str, Any]:
        """The attributes of the convolution of images, with numpy's axes height and width."""
        return {
            "kernel_size": self.kernel_size[1:],
            "pad_mode": self.pad_mode,
            "pad": self._sides[2:],
            "stride": self.stride[1:],
            "dilation": self.dilation[1:],
            "group": self.group,
        }

    def _along_depth(self, depth: int) -> Windows:
        """The windows along the depth, of an image of this height and width 1."""
        pad = (self._sides[0], self._sides[1], 0, 0)
        one = [(numbers[0], 1) for numbers in (self.kernel_size, self.stride, self.dilation)]
        return Windows.resolve((depth, 1), one[0], one[1], self.pad_mode, pad, one[2])

    def _biased(self, output: Value) -> Value:
        return output if self.bias is None else output + ops.Reshape()(self.bias, (self.out_channels, 1, 1, 1))

    def _require_five_axes(self, x: Value) -> None:
        fits = x.ndim == 5 and x.shape[1] == self.in_channels
        require(fits, f"{type(self).__name__} needs floats (N, {self.in_channels}, D, H, W)", x=x.type)

    def extend_repr(self) -> str:
        return self.shown.format(**self.__dict__)


class Conv3d(_Convolution3d):
    """Convolution of (N, in_channels, D, H, W), with the padding modes of Conv2d.

    `padding` is an int, or head, tail, top, bottom, left, right. weight: (out_channels, in_channels/group, KD, KH, KW).
    """

    shown: ClassVar = _Convolution3d.shown.replace("},weight", "}weight") + ", format={format}"

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Triple,
        stride: int | Triple = 1,
        pad_mode: str = "same",
        padding: int | Sides = 0,
        dilation: int | Triple = 1,
        group: int = 1,
        has_bias: bool = False,
        weight_init: Initial = "normal",
        bias_init: Initial = "zeros",
        data_format: str = "NCDHW",
    ) -> None:
        super().__init__()
        channels = {"in_channels": in_channels, "out_channels": out_channels, "group": group}
        window = {"kernel_size": kernel_size, "stride": stride, "dilation": dilation}
        edge = {"pad_mode": pad_mode, "padding": padding, "data_format": data_format}
        self._create(has_bias, weight_init, bias_init, **channels, **window, **edge)
        self.conv2d = ops.Conv2D(out_channels, **self._planes())

    def _channels(self) -> Shape:
        return self.out_channels, self.in_channels // self.group

    def construct(self, x: Value) -> Value:
        self._require_five_axes(x)
        return self._biased(convolve(x, self.weight, self.conv2d, self._along_depth(x.shape[2])))


class Conv3dTranspose(_Convolution3d):
    """Transposed convolution of (N, in_channels, D, H, W): the gradient of Conv3d with respect to its input.

    Sizes as of Conv2dTranspose; `output_padding`, with `pad_mode='pad'`, adds rows at the end, fewer than the stride.
    weight: (in_channels, out_channels/group, KD, KH, KW).
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Triple,
        stride: int | Triple = 1,
        pad_mode: str = "same",
        padding: int | Sides = 0,
        dilation: int | Triple = 1,
        group: int = 1,
        output_padding: int | Triple = 0,
        has_bias: bool = False,
        weight_init: Initial = "normal",
        bias_init: Initial = "zeros",
        data_format: str = "NCDHW",
    ) -> None:
        super().__init__()
        channels = {"in_channels": in_channels, "out_channels": out_channels, "group": group}
        window = {"kernel_size": kernel_size, "stride": stride, "dilation": dilation}
        edge = {"pad_mode": pad_mode, "padding": padding, "data_format": data_format}
        self._create(has_bias, weight_init, bias_init, **channels, **window, **edge)
        self.output_padding = self._numbers("output_padding", output_padding, 3, 0)
        if any(self.output_padding) and pad_mode != "pad":
            raise ConfigError("output_padding needs pad_mode='pad'", layer="Conv3dTranspose", given=output_padding)

    def _channels(self) -> Shape:
        return self.in_channels, self.out_channels // self.group

    def construct(self, x: Value) -> Value:
        self._require_five_axes(x)
        batch, depth = x.shape[0], x.shape[2]
        out, *size = (self._length(x.shape[2 + axis], axis) for axis in range(3))
        require(min(out, *size) >= 1, "Conv3dTranspose: the padding leaves no result", x=x.type, result=(out, *size))
        planes = ops.Conv2DBackpropInput(
            self.in_channels, **self._planes(), input_size=(batch * depth, self.out_channels, *size)
        )
        return self._biased(convolve_back(x, self.weight, planes, self._along_depth(out)))

    def _length(self, length: int, axis: int) -> int:
        """Length of an axis of the result: the smallest whose convolution has the length of x, and what is added."""
        stride, extent = self.stride[axis], self.dilation[axis] * (self.kernel_size[axis] - 1) + 1
        if self.pad_mode == "same":
            return length * stride
        if self.pad_mode == "valid":
            return length * stride + max(extent - stride, 0)
        return length * stride + extent - stride - sum(self._sides[2 * axis : 2 * axis + 2]) + self.output_padding[axis]
