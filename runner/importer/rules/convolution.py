"""Rules of convolutions and pools, whose windows the attributes of a node describe, of their reverses, and of
normalizations and dropout.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from runner import dtype as dt, ops
from runner.core.values import Parameter, Tensor, Value
from runner.host.machine import require_memory
from runner.importer.node_call import NodeCall, onnx_operator
from runner.importer.rules.elementwise import per_channel, reshaped
from runner.ops.convolution.conv import convolve, convolve_back, pool_volumes
from runner.ops.convolution.windows import Pair, Quad, Windows

# The windows of convolutions and pools, as the attributes of a node describe them.

AUTO_PADS = "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"


@dataclass(frozen=True)
class Window:
    """A window over images, one number per spatial axis; `pads` are (before, after) for each.

    One over a single axis is one over images of height 1. One over three axes has its own numbers for the depth.
    """

    kernel: Sequence[int]
    strides: Sequence[int]
    dilations: Sequence[int]
    pads: Sequence[Pair]

    @property
    def planes(self) -> "Window":
        """The part over height and width."""
        count = 2 - len(self.kernel)
        rows = (*[1] * count, *self.kernel[-2:]), (*[1] * count, *self.strides[-2:])
        return Window(*rows, (*[1] * count, *self.dilations[-2:]), (*[(0, 0)] * count, *self.pads[-2:]))

    @property
    def depth(self) -> "Window":
        """The part over the depth, as a window over images of width 1."""
        return Window((self.kernel[0], 1), (self.strides[0], 1), (self.dilations[0], 1), (self.pads[0], (0, 0)))

    @property
    def sides(self) -> Quad:
        """The padding of a window over height and width: top, bottom, left, right."""
        return (*self.pads[0], *self.pads[1])

    def over(self, size: Pair) -> Windows:
        """The windows of a window over height and width in images of a size."""
        kernel, strides, dilations = ((a[0], a[1]) for a in (self.kernel, self.strides, self.dilations))
        return Windows.resolve(size, kernel, strides, "pad", self.sides, dilations)


def require_axes(call: NodeCall, x: Value) -> None:
    """Raise ConfigError unless x is (N, C, ...) with one to three further axes."""
    if not 3 <= x.ndim <= 5:
        raise call.error("needs one to three axes besides batch and channels", x=x.type)


def window_of(call: NodeCall, kernel: Sequence[int], sizes: Sequence[int]) -> Window:
    """The window of a node over images of these sizes.

    With `SAME`, there are ceil(size / stride) windows, and padding is for the whole window: onnxruntime's pools ignore
    dilations there, and crop images where the stride is larger than the window. Raises ConfigError for attributes that
    do not fit.
    """
    count = len(sizes)
    require_numbers(call, "kernel_shape", kernel, count, 1)
    strides = numbers(call, "strides", count, 1)
    dilations = numbers(call, "dilations", count, 1)
    mode = call.choice("auto_pad", "NOTSET", *AUTO_PADS)
    if mode == "NOTSET":
        given = numbers(call, "pads", 2 * count, 0)
        return Window(kernel, strides, dilations, [*zip(given[:count], given[count:], strict=True)])
    if mode == "VALID":
        return Window(kernel, strides, dilations, [(0, 0)] * count)
    pads = []
    for size, k, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        total = max((-(-size // stride) - 1) * stride + dilation * (k - 1) + 1 - size, 0)
        pads.append(halves(total, mode))
    return Window(kernel, strides, dilations, pads)


def halves(total: int, mode: str) -> Pair:
    """Padding before and after; the odd element is after for SAME_UPPER, and otherwise before."""
    small, large = total // 2, total - total // 2
    return (small, large) if mode == "SAME_UPPER" else (large, small)


def numbers(call: NodeCall, name: str, count: int, least: int) -> tuple[int, ...]:
    """An attribute of so many numbers, by default the least ones. Raises ConfigError for others."""
    given = tuple(call.attribute(name, (least,) * count))
    require_numbers(call, name, given, count, least)
    return given


def require_numbers(call: NodeCall, name: str, given: Sequence[int], count: int, least: int) -> None:
    """Raise ConfigError unless an attribute has so many numbers of at least so much."""
    if len(given) != count or min(given) < least:
        allowed = f"{count} numbers from {least}"
        raise call.error("an attribute does not fit the input", attribute=name, value=tuple(given), allowed=allowed)


def as_image(x: Value) -> Value:
    """(N, C, L) as (N, C, 1, L); others unchanged."""
    return ops.ExpandDims()(x, 2) if x.ndim == 3 else x


def as_given(image: Value, ndim: int) -> Value:
    """The result for what `as_image` has made, in the original number of axes."""
    return ops.Squeeze(2)(image) if ndim == 3 else image


# Convolutions.


@onnx_operator("Conv")
def conv(call: NodeCall, x: Value, weight: Value, bias: Value | None = None) -> Value:
    """Convolution over one to three axes, with groups, strides, dilations, any padding, and a bias."""
    window = _conv_window(call, x, weight)
    return _biased(convolved(x, weight, window, call.attribute("group", 1)), bias, x.ndim)


def convolved(x: Value, weight: Value, window: Window, group: int) -> Value:
    """x (N, C, ...) with filters (K, C/group, ...); over one axis, the images of height 1."""
    convolution = ops.Conv2D(weight.shape[0], **_planes(window), group=group)
    if x.ndim == 5:
        return convolve(x, weight, convolution, window.depth.over((x.shape[2], 1)))
    return convolution(as_image(x), as_image(weight))


@onnx_operator("ConvTranspose")
def conv_transpose(call: NodeCall, x: Value, weight: Value, bias: Value | None = None) -> Value:
    """Transposed convolution over one to three axes, with groups, dilations, any padding, output_shape, and a bias.

    `SAME` gives the size times the stride, also where the kernel does not reach it and onnxruntime gives less.
    """
    window, sizes = _transposed(call, _conv_window(call, x, weight, transposed=True), x.shape[2:])
    # What the stride alone reaches is computed; a longer output_padding is zeros after it.
    steps = zip(x.shape[2:], window.kernel, window.strides, window.dilations, window.pads, strict=True)
    reached = [n * s + d * (k - 1) - pads[0] for n, k, s, d, pads in steps]
    inner = [min(size, reach) for size, reach in zip(sizes, reached, strict=True)]
    if min(*inner, *sizes) < 1:
        raise call.error("the padding leaves no result", x=x.type, weight=weight.type, result=tuple(sizes))
    made = spread_windows(x, weight, window, call.attribute("group", 1), inner)
    if inner != sizes:
        beyond = [(0, size - length) for size, length in zip(sizes, inner, strict=True)]
        made = ops.Pad(((0, 0),) * (made.ndim - len(sizes)) + tuple(beyond))(made)
    return _biased(made, bias, x.ndim)


def spread_windows(x: Value, weight: Value, window: Window, group: int, sizes: list[int]) -> Value:
    """The adjoint of a convolution of images of these sizes; over one axis, the images of height 1."""
    channels = weight.shape[1] * group
    if x.ndim == 5:
        batch = x.shape[0] * x.shape[2]
        planes = ops.Conv2DBackpropInput(
            weight.shape[0], **_planes(window), group=group, input_size=(batch, channels, *sizes[1:])
        )
        return convolve_back(x, weight, planes, window.depth.over((sizes[0], 1)))
    size = (x.shape[0], channels, *[1] * (2 - len(sizes)), *sizes)
    planes = ops.Conv2DBackpropInput(weight.shape[0], **_planes(window), group=group, input_size=size)
    return planes(as_image(x), as_image(weight))


def _conv_window(call: NodeCall, x: Value, weight: Value, transposed: bool = False) -> Window:
    """The window of a convolution, whose kernel is that of its filters."""
    require_axes(call, x)
    if weight.ndim != x.ndim:
        raise call.error("filters have another number of axes", x=x.type, weight=weight.type)
    kernel = weight.shape[2:]
    given = tuple(call.attribute("kernel_shape", kernel))
    if given != kernel:
        raise call.error("an attribute does not fit the filters", attribute="kernel_shape", value=given, weight=kernel)
    group, channels = call.attribute("group", 1), weight.shape[0]
    if group < 1 or channels % group or x.shape[1] != (channels if transposed else weight.shape[1] * group):
        raise call.error("channels and groups do not fit the filters", x=x.type, weight=weight.type, group=group)
    return window_of(call, kernel, x.shape[2:])


def _transposed(call: NodeCall, window: Window, sizes: tuple[int, ...]) -> tuple[Window, list[int]]:
    """The window of a transposed convolution of images of these sizes, and the sizes of its result.

    The padding after an axis is what the result does not have of the whole.
    """
    count, mode = len(sizes), call.attribute("auto_pad", "NOTSET")
    extra = numbers(call, "output_padding", count, 0)
    steps = zip(sizes, window.kernel, window.strides, window.dilations, strict=True)
    whole = [(n - 1) * s + d * (k - 1) + 1 for n, k, s, d in steps]
    shape = call.attribute("output_shape", None)
    if shape is None and mode in ("NOTSET", "VALID"):
        results = [n + more - sum(pads) for n, more, pads in zip(whole, extra, window.pads, strict=True)]
        before = [pads[0] for pads in window.pads]
    else:
        same = tuple(n * s for n, s in zip(sizes, window.strides, strict=True))
        results = [*(same if shape is None else tuple(shape)[-count:])]
        require_numbers(call, "output_shape", results, count, 1)
        totals = [max(n + more - size, 0) for n, more, size in zip(whole, extra, results, strict=True)]
        before = [halves(total, mode)[0] for total in totals]
    after = [max(n - first - size, 0) for n, first, size in zip(whole, before, results, strict=True)]
    return replace(window, pads=[*zip(before, after, strict=True)]), results


def _planes(window: Window) -> dict[str, Any]:
    """The attributes of the convolution of images."""
    planes = window.planes
    geometry = {"stride": planes.strides, "dilation": planes.dilations}
    return {"kernel_size": tuple(planes.kernel), "pad_mode": "pad", "pad": planes.sides, **geometry}


def _biased(made: Value, bias: Value | None, ndim: int) -> Value:
    return as_given(made if bias is None else ops.BiasAdd()(made, bias), ndim)


# Pools, and what is computed from the windows of pools.


@onnx_operator("MaxPool")
def max_pool(call: NodeCall, x: Value) -> tuple[Value, ...]:
    """Largest element of each window over one to three axes; positions (`Indices`) over one or two."""
    if not x.dtype.is_float:  # whole numbers of 8 bits are exact in Float32
        largest, *positions = max_pool(call, ops.Cast()(x, dt.float32))
        return ops.Cast()(largest, x.dtype), *positions
    window = _pool_window(call, x)
    made = _pooled(x, window, ops.MaxPool, bool(call.attribute("ceil_mode", 0)))
    return (made, _positions(call, x, window)) if call.outputs > 1 else (made,)


@onnx_operator("AveragePool")
def average_pool(call: NodeCall, x: Value) -> Value:
    """Mean of each window over one to three axes, with or without padding as elements of 0 (count_include_pad)."""
    ceil, counted = bool(call.attribute("ceil_mode", 0)), bool(call.attribute("count_include_pad", 0))
    return _pooled(x, _pool_window(call, x), ops.AvgPool, ceil, count_include_pad=counted)


@onnx_operator("LpPool")
def lp_pool(call: NodeCall, x: Value) -> Value:
    """The p-norm of each window over one to three axes; without ceil_mode."""
    call.choice("ceil_mode", 0, 0)
    window, channels, p = _pool_window(call, x), x.shape[1], _norm(call)
    require_memory(channels * math.prod(window.kernel) * x.dtype.size, node=call.node.name, kernel_shape=window.kernel)
    ones = Tensor(np.ones((channels, 1, *window.kernel), x.dtype.numpy))
    return _root(as_given(convolved(_power(x, p), ones, window, channels), x.ndim), p)


@onnx_operator("GlobalAveragePool")
def global_average_pool(call: NodeCall, x: Value) -> Value:
    """Mean of each channel, with axes of length 1."""
    return ops.ReduceMean(keep_dims=True)(x, tuple(range(2, x.ndim)))


@onnx_operator("GlobalMaxPool")
def global_max_pool(call: NodeCall, x: Value) -> Value:
    """Largest element of each channel, with axes of length 1; its gradient goes to the first one."""
    batch, channels, *size = x.shape
    count = int(np.prod(size))
    largest = ops.MaxPool((1, count))(ops.Reshape((batch, channels, 1, count))(x))
    return ops.Reshape((batch, channels, *[1] * len(size)))(largest)


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
    return x * ops.Pow()(total, -call.attribute("beta", 0.75))


def _pool_window(call: NodeCall, x: Value) -> Window:
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
    return x if p == 1 else ops.Sqrt()(x) if p == 2 else ops.Pow()(x, 1.0 / p)


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


# Elements of windows placed in images: the reverse of pools, and of taking windows.


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


# Rules of normalizations and of dropout, which behave as in training while the network is trained.


@onnx_operator("BatchNormalization", without_effect=("training_mode",))
def batch_normalization(call: NodeCall, x: Value, scale: Value, bias: Value, mean: Value, variance: Value) -> Value:
    """Each channel less its mean, divided by its deviation: of the batch in training, which the statistics follow.

    A layer whose scale and bias are frozen keeps its statistics and uses them, also in training, unless it has none; so
    does one whose statistics the network computes, through which gradients flow.
    """
    epsilon, momentum = call.attribute("epsilon", 1e-5), call.attribute("momentum", 0.9)
    if call.computes("mean", mean) or call.computes("variance", variance):
        centred = x - per_channel(mean, x.ndim)
        scaled: Value = centred * per_channel(scale * ops.Rsqrt()(variance + epsilon), x.ndim)
        return scaled + per_channel(bias, x.ndim)
    image = x if x.ndim in (2, 4) else reshaped(x, (*x.shape[:2], math.prod(x.shape[2:]), 1))
    learns = call.training and (_is_without_scale(call) or not keeps_statistics(scale, bias))
    op = ops.BatchNorm(learns, epsilon, float(np.float32(1.0) - np.float32(momentum)))
    y, new_mean, new_variance = op(image, scale, bias, mean, variance)[:3]
    if learns and isinstance(mean, Parameter) and isinstance(variance, Parameter):
        call.assign(mean, new_mean)
        call.assign(variance, new_variance)
    return reshaped(y, x.shape)


def _is_without_scale(call: NodeCall) -> bool:
    """Whether scale and bias are those that an exporter writes for a layer without them: ones and zeros."""
    scale, bias = call.known("scale"), call.known("bias")
    return scale is not None and bias is not None and bool((scale == 1).all() and (bias == 0).all())


def keeps_statistics(scale: Value, bias: Value) -> bool:
    """Whether a layer is frozen: neither its scale nor its bias is trained."""
    return not any(isinstance(p, Parameter) and p.requires_grad for p in (scale, bias))


@onnx_operator("Dropout", static=("ratio", "training_mode"), without_effect=("seed",))
def dropout(call: NodeCall, x: Value, ratio: np.ndarray | None = None, training_mode: np.ndarray | None = None) -> Any:
    """In training, 0 for a part `ratio` of the elements, and the others scaled; the same in both modes."""
    share = float(call.setting("ratio", ratio, 0.5))
    if not call.training or share == 0.0:
        return x
    return tuple(ops.Dropout(1.0 - share, call.node.number)(x))


@onnx_operator("LayerNormalization", without_effect=("stash_type",))
def layer_normalization(call: NodeCall, x: Value, scale: Value, bias: Value | None = None) -> Any:
    """x less its mean, divided by its deviation, over the axes from `axis` on."""
    axis, epsilon = call.axis(-1, x.ndim), call.attribute("epsilon", 1e-5)
    shape = x.shape[axis:]
    scale = _of_shape(scale, shape)
    bias = Tensor(np.zeros(shape, x.dtype.numpy)) if bias is None else _of_shape(bias, shape)
    y, mean, variance = ops.LayerNorm(axis, axis, epsilon)(x, scale, bias)
    return y, mean, ops.Reciprocal()(ops.Sqrt()(variance + epsilon)) if call.outputs > 2 else None


def _of_shape(value: Value, shape: tuple[int, ...]) -> Value:
    if value.size == math.prod(shape):
        return reshaped(value, shape)
    return value * Tensor(np.ones(shape, value.dtype.numpy))


@onnx_operator("RMSNormalization", without_effect=("stash_type",))
def rms_normalization(call: NodeCall, x: Value, scale: Value) -> Value:
    """x divided by the root of its mean square, over the axes from `axis` on."""
    axis, epsilon = call.axis(-1, x.ndim), call.attribute("epsilon", 1e-5)
    square: Value = ops.ReduceMean(True)(ops.Square()(x), tuple(range(axis, x.ndim)))
    return x * ops.Rsqrt()(square + epsilon) * scale


@onnx_operator("InstanceNormalization")
def instance_normalization(call: NodeCall, x: Value, scale: Value, bias: Value) -> Value:
    """Each channel of each sample less its mean, divided by its deviation."""
    normal = _in_groups(x, x.shape[1], call.attribute("epsilon", 1e-5))
    return normal * per_channel(scale, x.ndim) + per_channel(bias, x.ndim)


@onnx_operator("GroupNormalization", without_effect=("stash_type",))
def group_normalization(call: NodeCall, x: Value, scale: Value, bias: Value) -> Value:
    """Groups of channels of each sample less their mean, divided by their deviation."""
    groups, channels = call.attribute("num_groups"), x.shape[1]
    if channels % groups:
        raise call.error("num_groups must divide the channels", num_groups=groups, channels=channels)
    normal = _in_groups(x, groups, call.attribute("epsilon", 1e-5))
    if scale.size == channels:
        return normal * per_channel(scale, x.ndim) + per_channel(bias, x.ndim)
    grouped = reshaped(
        normal, (x.shape[0], groups, x.size // (x.shape[0] * groups))
    )  # before opset 21 one scale for each group
    return reshaped(grouped * per_channel(scale, 3) + per_channel(bias, 3), x.shape)


def _in_groups(x: Value, groups: int, epsilon: float) -> Value:
    grouped: Value = ops.Reshape()(x, (x.shape[0], groups, x.size // (x.shape[0] * groups)))
    centred = grouped - ops.ReduceMean(True)(grouped, 2)
    variance: Value = ops.ReduceMean(True)(ops.Square()(centred), 2)
    return reshaped(centred * ops.Rsqrt()(variance + epsilon), x.shape)


@onnx_operator("LpNormalization")
def lp_normalization(call: NodeCall, x: Value) -> Value:
    """x divided by its norm along an axis, of p = 1 or 2; zeros stay zeros."""
    axis, p = call.axis(-1, x.ndim), call.choice("p", 2, 1, 2)
    total: Value = ops.ReduceSum(True)(ops.Abs()(x) if p == 1 else ops.Square()(x), axis)
    norm: Value = ops.Select()(ops.Equal()(total, 0.0), ops.OnesLike()(total), total)
    return x / (norm if p == 1 else ops.Sqrt()(norm))
