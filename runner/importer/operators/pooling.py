"""Rules of pools, and of what is computed from the windows of pools."""

import math
from typing import Any

import numpy as np

from runner import dtype as dt, ops
from runner.core.values import Tensor, Value
from runner.host.machine import require_memory
from runner.importer.node_call import NodeCall
from runner.importer.operators.convolution import convolved
from runner.importer.operators.window import Window, as_given, as_image, require_axes, window_of
from runner.importer.table import onnx_operator
from runner.ops.convolution.operators import pool_volumes


@onnx_operator("MaxPool")
def max_pool(call: NodeCall, x: Value) -> tuple[Value, ...]:
    """Largest element of each window over one to three axes; positions (`Indices`) over one or two."""
    if not x.dtype.is_float:  # whole numbers of 8 bits are exact in Float32
        largest, *positions = max_pool(call, ops.Cast()(x, dt.float32))
        return ops.Cast()(largest, x.dtype), *positions
    window = _window(call, x)
    made = _pooled(x, window, ops.MaxPool, bool(call.attribute("ceil_mode", 0)))
    return (made, _positions(call, x, window)) if call.outputs > 1 else (made,)


@onnx_operator("AveragePool")
def average_pool(call: NodeCall, x: Value) -> Value:
    """Mean of each window over one to three axes, with or without padding as elements of 0 (count_include_pad)."""
    ceil, counted = bool(call.attribute("ceil_mode", 0)), bool(call.attribute("count_include_pad", 0))
    return _pooled(x, _window(call, x), ops.AvgPool, ceil, count_include_pad=counted)


@onnx_operator("LpPool")
def lp_pool(call: NodeCall, x: Value) -> Value:
    """The p-norm of each window over one to three axes; without ceil_mode."""
    call.choice("ceil_mode", 0, 0)
    window, channels, p = _window(call, x), x.shape[1], _norm(call)
    require_memory(channels * math.prod(window.kernel) * x.dtype.size, node=call.node.name, kernel_shape=window.kernel)
    ones = Tensor(np.ones((channels, 1, *window.kernel), x.dtype.numpy))
    return _root(as_given(convolved(_power(x, p), ones, window, channels), x.ndim), p)


@onnx_operator("GlobalAveragePool")
def global_average_pool(call: NodeCall, x: Value) -> Value:
    """Mean of each channel, with axes of length 1."""
    result: Value = ops.ReduceMean(keep_dims=True)(x, tuple(range(2, x.ndim)))
    return result


@onnx_operator("GlobalMaxPool")
def global_max_pool(call: NodeCall, x: Value) -> Value:
    """Largest element of each channel, with axes of length 1; its gradient goes to the first one."""
    batch, channels, *size = x.shape
    count = int(np.prod(size))
    largest = ops.MaxPool((1, count))(ops.Reshape((batch, channels, 1, count))(x))
    result: Value = ops.Reshape((batch, channels, *[1] * len(size)))(largest)
    return result


@onnx_operator("GlobalLpPool")
def global_lp_pool(call: NodeCall, x: Value) -> Value:
    """The p-norm of each channel, with axes of length 1."""
    p = _norm(call)
    return _root(ops.ReduceSum(keep_dims=True)(_power(x, p), tuple(range(2, x.ndim))), p)


@onnx_operator("LRN")
def lrn(call: NodeCall, x: Value) -> Value:
    """x / (bias + alpha * mean of the squares of `size` channels around it) ** beta; missing channels count as 0."""
    size, channels = call.attribute("size"), x.shape[1]
    if size < 1 or x.ndim < 3:
        raise call.error("needs (N, C, ...) and a size from 1", x=x.type, size=size)
    before, after = min((size - 1) // 2, channels), min(size // 2, channels)
    rows = ops.Reshape((x.shape[0], 1, channels, x.size // (x.shape[0] * channels)))(ops.Square()(x))
    window = (before + after + 1, 1)
    mean = ops.AvgPool(window, (1, 1), "pad", padding=(before, after, 0, 0))(rows)
    scale = call.attribute("alpha", 0.0001) * window[0] / size
    total = ops.Reshape(x.shape)(mean * scale + call.attribute("bias", 1.0))
    result: Value = x * ops.Pow()(total, -call.attribute("beta", 0.75))
    return result


def _window(call: NodeCall, x: Value) -> Window:
    require_axes(call, x)
    return window_of(call, tuple(call.attribute("kernel_shape")), x.shape[2:])


def _pooled(x: Value, window: Window, kind: Any, ceil_mode: bool, **settings: Any) -> Value:
    """x pooled by operators of a kind: over the images, and then along the depth."""

    def over(part: Window) -> Any:
        geometry = {"padding": part.sides, "dilation": tuple(part.dilations), "ceil_mode": ceil_mode}
        return kind(tuple(part.kernel), tuple(part.strides), "pad", **geometry, **settings)

    if x.ndim == 5:
        return pool_volumes(x, over(window.planes), over(window.depth))
    return as_given(over(window.planes)(as_image(x)), x.ndim)


def _norm(call: NodeCall) -> int:
    p = int(call.attribute("p", 2))
    if p < 1:
        raise call.error("a norm needs an exponent from 1", p=p)
    return p


def _power(x: Value, p: int) -> Value:
    """The absolute value to the power of p."""
    result: Value = ops.Square()(x) if p == 2 else ops.Abs()(x)
    return result if p < 3 else ops.Pow()(result, float(p))


def _root(x: Value, p: int) -> Value:
    result: Value = x if p == 1 else ops.Sqrt()(x) if p == 2 else ops.Pow()(x, 1.0 / p)
    return result


def _positions(call: NodeCall, x: Value, window: Window) -> Value:
    """The positions of the maxima in the flattened x, Int64."""
    if x.ndim == 5:
        raise call.error("positions of a MaxPool over three axes are not supported", output="Indices")
    call.choice("storage_order", 0, 0)
    image, planes, ceil = as_image(x), window.planes, bool(call.attribute("ceil_mode", 0))
    geometry: dict[str, Any] = {"padding": planes.sides, "dilation": tuple(planes.dilations), "ceil_mode": ceil}
    pool = ops.MaxPoolWithArgmax(tuple(planes.kernel), tuple(planes.strides), "pad", **geometry)
    samples = np.arange(x.shape[0]).reshape(-1, 1, 1, 1) * (x.size // x.shape[0])
    return as_given(ops.Cast()(pool(image)[1], dt.int64) + Tensor(samples), x.ndim)
