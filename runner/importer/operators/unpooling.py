"""Rules that place the elements of windows in images: the reverse of pools, and of taking windows."""

import math

import numpy as np

from runner import ops
from runner.core.values import Tensor, Value
from runner.host.machine import require_memory
from runner.importer.node_call import NodeCall
from runner.importer.operators.convolution import spread_windows
from runner.importer.operators.window import as_given, require_axes, window_of
from runner.importer.table import onnx_operator


@onnx_operator("MaxUnpool", static=("output_shape",))
def max_unpool(call: NodeCall, x: Value, positions: Value, output_shape: np.ndarray | None = None) -> Value:
    """Zeros with x at the positions that a MaxPool returns (`Indices`)."""
    require_axes(call, x)
    window = window_of(call, tuple(call.attribute("kernel_shape")), x.shape[2:])
    steps = zip(x.shape[2:], window.strides, window.kernel, window.pads, strict=True)
    shape = (*x.shape[:2], *[(n - 1) * s + k - sum(pads) for n, s, k, pads in steps])
    if min(shape) < 1:
        raise call.error("the padding leaves no result", x=x.type, result=shape)
    total = math.prod(shape)
    require_memory(total * x.dtype.size, node=call.node.name, result=shape)
    places = ops.Reshape((x.size, 1))(positions)
    zeros = Tensor(np.zeros(total, x.dtype.numpy))
    image = ops.Reshape(shape)(ops.TensorScatterUpdate()(zeros, places, ops.Reshape((x.size,))(x)))
    wanted = shape if output_shape is None else tuple(output_shape.tolist())
    if len(wanted) != len(shape) or any(n > m for n, m in zip(shape, wanted, strict=True)):
        raise call.error("output_shape does not have the result", output_shape=wanted, result=shape)
    result: Value = image
    if wanted != shape:
        result = ops.Pad(tuple((0, m - n) for n, m in zip(shape, wanted, strict=True)))(image)
    return result


@onnx_operator("Col2Im", static=("image_shape", "block_shape"))
def col2im(call: NodeCall, x: Value, image_shape: np.ndarray, block_shape: np.ndarray) -> Value:
    """Blocks (N, C * elements, blocks) added up at their places in images, as torch's Fold does."""
    block, sizes = tuple(block_shape.tolist()), [int(n) for n in image_shape.tolist()]
    if not 1 <= len(sizes) <= 3 or min(sizes) < 1:
        raise call.error("needs images of one to three axes", image_shape=sizes)
    window = window_of(call, block, sizes)
    steps = zip(sizes, block, window.strides, window.dilations, window.pads, strict=True)
    counts = [(n + sum(pads) - d * (k - 1) - 1) // s + 1 for n, k, s, d, pads in steps]
    taps = math.prod(block)
    if min(counts) < 1 or x.ndim != 3 or x.shape[1] % taps or x.shape[2] != math.prod(counts):
        raise call.error("the blocks do not cover the images", x=x.type, blocks=counts, elements=taps)
    channels = x.shape[1] // taps
    places = np.tile(np.eye(taps, dtype=x.dtype.numpy).reshape(taps, 1, *block), (channels, *[1] * (1 + len(block))))
    blocks = ops.Reshape((x.shape[0], x.shape[1], *counts))(x)
    return as_given(spread_windows(blocks, Tensor(places), window, channels, sizes), blocks.ndim)
