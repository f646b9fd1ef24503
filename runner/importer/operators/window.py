"""The windows of convolutions and pools, as the attributes of a node describe them."""

from collections.abc import Sequence
from dataclasses import dataclass

from runner import ops
from runner.core.values import Value
from runner.importer.node_call import NodeCall
from runner.ops.convolution.windows import Pair, Quad, Windows

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
    image: Value = ops.ExpandDims()(x, 2) if x.ndim == 3 else x
    return image


def as_given(image: Value, ndim: int) -> Value:
    """The result for what `as_image` has made, in the original number of axes."""
    given: Value = ops.Squeeze(2)(image) if ndim == 3 else image
    return given
