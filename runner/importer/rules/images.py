"""Rules of convolutions."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from runner import dtype as dt, ops
from runner.core.values import Parameter, Tensor, Value
from runner.host.machine import require_memory
from runner.importer.node_call import NodeCall, onnx_operator
from runner.importer.rules.elementwise import per_channel, reshaped
from runner.importer.rules.shape import axis_of
from runner.ops.convolution.volumes import convolve, convolve_back, pool_volumes
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


# Rules of convolutions.


@onnx_operator("Conv")
def conv(call: NodeCall, x: Value, weight: Value, bias: Value | None = None) -> Value:
    """Convolution over one to three axes, with groups, strides, dilations, any padding, and a bias."""
    window = _window(call, x, weight)
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
    window, sizes = _transposed(call, _window(call, x, weight, transposed=True), x.shape[2:])
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


def _window(call: NodeCall, x: Value, weight: Value, transposed: bool = False) -> Window:
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


# Rules of pools, and of what is computed from the windows of pools.


@onnx_operator("MaxPool")
def max_pool(call: NodeCall, x: Value) -> tuple[Value, ...]:
    """Largest element of each window over one to three axes; positions (`Indices`) over one or two."""
    if not x.dtype.is_float:  # whole numbers of 8 bits are exact in Float32
        largest, *positions = max_pool(call, ops.Cast()(x, dt.float32))
        return ops.Cast()(largest, x.dtype), *positions
    window = _pooling_window(call, x)
    made = _pooled(x, window, ops.MaxPool, bool(call.attribute("ceil_mode", 0)))
    return (made, _positions(call, x, window)) if call.outputs > 1 else (made,)


@onnx_operator("AveragePool")
def average_pool(call: NodeCall, x: Value) -> Value:
    """Mean of each window over one to three axes, with or without padding as elements of 0 (count_include_pad)."""
    ceil, counted = bool(call.attribute("ceil_mode", 0)), bool(call.attribute("count_include_pad", 0))
    return _pooled(x, _pooling_window(call, x), ops.AvgPool, ceil, count_include_pad=counted)


@onnx_operator("LpPool")
def lp_pool(call: NodeCall, x: Value) -> Value:
    """The p-norm of each window over one to three axes; without ceil_mode."""
    call.choice("ceil_mode", 0, 0)
    window, channels, p = _pooling_window(call, x), x.shape[1], _norm(call)
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


def _pooling_window(call: NodeCall, x: Value) -> Window:
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


# Rules of normalizations and of dropout, which behave as in training while the network is trained.


@onnx_operator("BatchNormalization")
def batch_normalization(call: NodeCall, x: Value, scale: Value, bias: Value, mean: Value, variance: Value) -> Value:
    """Each channel less its mean, divided by its deviation: of the batch in training, which the statistics follow.

    A layer whose scale and bias are frozen keeps its statistics and uses them, also in training.
    """
    epsilon, momentum = call.attribute("epsilon", 1e-5), call.attribute("momentum", 0.9)
    image = x if x.ndim in (2, 4) else reshaped(x, (*x.shape[:2], math.prod(x.shape[2:]), 1))
    learns = call.training and not keeps_statistics(scale, bias)
    op = ops.BatchNorm(learns, epsilon, float(np.float32(1.0) - np.float32(momentum)))
    y, new_mean, new_variance = op(image, scale, bias, mean, variance)[:3]
    if learns and isinstance(mean, Parameter) and isinstance(variance, Parameter):
        call.assign(mean, new_mean)
        call.assign(variance, new_variance)
    return reshaped(y, x.shape)


def keeps_statistics(scale: Value, bias: Value) -> bool:
    """Whether a layer is frozen: neither its scale nor its bias is trained."""
    return not any(isinstance(p, Parameter) and p.requires_grad for p in (scale, bias))


@onnx_operator("Dropout", static=("ratio", "training_mode"))
def dropout(call: NodeCall, x: Value, ratio: np.ndarray | None = None, training_mode: np.ndarray | None = None) -> Any:
    """In training, 0 for a part `ratio` of the elements, and the others scaled; the same in both modes."""
    share = float(call.setting("ratio", ratio, 0.5))
    if not call.training or share == 0.0:
        return x
    return tuple(ops.Dropout(1.0 - share, call.node.number)(x))


@onnx_operator("LayerNormalization")
def layer_normalization(call: NodeCall, x: Value, scale: Value, bias: Value | None = None) -> Any:
    """x less its mean, divided by its deviation, over the axes from `axis` on."""
    axis, epsilon = call.attribute("axis", -1) % x.ndim, call.attribute("epsilon", 1e-5)
    shape = x.shape[axis:]
    scale = _of_shape(scale, shape)
    bias = Tensor(np.zeros(shape, x.dtype.numpy)) if bias is None else _of_shape(bias, shape)
    y, mean, variance = ops.LayerNorm(axis, axis, epsilon)(x, scale, bias)
    return y, mean, ops.Reciprocal()(ops.Sqrt()(variance + epsilon)) if call.outputs > 2 else None


def _of_shape(value: Value, shape: tuple[int, ...]) -> Value:
    if value.size == math.prod(shape):
        return reshaped(value, shape)
    return value * Tensor(np.ones(shape, value.dtype.numpy))


@onnx_operator("RMSNormalization")
def rms_normalization(call: NodeCall, x: Value, scale: Value) -> Value:
    """x divided by the root of its mean square, over the axes from `axis` on."""
    axis, epsilon = call.attribute("axis", -1) % x.ndim, call.attribute("epsilon", 1e-5)
    square: Value = ops.ReduceMean(True)(ops.Square()(x), tuple(range(axis, x.ndim)))
    return x * ops.Rsqrt()(square + epsilon) * scale


@onnx_operator("InstanceNormalization")
def instance_normalization(call: NodeCall, x: Value, scale: Value, bias: Value) -> Value:
    """Each channel of each sample less its mean, divided by its deviation."""
    normal = _in_groups(x, x.shape[1], call.attribute("epsilon", 1e-5))
    return normal * per_channel(scale, x.ndim) + per_channel(bias, x.ndim)


@onnx_operator("GroupNormalization")
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
    """x divided by its norm along an axis, of p = 1 or 2."""
    axis, p = call.attribute("axis", -1) % x.ndim, call.choice("p", 2, 1, 2)
    norm: Value = ops.ReduceSum(True)(ops.Abs()(x) if p == 1 else ops.Square()(x), axis)
    return x / (norm if p == 1 else ops.Sqrt()(norm))


# Rules for GridSample, images read at positions that are an operand, and AffineGrid, which makes such positions.


@onnx_operator("GridSample")
def grid_sample(call: NodeCall, x: Value, grid: Value) -> Value:
    """Images (N, C, H, W) at positions (N, h, w, 2) from -1 to 1: bilinear or nearest, with every padding."""
    mode = call.choice("mode", "linear", "linear", "bilinear", "nearest")
    padding = call.choice("padding_mode", "zeros", "zeros", "border", "reflection")
    corners = bool(call.attribute("align_corners", 0))
    if x.ndim != 4 or grid.ndim != 4 or grid.shape[0] != x.shape[0] or grid.shape[3] != 2:
        raise call.error("needs images (N, C, H, W) and positions (N, h, w, 2)", x=x.type, grid=grid.type)
    columns, rows = (_unnormalized(grid[..., k], x.shape[3 - k], corners, padding) for k in range(2))
    if mode == "nearest":
        return _pixels(x, ops.Rint()(rows), ops.Rint()(columns))
    top, left = ops.Floor()(rows), ops.Floor()(columns)
    down, right = rows - top, columns - left
    parts = [
        _pixels(x, top, left) * _weight((1.0 - down) * (1.0 - right)),
        _pixels(x, top, left + 1.0) * _weight((1.0 - down) * right),
        _pixels(x, top + 1.0, left) * _weight(down * (1.0 - right)),
        _pixels(x, top + 1.0, left + 1.0) * _weight(down * right),
    ]
    return parts[0] + parts[1] + parts[2] + parts[3]


def _unnormalized(position: Value, length: int, corners: bool, padding: str) -> Value:
    """Positions from -1 to 1 as places of pixels; those outside, as the padding says, moved inside."""
    place = (position + 1.0) * ((length - 1) / 2) if corners else (position + 1.0) * (length / 2) - 0.5
    if padding == "reflection":
        low, span = (0.0, float(length - 1)) if corners else (-0.5, float(length))
        # A period of two lengths, there and back; an axis with one pixel has only this one.
        way = ops.FloorMod()(place - low, 2 * span) if span else ops.ZerosLike()(place)
        place = span - ops.Abs()(way - span) + low
    if padding != "zeros":
        place = ops.clip_by_value(place, 0.0, float(length - 1))
    return place


def _weight(share: Value) -> Value:
    """Shares (N, h, w) for all channels."""
    return ops.ExpandDims()(share, 1)


def _pixels(x: Value, rows: Value, columns: Value) -> Value:
    """The pixels (N, C, h, w) at whole places (N, h, w), 0 outside of the images."""
    n, c, height, width = x.shape
    bounds = rows >= 0.0, rows <= height - 1.0, columns >= 0.0, columns <= width - 1.0
    inside = reduce(ops.LogicalAnd(), bounds)
    safe = [
        ops.Cast()(ops.clip_by_value(place, 0.0, length - 1.0), dt.int64)
        for place, length in ((rows, height), (columns, width))
    ]
    first = Tensor(np.arange(n).reshape(n, 1, 1) * height * width, dt.int64)
    table = ops.Reshape()(ops.Transpose()(x, (0, 2, 3, 1)), (n * height * width, c))
    found = ops.Gather(0)(table, first + safe[0] * width + safe[1])
    pixels = ops.Transpose()(found, (0, 3, 1, 2))
    return ops.Select()(ops.ExpandDims()(inside, 1), pixels, Tensor(0.0, x.dtype))


@onnx_operator("AffineGrid", static=("size",))
def affine_grid(call: NodeCall, theta: Value, size: np.ndarray) -> Value:
    """Positions of the pixels of images of a size known at import, under affine maps: (N, d, d + 1) to (N, ..., d)."""
    samples, lengths = theta.shape[0], [int(n) for n in size[2:]]
    axes, corners = len(lengths), bool(call.attribute("align_corners", 0))
    fits = int(size[0]) == samples or call.fixed_batch(int(size[0]), theta)
    if not fits or theta.shape[1:] != (axes, axes + 1):
        raise call.error("needs a matrix (d, d + 1) for each sample", theta=theta.type, size=size.tolist())
    require_memory(math.prod(lengths) * (axes + 1) * 16, node=call.node.name)
    centers = [np.linspace(-1, 1, n) if corners else (2 * np.arange(n) + 1) / n - 1 for n in lengths]
    columns = [*np.meshgrid(*centers, indexing="ij")[::-1], np.ones(lengths)]  # the last axis, x, is the first number
    pixels = Tensor(np.stack(columns, -1).reshape(-1, axes + 1), theta.dtype)
    mapped = ops.MatMul(transpose_b=True)(pixels, ops.Reshape()(theta, (samples * axes, axes + 1)))
    split = ops.Transpose()(ops.Reshape()(mapped, (-1, samples, axes)), (1, 0, 2))
    return ops.Reshape()(split, (samples, *lengths, axes))


# Positions and weights along one axis that is resized, in Float32 as onnxruntime computes them.

COORDINATES = (
    *("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"),
    "tf_half_pixel_for_nn",
)
NEAREST = "round_prefer_floor", "round_prefer_ceil", "floor", "ceil"


@dataclass(frozen=True)
class ResizedAxis:
    """An axis of `length` elements that gets `out` ones; `scale` is their ratio before it is rounded."""

    number: int
    length: int
    out: int
    scale: np.float32

    def positions(self, coordinates: str) -> np.ndarray:
        """Where each new element is among the old ones, in Float32."""
        half, new = np.float32(0.5), np.arange(self.out, dtype=np.float32)
        centers = (new + half) / self.scale
        if coordinates == "asymmetric":
            return new / self.scale
        if coordinates == "tf_half_pixel_for_nn":
            return centers
        if coordinates == "align_corners":
            return new * np.float32(self.length - 1) / np.float32(max(self.out - 1, 1))
        if coordinates == "pytorch_half_pixel" and self.out == 1:
            return np.zeros(1, np.float32)
        offset = np.float32(0)
        if coordinates == "half_pixel_symmetric":
            share = np.float32(self.out) / (self.scale * np.float32(self.length))
            offset = np.float32(self.length) / np.float32(2) * (np.float32(1) - share)
        return offset + centers - half

    def nearest(self, coordinates: str, rounding: str) -> np.ndarray:
        """The old element for each new one."""
        x, half = self.positions(coordinates), np.float32(0.5)
        if rounding == "simple":  # before opset 11
            rounding = "ceil" if self.scale < 1 else "floor"
        moved = {"round_prefer_floor": x - half, "round_prefer_ceil": x + half}.get(rounding, x)
        upwards = rounding in ("ceil", "round_prefer_floor")
        rounded = np.ceil(moved) if upwards else np.floor(moved)
        places: np.ndarray = np.clip(rounded.astype(np.int64), 0, self.length - 1)
        return places


def weights(
    axis: ResizedAxis, coordinates: str, cubic: float | None, exclude_outside: bool, antialias: bool = False
) -> np.ndarray:
    """The matrix (out, length) of linear interpolation or, with a coefficient, of cubic convolution.

    Beyond the ends the outermost elements are repeated, or left out if `exclude_outside`. With `antialias` an axis that
    gets shorter is smoothed: each weight is that of a distance which is shorter by as much.
    """
    positions = axis.positions(coordinates).astype(np.float64)
    if cubic is None and not antialias:
        positions = positions.clip(0, axis.length - 1)
    stretch = max(1.0, 1.0 / float(axis.scale)) if antialias else 1.0
    reach = math.ceil((1 if cubic is None else 2) * stretch)
    places = np.floor(positions)[:, None] + np.arange(1 - reach, reach + 1)
    distances = np.abs(positions[:, None] - places) / stretch
    shares = np.maximum(1 - distances, 0) if cubic is None else _cubic(distances, cubic)
    if exclude_outside:
        shares = shares * ((places >= 0) & (places < axis.length))
    shares = shares / shares.sum(1, keepdims=True)
    matrix = np.zeros((axis.out, axis.length))
    columns = places.clip(0, axis.length - 1).astype(np.int64)
    np.add.at(matrix, (np.arange(axis.out)[:, None], columns), shares)
    return matrix


def _cubic(distance: np.ndarray, a: float) -> np.ndarray:
    """The weight of an element at a distance (Keys, 1981)."""
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((distance - 5) * distance + 8) * distance * a - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0))


# Rules for Resize and Upsample: one axis after the other, with positions that are known at import.
#
# Nearest neighbours are a Gather, or the operator for images. Linear and cubic interpolation along an axis is a
# product with a matrix, whose rows are the weights of the elements of the axis; so its gradient is a product as well.

POLICIES = "stretch", "not_larger", "not_smaller"


@onnx_operator("Resize", static=("roi", "scales", "sizes"))
def resize(
    call: NodeCall,
    x: Value,
    roi: np.ndarray | None = None,
    scales: np.ndarray | None = None,
    sizes: np.ndarray | None = None,
) -> Value:
    """Nearest, linear or cubic interpolation, also with antialias, in all coordinates but tf_crop_and_resize."""
    if call.opset < 11:  # the second input was scales
        return _interpolated(call, x, _scaled(call, x, range(x.ndim), roi), "asymmetric", "simple")
    coordinates = call.choice("coordinate_transformation_mode", "half_pixel", *COORDINATES)
    nearest = call.choice("nearest_mode", "round_prefer_floor", *NEAREST)
    given = call.attribute("axes", tuple(range(x.ndim)))
    axes = [axis_of(call, axis, x.ndim) for axis in given]
    is_sized = sizes is not None and sizes.size > 0
    found = _sized(call, x, axes, sizes) if is_sized else _scaled(call, x, axes, scales)
    return _interpolated(call, x, found, coordinates, nearest)


@onnx_operator("Upsample", static=("scales",))
def upsample(call: NodeCall, x: Value, scales: np.ndarray) -> Value:
    """Nearest or linear interpolation to scales: Resize before opset 10."""
    return _interpolated(call, x, _scaled(call, x, range(x.ndim), scales), "asymmetric", "simple")


def _scaled(call: NodeCall, x: Value, axes: Sequence[int], scales: np.ndarray | None) -> list[ResizedAxis]:
    """The axes with their lengths times their scales."""
    if scales is None or len(scales) != len(axes) or not (np.isfinite(scales) & (scales > 0)).all():
        given = None if scales is None else scales.tolist()
        raise call.error("needs a positive scale for each axis", scales=given, axes=list(axes), x=x.type)
    numbers = scales.astype(np.float32)
    return [
        ResizedAxis(axis, x.shape[axis], int(scale * np.float32(x.shape[axis])), scale)
        for axis, scale in zip(axes, numbers, strict=True)
    ]


def _sized(call: NodeCall, x: Value, axes: Sequence[int], sizes: np.ndarray | None) -> list[ResizedAxis]:
    """The axes with their new lengths; a policy may make them smaller or larger, to keep the aspect ratio."""
    policy = call.choice("keep_aspect_ratio_policy", "stretch", *POLICIES)
    if sizes is None or len(sizes) != len(axes) or not (sizes > 0).all():
        given = None if sizes is None else sizes.tolist()
        raise call.error("needs a positive size for each axis", sizes=given, axes=list(axes), x=x.type)
    lengths = [x.shape[axis] for axis in axes]
    wanted = [
        length if axis == 0 and call.fixed_batch(size, x) else size
        for axis, length, size in zip(axes, lengths, sizes.tolist(), strict=True)
    ]
    scales = [np.float32(size) / np.float32(length) for size, length in zip(wanted, lengths, strict=True)]
    if policy != "stretch":
        scale = min(scales) if policy == "not_larger" else max(scales)
        outs = [int(np.floor(np.float32(length) * scale + np.float32(0.5))) for length in lengths]
        return [ResizedAxis(axis, n, out, scale) for axis, n, out in zip(axes, lengths, outs, strict=True)]
    return [ResizedAxis(*numbers) for numbers in zip(axes, lengths, wanted, scales, strict=True)]


def _interpolated(call: NodeCall, x: Value, axes: Sequence[ResizedAxis], coordinates: str, nearest: str) -> Value:
    """x with these axes resized, those that change nothing left out."""
    mode = call.choice("mode", "nearest", "nearest", "linear", "cubic")
    changed = [axis for axis in axes if axis.scale != 1 or axis.length != axis.out]
    if not all(axis.length and axis.out for axis in changed):
        raise call.error("an axis without elements cannot be resized", x=x.type, sizes=[axis.out for axis in axes])
    for axis in changed:  # the place of each element, or a row of weights
        require_memory(8 * axis.out * (1 if mode == "nearest" else axis.length), node=call.node.name)
    if mode == "nearest":
        return _nearest(x, {axis.number: axis.nearest(coordinates, nearest) for axis in changed})
    if not x.dtype.is_float:
        raise call.error("interpolates floats only", x=x.type, mode=mode)
    cubic = float(call.attribute("cubic_coeff_a", -0.75)) if mode == "cubic" else None
    excluded, antialias = (bool(call.attribute(name, 0)) for name in ("exclude_outside", "antialias"))
    for axis in changed:
        x = _product(x, axis.number, weights(axis, coordinates, cubic, excluded, antialias))
    return x


def _nearest(x: Value, places: Mapping[int, np.ndarray]) -> Value:
    """The elements at these places along each axis, by the operator for images where it has them: it is faster."""
    if x.ndim == 4 and set(places) <= {2, 3}:
        image = ops.ResizeNearestNeighbor(tuple(len(places.get(k, range(x.shape[k]))) for k in (2, 3)))
        if all(np.array_equal(image.places(x.shape, axis), row) for axis, row in places.items()):
            return image(x)
    for axis, row in places.items():
        x = ops.Gather(axis)(x, row)
    return x


def _product(x: Value, axis: int, matrix: np.ndarray) -> Value:
    """Each vector along an axis times a matrix (new length, length)."""
    order = (*(k for k in range(x.ndim) if k != axis), axis)
    moved = x if axis == x.ndim - 1 else ops.Transpose()(x, order)
    rows = ops.Reshape()(moved, (-1, x.shape[axis]))
    made = ops.MatMul(transpose_b=True)(rows, Tensor(matrix, x.dtype))
    made = ops.Reshape()(made, (*moved.shape[:-1], len(matrix)))
    back = tuple(order.index(k) for k in range(x.ndim))
    return made if axis == x.ndim - 1 else ops.Transpose()(made, back)


# Rules that place the elements of windows in images: the reverse of pools, and of taking windows.


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
