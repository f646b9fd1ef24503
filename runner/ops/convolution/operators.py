"""Convolution and its two gradients.

Convolution is bilinear, so each of the three operators is the derivative of the other two; in numpy all three are one
matrix product with the columns of the windows (im2col). Attributes and operand order are those of the reference.
"""

import math
import operator
from collections.abc import Sequence
from functools import reduce
from typing import ClassVar

import numpy as np

from runner.core.lowering import Builder, Form
from runner.core.operators import BatchRule, Gradient, primitive
from runner.core.values import Value
from runner.host.threads import in_order
from runner.ops.array import Pad, Reshape, Transpose, require
from runner.ops.convolution import conv_filter, conv_forward, conv_input
from runner.ops.convolution.columns import suits_batch_last
from runner.ops.convolution.geometry import Convolution, multiply_adds
from runner.ops.convolution.pool import Pooling
from runner.ops.convolution.windows import Windows, batch_first, batch_last
from runner.ops.indexing.slices import StridedSliceGrad
from runner.ops.matrices import blocked_product, unpacked_sum
from runner.types import Shape, TensorType


@primitive
class Conv2D(Convolution):
    """Cross-correlate x (N, C, H, W) with w (K, C/group, KH, KW)."""

    def infer(self, x: TensorType, w: TensorType) -> TensorType:
        fits = x.ndim == w.ndim == 4 and x.dtype is w.dtype and x.dtype.is_float
        require(fits, "needs floats (N, C, H, W) and (K, C/group, KH, KW)", x=x, w=w)
        channels = f"{w} has {w.shape[1]} x group {self.group}"
        require(x.shape[1] == w.shape[1] * self.group, "channels of x against w", x=f"{x} has {x.shape[1]}", w=channels)
        expected = (self.out_channel, w.shape[1], *self.kernel_size)
        require(w.shape == expected, "the shape of w does not match the attributes", w=w, expected=expected)
        return x.with_shape(x.shape[0], self.out_channel, *self.windows(x.shape).out)

    def kernel(self, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        windows = self.windows(x.shape)
        if tiled := self.tiled(windows, w.shape, x):
            return batch_first(tiled.correlate(batch_last(x), w))
        return batch_first(windows.correlate(batch_last(x), self.grouped(w)))

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return multiply_adds(outputs[0], inputs[1])

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        (x, w), (dout,) = inputs, douts
        return (
            lambda: self.sibling(Conv2DBackpropInput, input_size=x.shape)(dout, w),
            lambda: self.sibling(Conv2DBackpropFilter, filter_size=w.shape)(dout, x),
        )

    def lower(self, b: Builder, x: str, w: str) -> str:
        return b.node("Conv", (x, w), group=self.group, **self.windows(b.type(x).shape).onnx())

    def batched(self, types: Sequence[TensorType]) -> BatchRule | None:
        return BatchRule((True, False), lambda _: self)

    def forms(self, x: TensorType, w: TensorType) -> Sequence[Form]:
        batch_last_forms = conv_forward.forms(self, x) if suits_batch_last(x) else ()
        return *batch_last_forms, Form("plain", self.lower, penalty=x.size)


@primitive
class Conv2DBackpropInput(Convolution):
    """Gradient of Conv2D with respect to x: (dout, w) to `input_size`, which a stride makes ambiguous."""

    input_size: Shape = ()
    statics: ClassVar = ("input_size",)

    def infer(self, dout: TensorType, w: TensorType) -> TensorType:
        expected = self.sibling(Conv2D).infer(dout.with_shape(*self.input_size), w)
        require(dout == expected, "the type of dout does not match the attributes", dout=dout, expected=expected)
        return dout.with_shape(*self.input_size)

    def kernel(self, dout: np.ndarray, w: np.ndarray) -> np.ndarray:
        windows, channels = self.windows(self.input_size), self.input_size[1]
        reverse = windows.reverse
        if tiled := self.tiled(reverse, w.shape, dout):
            return batch_first(tiled.correlate(batch_last(dout), w, flipped=True))
        # im2col needs a column per element of the image; col2im needs one per element of the result, but is slower.
        if reverse and len(w) * math.prod(windows.size) <= channels * math.prod(windows.out):
            flipped = w.reshape(self.group, -1, *w.shape[1:])[..., ::-1, ::-1].swapaxes(1, 2)
            filters = flipped.reshape(self.group, channels // self.group, -1)
            return batch_first(reverse.correlate(batch_last(dout), filters))
        douts, filters = self.grouped(batch_last(dout)), self.grouped(w).swapaxes(1, 2)
        if self.is_pointwise(windows) and self.stride == (1, 1):
            columns = blocked_product(filters[0], douts[0])  # of one group
            return batch_first(columns.reshape(channels, *windows.size, len(dout)))
        image = np.zeros((channels, *windows.padded, len(dout)), dout.dtype)
        if reverse and self.group == 1:
            rows = w[..., ::-1].transpose(2, 1, 0, 3).reshape(self.kernel_size[0], channels, -1)
            return batch_first(windows.col2im_rows(batch_last(dout), rows, image))
        slabs = windows.slabs(channels * math.prod(self.kernel_size), len(dout), dout.itemsize)
        parts = in_order(lambda slab: (slab, filters @ douts[..., slab]), slabs, 2 * w.size * douts.shape[-1])
        return batch_first(windows.col2im(parts, image))

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return multiply_adds(inputs[0], inputs[1])

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        (dout, w), (g,) = inputs, douts
        return (
            lambda: self.sibling(Conv2D)(g, w),
            lambda: self.sibling(Conv2DBackpropFilter, filter_size=w.shape)(dout, g),
        )

    def lower(self, b: Builder, dout: str, w: str) -> str:
        windows = self.windows(self.input_size)
        # output_padding restores the rows and columns that the stride did not reach.
        missing = [(p - r) % s for p, r, s in zip(windows.padded, windows.extent, windows.strides, strict=True)]
        return b.node("ConvTranspose", (dout, w), output_padding=missing, group=self.group, **windows.onnx())

    def batched(self, types: Sequence[TensorType]) -> BatchRule | None:
        image = self.input_size[1:]
        return BatchRule((True, False), lambda n: self.sibling(Conv2DBackpropInput, input_size=(n, *image)))

    def forms(self, dout: TensorType, w: TensorType) -> Sequence[Form]:
        batch_last_forms = conv_input.forms(self, self.input_size) if suits_batch_last(dout) else ()
        return *batch_last_forms, Form("plain", self.lower, penalty=dout.size)


@primitive
class Conv2DBackpropFilter(Convolution):
    """Gradient of Conv2D with respect to w: (dout, x) to `filter_size`."""

    filter_size: Shape = ()
    statics: ClassVar = ("filter_size",)

    def infer(self, dout: TensorType, x: TensorType) -> TensorType:
        expected = self.sibling(Conv2D).infer(x, x.with_shape(*self.filter_size))
        require(dout == expected, "the type of dout does not match the attributes", dout=dout, expected=expected)
        return x.with_shape(*self.filter_size)

    def kernel(self, dout: np.ndarray, x: np.ndarray) -> np.ndarray:
        windows = self.windows(x.shape)
        if tiled := self.tiled(windows, self.filter_size, x):
            return tiled.filter_gradient(batch_last(dout), batch_last(x))
        douts = self.grouped(batch_last(dout))

        def multiply(part: slice, columns: np.ndarray) -> np.ndarray:
            return transposed_product(douts[..., part], self.grouped(columns))

        parts = windows.im2col(batch_last(x), multiply, douts.shape[1])
        gradient = reduce(np.add, (values for _, values in parts))
        return np.ascontiguousarray(gradient).reshape(self.filter_size)  # the order of what it updates

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return multiply_adds(inputs[0], outputs[0])

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        (dout, x), (g,) = inputs, douts
        return (
            lambda: self.sibling(Conv2D)(x, g),
            lambda: self.sibling(Conv2DBackpropInput, input_size=x.shape)(dout, g),
        )

    def lower(self, b: Builder, dout: str, x: str) -> str:
        """Also a convolution, with batch and channel swapped, and stride and dilation swapped."""
        windows, (n, c, h, w), group = self.windows(b.type(x).shape), b.type(x).shape, self.group
        if group > 1:
            split = b.node("Transpose", (b.reshape(x, (n, group, c // group, h, w)),), perm=(2, 1, 0, 3, 4))
            images = b.reshape(split, (c // group, group * n, h, w))
        else:
            images = b.node("Transpose", (x,), perm=(1, 0, 2, 3))
        swapped = {**windows.onnx(), "strides": windows.dilations, "dilations": windows.strides}
        result = b.node("Conv", (images, b.node("Transpose", (dout,), perm=(1, 0, 2, 3))), group=group, **swapped)
        if not windows.covers_image:
            result = b.node("Slice", (result, b.const([0, 0]), b.const(list(self.kernel_size)), b.const([2, 3])))
        return b.node("Transpose", (result,), perm=(1, 0, 2, 3))

    def batched(self, types: Sequence[TensorType]) -> BatchRule | None:
        return BatchRule((True, True), lambda _: self, is_sum=True)

    def forms(self, dout: TensorType, x: TensorType) -> Sequence[Form]:
        batch_last_forms = conv_filter.forms(self, x) if suits_batch_last(x) else ()
        return *batch_last_forms, Form("plain", self.lower, penalty=4 * x.size)


def transposed_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a (G, M, P) times the transposed of b (G, N, P), as (G, M, N)."""
    if len(a) == 1:
        return unpacked_sum(a[0], b[0])[None]
    return np.stack([unpacked_sum(*pair) for pair in zip(a, b, strict=True)])


# Convolutions and pools over three axes, composed of those of images.
#
# Each slice of a kernel along the depth is a convolution of images, in which depth and batch are one axis; a pool is
# one over height and width, and then one along the depth.


def convolve(x: Value, weight: Value, planes: Conv2D, depth: Windows) -> Value:
    """x (N, C, D, H, W) with filters (K, C/group, KD, KH, KW).

    `planes` convolves images; `depth` are the windows along the depth, those of an image of this height and width 1.
    """
    head, tail, _, _ = depth.pads
    padded = Pad(((0, 0), (0, 0), (head, tail), (0, 0), (0, 0)))(x) if head or tail else x
    parts = [planes(as_images(padded[:, :, tap]), weight[:, :, k]) for k, tap in enumerate(depth.taps(0))]
    return as_volumes(reduce(operator.add, parts), x.shape[0])


def convolve_back(x: Value, weight: Value, planes: Conv2DBackpropInput, depth: Windows) -> Value:
    """The adjoint of `convolve`: x (N, K, D', H', W') to the volumes that have these windows.

    `planes` is the adjoint of the convolution of images, with the size of its result.
    """
    images, batch = as_images(x), x.shape[0]
    _, channels, *size = planes.input_size
    shape, parts = (batch, channels, depth.padded[0], *size), list[Value]()
    for k, tap in enumerate(depth.taps(0)):
        part = as_volumes(planes(images, weight[:, :, k]), batch)
        begin, end, strides = (0, 0, tap.start), (batch, channels, tap.stop), (1, 1, tap.step)
        parts.append(StridedSliceGrad(begin=begin, end=end, strides=strides, x_shape=shape)(part))
    head = depth.pads[0]
    return reduce(operator.add, parts)[:, :, head : head + depth.size[0]]


def pool_volumes(x: Value, planes: Pooling, depth: Pooling) -> Value:
    """x (N, C, D, H, W) pooled by `planes`, and then by `depth`, whose windows have width 1.

    The first maximum of the first maxima of the planes is the first one in row-major order.
    """
    pooled = as_volumes(planes(as_images(x)), x.shape[0])
    batch, channels, length, *size = pooled.shape
    flat = depth(Reshape((batch, channels, length, size[0] * size[1]))(pooled))
    return Reshape((batch, channels, flat.shape[2], *size))(flat)


def as_images(x: Value) -> Value:
    """(N, C, D, H, W) as (N * D, C, H, W)."""
    batch, channels, depth, *size = x.shape
    return Reshape((batch * depth, channels, *size))(Transpose((0, 2, 1, 3, 4))(x))


def as_volumes(images: Value, batch: int) -> Value:
    """(N * D, C, H, W) as (N, C, D, H, W)."""
    count, *rest = images.shape
    return Transpose((0, 2, 1, 3, 4))(Reshape((batch, count // batch, *rest))(images))
