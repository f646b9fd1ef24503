"""Rules of convolutions."""

from dataclasses import replace
from typing import Any

from runner import ops
from runner.core.values import Value
from runner.importer.node_call import NodeCall
from runner.importer.operators.window import (
    Window,
    as_given,
    as_image,
    halves,
    numbers,
    require_axes,
    require_numbers,
    window_of,
)
from runner.importer.table import onnx_operator
from runner.ops.convolution.operators import convolve, convolve_back


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
    result: Value = convolution(as_image(x), as_image(weight))
    return result


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
    result: Value = planes(as_image(x), as_image(weight))
    return result


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
