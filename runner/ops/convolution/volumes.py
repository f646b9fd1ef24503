"""Convolutions and pools over three axes, composed of those of images.

Each slice of a kernel along the depth is a convolution of images, in which depth and batch are one axis; a pool is
one over height and width, and then one along the depth.
"""

import operator
from functools import reduce

from runner.core.values import Value
from runner.ops.array import Pad, Reshape, Transpose
from runner.ops.convolution.conv import Conv2D, Conv2DBackpropInput
from runner.ops.convolution.pool import Pooling
from runner.ops.convolution.windows import Windows
from runner.ops.indexing.slices import StridedSliceGrad


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
