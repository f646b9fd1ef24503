"""Convolution and its two gradients.

Convolution is bilinear, so each of the three operators is the derivative of the other two; in numpy all three are one
matrix product with the columns of the windows. Attributes and operand order are the reference's.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from runner.core.lowering import Builder
from runner.core.primitive import Gradient, Primitive, family, primitive
from runner.core.value import Value
from runner.ops.array import require
from runner.ops.window import PAD_MODES, Pair, Quad, Windows, batch_first, batch_last, pair, quad
from runner.types import Shape, TensorType


@family
class Convolution(Primitive):
    """Base of the three: the attributes, and where the windows lie in an image."""

    out_channel: int
    kernel_size: Pair
    mode: int = 1
    pad_mode: str = "valid"
    pad: Quad = (0, 0, 0, 0)
    stride: Pair = (1, 1)
    dilation: Pair = (1, 1)
    group: int = 1

    def __post_init__(self) -> None:
        require(self.pad_mode in PAD_MODES, "unknown pad_mode", given=self.pad_mode, allowed=", ".join(PAD_MODES))
        require(self.mode == 1, "only cross-correlation (mode 1) exists", mode=self.mode)
        require(
            self.group >= 1 and self.out_channel % self.group == 0, "group must divide out_channel", group=self.group
        )
        pairs = {"kernel_size": self.kernel_size, "stride": self.stride, "dilation": self.dilation}
        for name, value in pairs.items():
            object.__setattr__(self, name, pair(value, name))
        object.__setattr__(self, "pad", quad(self.pad, "pad"))
        require(
            self.pad_mode == "pad" or not any(self.pad),
            "pad needs pad_mode='pad'",
            pad=self.pad,
            pad_mode=self.pad_mode,
        )

    def windows(self, image: Shape) -> Windows:
        """The windows in images of shape (N, C, H, W)."""
        return Windows.resolve(
            (image[2], image[3]), self.kernel_size, self.stride, self.pad_mode, self.pad, self.dilation
        )

    def shared(self) -> dict[str, Any]:
        """The attributes that the three operators share."""
        names = ("out_channel", "kernel_size", "mode", "pad_mode", "pad", "stride", "dilation", "group")
        return {name: getattr(self, name) for name in names}

    def grouped(self, a: np.ndarray) -> np.ndarray:
        """Split the first axis by group, and flatten the rest: (G, rows, columns)."""
        return a.reshape(self.group, a.shape[0] // self.group, -1)


@primitive
class Conv2D(Convolution):
    """Cross-correlate x (N, C, H, W) with w (K, C/group, KH, KW)."""

    def infer(self, x: TensorType, w: TensorType) -> TensorType:
        fits = x.ndim == w.ndim == 4 and x.dtype is w.dtype and x.dtype.is_float
        require(fits, "needs floats (N, C, H, W) and (K, C/group, KH, KW)", x=x, w=w)
        channels = f"{w} has {w.shape[1]} x group {self.group}"
        require(x.shape[1] == w.shape[1] * self.group, "channels of x against w", x=f"{x} has {x.shape[1]}", w=channels)
        expected = (self.out_channel, w.shape[1], *self.kernel_size)
        require(w.shape == expected, "w has another shape than the attributes say", w=w, expected=expected)
        return x.with_shape(x.shape[0], self.out_channel, *self.windows(x.shape).out)

    def kernel(self, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        windows = self.windows(x.shape)
        columns = windows.columns(batch_last(x)).reshape(self.group, -1, windows.out[0] * windows.out[1] * len(x))
        return batch_first((self.grouped(w) @ columns).reshape(len(w), *windows.out, len(x)))

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        (x, w), (dout,) = inputs, douts
        return (
            lambda: Conv2DBackpropInput(**self.shared(), input_size=x.shape)(dout, w),
            lambda: Conv2DBackpropFilter(**self.shared(), filter_size=w.shape)(dout, x),
        )

    def lower(self, b: Builder, x: str, w: str) -> str:
        return b.node("Conv", (x, w), group=self.group, **self.windows(b.type(x).shape).onnx())


@primitive
class Conv2DBackpropInput(Convolution):
    """Gradient of Conv2D for x: (dout, w) to `input_size`, which is an attribute because a stride forgets it."""

    input_size: Shape = ()

    def infer(self, dout: TensorType, w: TensorType) -> TensorType:
        expected = Conv2D(**self.shared()).infer(dout.with_shape(*self.input_size), w)
        require(dout == expected, "dout has another type than the attributes say", dout=dout, expected=expected)
        return dout.with_shape(*self.input_size)

    def kernel(self, dout: np.ndarray, w: np.ndarray) -> np.ndarray:
        columns = self.grouped(w).transpose(0, 2, 1) @ self.grouped(batch_last(dout))
        return batch_first(self.windows(self.input_size).spread(columns, self.input_size[1]))

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        (dout, w), (g,) = inputs, douts
        return (
            lambda: Conv2D(**self.shared())(g, w),
            lambda: Conv2DBackpropFilter(**self.shared(), filter_size=w.shape)(dout, g),
        )

    def lower(self, b: Builder, dout: str, w: str) -> str:
        windows = self.windows(self.input_size)
        # The rows and columns that the stride did not reach come back as output_padding.
        missing = [(p - r) % s for p, r, s in zip(windows.padded, windows.reach, windows.strides, strict=True)]
        return b.node("ConvTranspose", (dout, w), output_padding=missing, group=self.group, **windows.onnx())


@primitive
class Conv2DBackpropFilter(Convolution):
    """Gradient of Conv2D for w: (dout, x) to `filter_size`."""

    filter_size: Shape = ()

    def infer(self, dout: TensorType, x: TensorType) -> TensorType:
        expected = Conv2D(**self.shared()).infer(x, x.with_shape(*self.filter_size))
        require(dout == expected, "dout has another type than the attributes say", dout=dout, expected=expected)
        return x.with_shape(*self.filter_size)

    def kernel(self, dout: np.ndarray, x: np.ndarray) -> np.ndarray:
        columns = self.windows(x.shape).columns(batch_last(x))
        columns = columns.reshape(self.group, -1, columns.shape[1])
        made: np.ndarray = (self.grouped(batch_last(dout)) @ columns.transpose(0, 2, 1)).reshape(self.filter_size)
        return made

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        (dout, x), (g,) = inputs, douts
        return (
            lambda: Conv2D(**self.shared())(x, g),
            lambda: Conv2DBackpropInput(**self.shared(), input_size=x.shape)(dout, g),
        )

    def lower(self, b: Builder, dout: str, x: str) -> str:
        """Also a convolution: batch and channel change places, and so do stride and dilation."""
        windows, (n, c, h, w), group = self.windows(b.type(x).shape), b.type(x).shape, self.group
        if group > 1:
            split = b.node("Transpose", (b.reshape(x, (n, group, c // group, h, w)),), perm=(2, 1, 0, 3, 4))
            images = b.reshape(split, (c // group, group * n, h, w))
        else:
            images = b.node("Transpose", (x,), perm=(1, 0, 2, 3))
        swapped = {**windows.onnx(), "strides": windows.dilations, "dilations": windows.strides}
        made = b.node("Conv", (images, b.node("Transpose", (dout,), perm=(1, 0, 2, 3))), group=group, **swapped)
        if not windows.covers:
            made = b.node("Slice", (made, b.const([0, 0]), b.const(list(self.kernel_size)), b.const([2, 3])))
        return b.node("Transpose", (made,), perm=(1, 0, 2, 3))
