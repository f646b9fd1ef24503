"""Pooling and its gradients: the base of all, maximum, mean, and lowerings in batch-last layout.

The gradient of a maximum goes to its first position in the window, row-major: to the first element that is not below
the maximum. So a window with NaN, to which nothing compares, passes its gradient to its first element.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass, field, replace
from functools import lru_cache, partial, reduce
from typing import Any, ClassVar, TypeVar

import numpy as np

from runner import dtype as dt
from runner.core.lowering import LAST, TILED, Builder, Lowering, physical_shape
from runner.core.operators import ComposedOperator, Gradient, Primitive, family, primitive
from runner.core.parts import Axes, PartRule, Parts, each_sample
from runner.core.values import Tensor, Value
from runner.host.threads import compute_parts, slices
from runner.ops.array import Pad, Stack, require, require_nchw
from runner.ops.convolution.windows import PAD_MODES, Pair, Quad, Windows, batch_first, batch_last, counts, pair, quad
from runner.ops.elementwise.arithmetic import ELEMENT_FLOPS
from runner.ops.indexing.gather import Gather
from runner.ops.indexing.slices import StridedSlice
from runner.ops.reduce import Argmax, is_nan, nan_where
from runner.types import Shape, TensorType

Sibling = TypeVar("Sibling", bound="Pooling")


@family
class Pooling(Primitive):
    """Base: `kernel_size`, `strides`, `dilation` between the elements of a window, and the padding.

    `pad_mode` `valid` drops incomplete windows; `same` gives ceil(size / stride) windows; `pad` pads by `padding` (an
    int, or top, bottom, left, right), and with `ceil_mode` it keeps incomplete windows that begin before the end of the
    image. Every window must have an element of the image.
    """

    needs_elements: ClassVar = True

    kernel_size: Pair = (1, 1)
    strides: Pair = (1, 1)
    pad_mode: str = "valid"
    data_format: InitVar[str] = "NCHW"
    padding: Quad = field(default=(0, 0, 0, 0), kw_only=True)
    dilation: Pair = field(default=(1, 1), kw_only=True)
    ceil_mode: bool = field(default=False, kw_only=True)

    def __post_init__(self, data_format: str) -> None:
        require_nchw(data_format)
        for name in ("kernel_size", "strides", "dilation"):
            object.__setattr__(self, name, pair(getattr(self, name), name))
        object.__setattr__(self, "padding", quad(self.padding, "padding"))
        object.__setattr__(self, "pad_mode", str(self.pad_mode).lower())
        mode = self.pad_mode
        require(mode in PAD_MODES, "unknown pad_mode", given=mode, allowed=", ".join(PAD_MODES))
        fits = mode == "pad" or not (any(self.padding) or self.ceil_mode)
        rows = {"padding": self.padding, "ceil_mode": self.ceil_mode, "pad_mode": mode}
        require(fits, "padding and ceil_mode need pad_mode='pad'", **rows)

    def listed(self, inputs: Sequence[TensorType]) -> dict[str, Any]:
        wide = {name: (1, 1, *getattr(self, name)) for name in ("kernel_size", "strides", "dilation")}
        return self.attributes() | wide | {"format": "NCHW"}

    def windows(self, image: Shape) -> Windows:
        """The windows in images of shape (N, C, H, W), with the padding at the end that they reach."""
        size, pads = (image[2], image[3]), self.padding
        if self.pad_mode == "pad":
            bottom, right = (self._end(axis, size[axis]) for axis in (0, 1))
            pads = pads[0], bottom, pads[2], right
        return Windows.resolve(size, self.kernel_size, self.strides, self.pad_mode, pads, self.dilation)

    def _end(self, axis: int, size: int) -> int:
        """The padding at the end of an axis: as far as the last window reaches."""
        before, after = self.padding[2 * axis : 2 * axis + 2]
        extent, stride = self.dilation[axis] * (self.kernel_size[axis] - 1) + 1, self.strides[axis]
        steps = size + before + after - extent
        missing = (-steps) % stride
        if self.ceil_mode and after + missing < extent:  # else the incomplete window would begin after the image
            return after + missing
        return max(after - steps % stride, 0)

    def pooled(self, x: TensorType) -> TensorType:
        """Type of the pooled images."""
        require(x.ndim == 4 and x.dtype.is_float, "needs floats (N, C, H, W)", x=x)
        windows = self.windows(x.shape)
        filled = all(_has_elements(windows, axis) for axis in (0, 1))
        require(filled, "a window has no element of the image", x=x, window=windows.extent, pads=windows.pads)
        return x.with_shape(x.shape[0], x.shape[1], *windows.out)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        pooled = min(x.size for x in (*inputs, *outputs))  # images are not smaller
        return pooled * math.prod(self.kernel_size)

    def common_attributes(self) -> dict[str, Any]:
        """The attributes that an operator and its gradient share."""
        names = ("kernel_size", "strides", "pad_mode", "padding", "dilation", "ceil_mode")
        return {name: getattr(self, name) for name in names}

    def sibling(self, kind: type[Sibling], **more: Any) -> Sibling:
        """The gradient of this operator, or the operator of this gradient, with its own attributes."""
        operator: Sibling = _sibling(self, kind, **more)  # type: ignore[arg-type]  # mypy needs a hash of the values
        return operator


@lru_cache(maxsize=4096)
def _sibling(op: Pooling, kind: Any, **more: Any) -> Any:
    # Cached: PyNative mode calls this in every step, and validating the attributes takes as long as a small kernel.
    return kind(**op.common_attributes(), **more)


def _has_elements(windows: Windows, axis: int) -> bool:
    """Whether every window has an element of the image along an axis. More windows than places cannot."""
    few = windows.out[axis] <= windows.size[axis] * windows.kernel[axis]
    return few and bool(windows.inside(axis).min())


def padded_for_onnx(b: Builder, x: str, windows: Windows, fill: float = 0.0) -> tuple[str, Windows]:
    """The images, padded where onnxruntime's pools do not accept the padding: from the size of the kernel on.

    Returns their name and the windows in them, which are the same ones.
    """
    top, bottom, left, right = windows.pads
    if max(top, bottom) < windows.kernel[0] and max(left, right) < windows.kernel[1]:
        return x, windows
    pads = b.const([0, 0, top, left, 0, 0, bottom, right])
    padded = b.node("Pad", (x, pads, b.const(np.array(fill, b.type(x).dtype.numpy))))
    return padded, replace(windows, size=windows.padded, pads=(0, 0, 0, 0))


# Maximum pooling.

BLOCK_BYTES = 1 << 20  # of the images whose gradient is distributed at once


@primitive
class MaxPool(Pooling):
    """Largest element of each window."""

    takes_largest: ClassVar = True

    def infer(self, x: TensorType) -> TensorType:
        return self.pooled(x)

    def kernel(self, x: np.ndarray) -> np.ndarray:
        windows = self.windows(x.shape)
        padded = windows.pad(batch_last(x), -np.inf)
        rows = reduce(np.maximum, [padded[:, offset] for offset in windows.offsets(0)])  # height first: on whole rows
        return batch_first(reduce(np.maximum, [rows[:, :, offset] for offset in windows.offsets(1)]))

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (self.sibling(MaxPoolGrad)(inputs[0], outputs[0], douts[0]),)

    def lower(self, b: Builder, x: str) -> str:
        dtype = b.type(x).dtype
        image, windows = padded_for_onnx(b, x, self.windows(b.type(x).shape), -math.inf)
        # The second output, the positions, is for the gradient; the builder removes it if unused.
        largest = b.nodes("MaxPool", (image,), 2, kernel_shape=windows.kernel, **windows.onnx())[0]
        # onnxruntime compares with the lowest finite number first.
        largest = b.node("Where", (_is_above_lowest(b, largest, dtype), largest, b.const(-math.inf, like=x)))
        nans = b.node("MaxPool", (is_nan(b, image),), kernel_shape=windows.kernel, **windows.onnx())
        return nan_where(b, nans, largest, dtype)

    def part(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> PartRule | None:
        return each_sample(self, axes, (0,), (0,))

    def lowerings(self, x: TensorType) -> Sequence[Lowering]:
        windows = self.windows(x.shape)
        tiled = _tiled_lowering(lower_tiled_maximum, windows, x, gradient=False)
        return *tiled, *_last_lowering(lower_maximum, windows, x, 1), Lowering("plain", self.lower)


@primitive
class MaxPoolGrad(Pooling):
    """Gradient of MaxPool: (x, out, dout) to the type of x."""

    gradient_of: ClassVar = "MaxPool"
    operand_names: ClassVar = ("x_origin", "out_origin", "grad")

    def infer(self, x: TensorType, out: TensorType, dout: TensorType) -> TensorType:
        fits = self.pooled(x) == out == dout
        require(fits, "out and dout must have the type of the pooled x", x=x, out=out, dout=dout)
        return x

    def kernel(self, x: np.ndarray, out: np.ndarray, dout: np.ndarray) -> np.ndarray:
        windows, largest, douts = self.windows(x.shape), batch_last(out), batch_last(dout)
        padded = windows.pad(batch_last(x), -np.inf)
        if not (all_finite(largest) and all_finite(douts)):
            return batch_first(windows.crop(_masked_gradient(windows, padded, largest, douts)))
        image = (np.empty if windows.tile_image else np.zeros)(padded.shape, x.dtype)
        arrays, blocks = (padded, largest, douts, image), slices(len(padded), max(1, BLOCK_BYTES // padded[0].nbytes))
        compute_parts(lambda part: _distribute(windows, *[x[part] for x in arrays]), blocks, ELEMENT_FLOPS * x.size)
        return batch_first(windows.crop(image))

    def lower(self, b: Builder, x: str, out: str, dout: str) -> str:
        shape, pooled = b.type(x).shape, b.type(out).shape
        if uses_taps(self.windows(shape)):
            return self._by_taps(b, x, out, dout)
        if b.on_host:
            image, windows = padded_for_onnx(b, x, self.windows(shape), -math.inf)
            places = b.nodes("MaxPool", (image,), 2, kernel_shape=windows.kernel, **windows.onnx())[1]
        else:  # of equal elements CUDA does not find the first one
            windows = replace(self.windows(shape), size=self.windows(shape).padded, pads=(0, 0, 0, 0))
            places = _positions_by_offset(b, x, out, self.windows(shape))
        # Elsewhere onnxruntime has found no position.
        found = _is_above_lowest(b, out, b.type(x).dtype)
        size = (*shape[:2], *windows.size)
        places = b.node("Where", (found, places, _first_positions(b, x, self.windows(shape), size)))
        count = math.prod(pooled)
        # Expanded when the model is loaded: a constant would make it as large as the images.
        zeros = b.node("Expand", (b.const(np.zeros((), b.type(x).dtype.numpy)), b.const([math.prod(size)])))
        flat = (zeros, b.reshape(places, (count,)), b.reshape(dout, (count,)))
        spread = b.reshape(b.node("ScatterElements", flat, axis=0, reduction="add"), size)
        return spread if size == shape else _cropped(b, spread, self.windows(shape))

    def part(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> PartRule | None:
        return each_sample(self, axes, (0, 0, 0), (0,))

    def lowerings(self, x: TensorType, out: TensorType, dout: TensorType) -> Sequence[Lowering]:
        windows = self.windows(x.shape)
        tiled = _tiled_lowering(lower_tiled_maximum_gradient, windows, x, gradient=True)
        return *tiled, *_last_lowering(lower_maximum_gradient, windows, x, 3), Lowering("plain", self.lower)

    def _by_taps(self, b: Builder, x: str, out: str, dout: str) -> str:
        """By transposing to batch last and back, in half the time that positions of MaxPool take."""
        last = [b.node("Transpose", (name,), perm=(1, 2, 3, 0)) for name in (x, out, dout)]
        result = lower_maximum_gradient(self.windows(b.type(x).shape), b.type(x), b, *last)
        return b.node("Transpose", (result,), perm=(3, 0, 1, 2))


def all_finite(x: np.ndarray) -> bool:
    """Whether all elements of a contiguous array are finite; False also for squares that overflow. One fast pass."""
    flat = x.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        return math.isfinite(flat @ flat)


def _distribute(windows: Windows, padded: np.ndarray, out: np.ndarray, dout: np.ndarray, image: np.ndarray) -> None:
    """Write the gradient for a padded image, where `out` and `dout` are finite, into `image`, or add it to zeros."""
    read, write = windows.view(padded), windows.view(image)
    rest = dout.copy()  # the gradient that no earlier element of the window has received
    hit, part = np.empty(out.shape, bool), np.empty_like(rest)
    *places, last = np.ndindex(*windows.kernel)
    for i, j in places:
        np.copyto(part, np.equal(read[:, i, j], out, out=hit))  # numpy multiplies bools with floats slowly
        part *= rest
        rest -= part
        write[:, i, j] = part if windows.tile_image else write[:, i, j] + part
    write[:, *last] = rest if windows.tile_image else write[:, *last] + rest


def _masked_gradient(windows: Windows, padded: np.ndarray, out: np.ndarray, dout: np.ndarray) -> np.ndarray:
    """The gradient for a padded image, also where `out` or `dout` are not finite; five times slower than products."""
    image = np.zeros_like(padded)
    read, write = windows.view(padded), windows.view(image)
    inside = windows.view(windows.pad(np.ones((1, *windows.size, 1), bool)))
    free = np.ones(out.shape, bool)
    for i, j in np.ndindex(*windows.kernel):
        hit = free & inside[:, i, j] & ~(read[:, i, j] < out)
        write[:, i, j] += np.where(hit, dout, dout.dtype.type(0))
        free &= ~hit
    return image


def _is_above_lowest(b: Builder, largest: str, dtype: dt.DType) -> str:
    """False for NaN, -inf, and the lowest finite number."""
    return b.node("Greater", (largest, b.const(np.asarray(np.finfo(dtype.numpy).min))))


def _positions_by_offset(b: Builder, x: str, out: str, windows: Windows) -> str:
    """The position in the flattened padded images of the first element of each window that is its maximum, compared
    offset by offset; any position where none is."""
    (top, bottom, left, right), dtype = windows.pads, b.type(x).dtype.numpy
    pads = b.const([0, 0, top, left, 0, 0, bottom, right])
    image = b.node("Pad", (x, pads, b.const(np.array(-math.inf, dtype)))) if any(windows.pads) else x
    inside = replace(windows, size=windows.padded, pads=(0, 0, 0, 0))
    first = places = _first_positions(b, x, inside, (*b.type(x).shape[:2], *windows.padded))
    for i, j in reversed(list(np.ndindex(*windows.kernel))):
        begin = i * windows.dilations[0], j * windows.dilations[1]
        ends = [k + (n - 1) * s + 1 for k, n, s in zip(begin, windows.out, windows.strides, strict=True)]
        axes, steps = b.const([2, 3]), b.const(list(windows.strides))
        element = b.node("Slice", (image, b.const(list(begin)), b.const(ends), axes, steps))
        here = b.node("Add", (first, b.const(np.array(begin[0] * windows.padded[1] + begin[1]))))
        places = b.node("Where", (b.node("Equal", (element, out)), here, places))
    return places


def _first_positions(b: Builder, x: str, windows: Windows, image: Shape) -> str:
    """The position in the flattened images, those of x or padded ones, of the first element of each window that is not
    padding."""
    places = []
    for axis in (0, 1):
        begins = np.arange(windows.out[axis]) * windows.strides[axis] - windows.pads[2 * axis]
        first = np.where(begins < 0, begins % windows.dilations[axis], begins)
        places.append(first + (windows.pads[2 * axis] if image[2 + axis] > windows.size[axis] else 0))
    # Computed from the shape, so that no constant depends on the size of the batch.
    channels = b.node("ReduceProd", (b.node("Shape", (x,), end=2),), keepdims=0)
    numbers = b.node("Range", (b.const(np.array(0)), channels, b.const(np.array(1))))
    planes = b.reshape(b.node("Mul", (numbers, b.const(np.array(image[2] * image[3])))), (*image[:2], 1, 1))
    return b.node("Add", (planes, b.const(places[0][:, None] * image[3] + places[1])))


def _cropped(b: Builder, image: str, windows: Windows) -> str:
    """(N, C, H, W) without padding."""
    (top, _, left, _), (height, width) = windows.pads, windows.size
    return b.node("Slice", (image, b.const([top, left]), b.const([top + height, left + width]), b.const([2, 3])))


@dataclass(frozen=True)
class MaxPoolWithArgmax(ComposedOperator):
    """MaxPool of x (N, C, H, W), and of each maximum its position in the C * H * W elements of its sample, as Int32."""

    kernel_size: Any = 1
    strides: Any = 1
    pad_mode: str = "valid"
    data_format: str = "NCHW"
    padding: Any = field(default=0, kw_only=True)
    dilation: Any = field(default=1, kw_only=True)
    ceil_mode: bool = field(default=False, kw_only=True)

    def compose(self, x: Value) -> tuple[Value, Value]:
        require_nchw(self.data_format)
        edge = {"padding": self.padding, "dilation": self.dilation, "ceil_mode": self.ceil_mode}
        pooling = MaxPool(self.kernel_size, self.strides, self.pad_mode, **edge)
        largest = pooling(x)
        windows = pooling.windows(x.shape)
        chosen = Argmax(0)(Stack(0)(*_parts(x, windows)))
        (top, _, left, _), (below, beside) = windows.pads, windows.dilations
        offsets = [i * below * x.shape[3] + j * beside for i, j in np.ndindex(*windows.kernel)]
        rows = np.arange(windows.out[0]) * windows.strides[0] - top
        starts = rows[:, None] * x.shape[3] + np.arange(windows.out[1]) * windows.strides[1] - left
        starts = starts + np.arange(x.shape[1]).reshape(-1, 1, 1) * (x.shape[2] * x.shape[3])
        positions: Value = Gather()(Tensor(np.array(offsets, np.int32)), chosen, 0) + Tensor(starts.astype(np.int32))
        return largest, positions


def _parts(x: Value, windows: Windows) -> list[Value]:
    """The elements of all windows at each place of a window, row-major; what is padding is -inf."""
    top, bottom, left, right = windows.pads
    padding = (0, 0), (0, 0), (top, bottom), (left, right)
    padded = Pad(padding, value=-np.inf)(x) if any(windows.pads) else x
    parts = []
    for rows in windows.offsets(0):
        for columns in windows.offsets(1):
            stop = (*x.shape[:2], rows.stop, columns.stop)
            steps = (1, 1, rows.step, columns.step)
            parts.append(StridedSlice()(padded, (0, 0, rows.start, columns.start), stop, steps))
    return parts


# Average pooling.

IMPL_MODES = ("high_precision", "high_performance")


@family
class Averaging(Pooling):
    """Base of AvgPool and its gradient. `count_include_pad`: padding of `pad_mode` `pad` counts as elements of 0, but
    not what completes an incomplete window."""

    count_include_pad: bool = field(default=True, kw_only=True)

    def divisors(self, windows: Windows, dtype: np.dtype) -> np.ndarray:
        """What the sum of each window is divided by: (OH, OW)."""
        return counts(windows, dtype, self.padding if self.count_include_pad else (0, 0, 0, 0))


@primitive
class AvgPool(Averaging):
    """Mean of each window over the elements that are not padding, or with padding (`count_include_pad`).

    `impl_mode` selects the summation of Float16: `high_precision` in Float32, rounded once; `high_performance` in
    Float16, element by element in row-major order with each sum rounded.
    """

    impl_mode: str = field(default="high_precision", kw_only=True)

    def __post_init__(self, data_format: str) -> None:
        super().__post_init__(data_format)
        require(self.impl_mode in IMPL_MODES, "unknown impl_mode", given=self.impl_mode, allowed=", ".join(IMPL_MODES))
        if self.impl_mode == "high_performance":
            object.__setattr__(self, "computes", False)  # so it is not computed in Float32 with one rounding

    def infer(self, x: TensorType) -> TensorType:
        return self.pooled(x)

    def kernel(self, x: np.ndarray) -> np.ndarray:
        windows = self.windows(x.shape)
        padded = windows.pad(batch_last(x))
        if x.dtype == np.float16:
            total = reduce(np.add, [padded[:, i, j] for i in windows.offsets(0) for j in windows.offsets(1)])
        else:
            total = windows.view(padded).sum((1, 2), dtype=x.dtype)
        return batch_first(total / self.divisors(windows, x.dtype)[..., None])

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        counted = self.count_include_pad
        return (self.sibling(AvgPoolGrad, count_include_pad=counted, x_shape=inputs[0].shape)(douts[0]),)

    def lower(self, b: Builder, x: str) -> str:
        (n, c, h, w), dtype = b.type(x).shape, b.type(x).dtype
        windows = self.windows((n, c, h, w))
        divisors = self.divisors(windows, dt.float32.numpy)
        if self.impl_mode == "high_performance" and dtype is dt.float16:
            return lower_mean_in_half(windows, divisors, b, x)
        if windows.dilations != (1, 1):  # ONNX has them for AveragePool only since opset 19
            ones = b.const(np.ones((1, 1, *windows.kernel), dtype.numpy))
            total = b.node("Conv", (b.reshape(x, (n * c, 1, h, w)), ones), **windows.onnx())
            total = b.reshape(total, (n, c, *windows.out))
            return b.node("Div", (total, b.const(divisors.astype(dtype.numpy))))
        geometry = {"kernel_shape": windows.kernel, "strides": windows.strides, "pads": windows.onnx()["pads"]}
        if np.array_equal(divisors, counts(windows, dt.float32.numpy)):
            return b.node("AveragePool", (x,), count_include_pad=0, **geometry)
        mean, count = b.node("AveragePool", (x,), count_include_pad=1, **geometry), math.prod(windows.kernel)
        if (divisors == count).all():
            return mean
        return b.node("Mul", (mean, b.const((count / divisors).astype(dtype.numpy))))

    def part(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> PartRule | None:
        return each_sample(self, axes, (0,), (0,))

    def lowerings(self, x: TensorType) -> Sequence[Lowering]:
        return *_last_lowering(lower_mean, self.windows(x.shape), x, 1), Lowering("plain", self.lower)


@primitive
class AvgPoolGrad(Averaging):
    """Gradient of AvgPool: dout to `x_shape`."""

    x_shape: Shape = ()

    def infer(self, dout: TensorType) -> TensorType:
        expected = self.pooled(dout.with_shape(*self.x_shape))
        require(dout == expected, "the shape of dout does not match the attributes", dout=dout, expected=expected)
        return dout.with_shape(*self.x_shape)

    def kernel(self, dout: np.ndarray) -> np.ndarray:
        windows = self.windows(self.x_shape)
        share = batch_last(dout) / self.divisors(windows, dout.dtype)[..., None]
        channels = self.x_shape[1]
        columns = np.broadcast_to(share[:, None, None], (channels, *windows.kernel, *share.shape[1:]))
        image = np.zeros((channels, *windows.padded, len(dout)), dout.dtype)
        return batch_first(windows.col2im([(slice(0, math.prod(windows.out) * len(dout)), columns)], image))

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (self.sibling(AvgPool, count_include_pad=self.count_include_pad)(douts[0]),)

    def lower(self, b: Builder, dout: str) -> str:
        """A transposed convolution with ones, for each channel separately."""
        windows, (n, c, h, w), dtype = self.windows(self.x_shape), self.x_shape, b.type(dout).dtype.numpy
        share = b.node("Div", (dout, b.const(self.divisors(windows, dtype))))
        single = b.reshape(share, (n * c, 1, *windows.out))
        missing = [(p - r) % s for p, r, s in zip(windows.padded, windows.extent, windows.strides, strict=True)]
        ones = b.const(np.ones((1, 1, *windows.kernel), dtype))
        result = b.node("ConvTranspose", (single, ones), output_padding=missing, group=1, **windows.onnx())
        return b.reshape(result, (n, c, h, w))

    def part(self, types: Sequence[TensorType], axes: Axes, parts: Parts) -> PartRule | None:
        counted, (batch, *image) = self.count_include_pad, self.x_shape
        shape = batch // parts.count, *image
        return each_sample(self.sibling(AvgPoolGrad, count_include_pad=counted, x_shape=shape), axes, (0,), (0,))

    def lowerings(self, dout: TensorType) -> Sequence[Lowering]:
        x = dout.with_shape(*self.x_shape)
        return *_last_lowering(lower_mean_gradient, self.windows(x.shape), x, 1), Lowering("plain", self.lower)


def lower_mean_in_half(windows: Windows, divisors: np.ndarray, b: Builder, x: str) -> str:
    """AvgPool of Float16 (N, C, H, W), every sum rounded to Float16 by Casts, since the CPU adds only in Float32."""
    top, bottom, left, right = windows.pads
    single = b.node("Cast", (x,), to=dt.float32)
    padded = b.node("Pad", (single, b.const([0, 0, top, left, 0, 0, bottom, right]))) if any(windows.pads) else single
    total = ""
    for down in windows.offsets(0):
        for across in windows.offsets(1):
            starts, ends, steps = ([getattr(s, part) for s in (down, across)] for part in ("start", "stop", "step"))
            element = b.node("Slice", (padded, *map(b.const, (starts, ends, [2, 3], steps))))
            total = _round_to_half(b, b.node("Add", (total, element))) if total else element
    mean = b.node("Div", (total, b.const(divisors)))
    return b.node("Cast", (mean,), to=dt.float16)


def _round_to_half(b: Builder, name: str) -> str:
    return b.node("Cast", (b.node("Cast", (name,), to=dt.float16),), to=dt.float32)


# Lowerings in batch-last layout, for disjoint windows: one axis at a time, on whole rows of memory.
#
# Columns first, then rows: the first maximum of the first maxima of the rows is the first one in row-major order.

MAX_SIDE = 16  # of windows that are processed offset by offset


def uses_taps(windows: Windows) -> bool:
    """Whether windows are processed offset by offset: they are disjoint and small."""
    return windows.tile_image and max(windows.kernel) <= MAX_SIDE


def _last_lowering(lower: Callable[..., str], windows: Windows, x: TensorType, operands: int) -> tuple[Lowering, ...]:
    """The batch-last form of a pooling operator, if its windows allow it."""
    fits = uses_taps(windows) and x.dtype is dt.float32
    return (Lowering("last", partial(lower, windows, x), (LAST,) * operands, (LAST,)),) if fits else ()


def _tiled_lowering(lower: Callable[..., str], windows: Windows, x: TensorType, gradient: bool) -> tuple[Lowering, ...]:
    """The form of a 2x2 pool of a tiled image."""
    fits = windows.tile_image and windows.kernel == (2, 2) and x.dtype is dt.float32
    operands, results = ((TILED, LAST, LAST), (TILED,)) if gradient else ((TILED,), (LAST,))
    return (Lowering("tiled", partial(lower, x), operands, results),) if fits else ()


def lower_maximum(windows: Windows, x: TensorType, b: Builder, name: str) -> str:
    """MaxPool."""
    across, down = _levels(windows, x)
    return b.reshape(_largest(b, _taps(b, _largest(b, _taps(b, name, across)), down)), _pooled(windows, x))


def lower_maximum_gradient(windows: Windows, x: TensorType, b: Builder, name: str, out: str, dout: str) -> str:
    """MaxPoolGrad: from the pooled image to its rows, and from each row to its elements."""
    across, down = _levels(windows, x)
    rows = b.reshape(_largest(b, _taps(b, name, across)), down)
    out = _as_tap(b, out, down)
    spread = _to_first(b, x.dtype, down, rows, out, _as_tap(b, dout, down))
    # The maximum of each row, but NaN in all rows of a window with NaN, whose gradient goes to its first element.
    largest, spread = (_as_tap(b, value, across) for value in (b.node("Max", (rows, out)), spread))
    result = _to_first(b, x.dtype, across, b.reshape(name, across), largest, spread)
    return b.reshape(result, (*x.shape[1:], x.shape[0]))


def lower_tiled_maximum(x: TensorType, b: Builder, name: str) -> str:
    """MaxPool: the largest of the four corners."""
    _, _, *pooled = physical_shape(x.shape, TILED)
    return b.reshape(_largest(b, _taps(b, name, (1, 4, x.size // 4))), pooled)


def lower_tiled_maximum_gradient(x: TensorType, b: Builder, name: str, out: str, dout: str) -> str:
    """MaxPoolGrad: to the first corner that has the maximum."""
    level = 1, 4, x.size // 4
    result = _to_first(b, x.dtype, level, b.reshape(name, level), _as_tap(b, out, level), _as_tap(b, dout, level))
    return b.reshape(result, physical_shape(x.shape, TILED))


def lower_mean(windows: Windows, x: TensorType, b: Builder, name: str) -> str:
    """AvgPool."""
    (height, width), (rows, columns), batch = windows.kernel, windows.out, x.shape[0]
    split = b.reshape(name, (x.shape[1] * rows, height, columns, width, batch))
    result = b.node("ReduceMean", (split, b.const([1, 3])), keepdims=0)
    return b.reshape(result, _pooled(windows, x))


def lower_mean_gradient(windows: Windows, x: TensorType, b: Builder, dout: str) -> str:
    """AvgPoolGrad."""
    (height, width), (rows, columns), (batch, channels) = windows.kernel, windows.out, x.shape[:2]
    share = b.node("Mul", (dout, b.const(1.0 / (height * width), like=dout)))
    split = b.reshape(share, (channels * rows, 1, columns, 1, batch))
    spread = b.node("Expand", (split, b.const([channels * rows, height, columns, width, batch])))
    return b.reshape(spread, (*x.shape[1:], batch))


Level = tuple[int, int, int]  # outer elements, offsets, inner elements


def _levels(windows: Windows, x: TensorType) -> tuple[Level, Level]:
    """The shapes for reducing the columns of the windows, and then their rows."""
    (batch, channels, height, _), (rows, columns) = x.shape, windows.out
    across = channels * height * columns, windows.kernel[1], batch
    return across, (channels * rows, windows.kernel[0], columns * batch)


def _taps(b: Builder, name: str, level: Level) -> tuple[str, ...]:
    if level[1] == 1:
        return (_as_tap(b, name, level),)
    return b.nodes("Split", (b.reshape(name, level),), level[1], axis=1, num_outputs=level[1])


def _as_tap(b: Builder, name: str, level: Level) -> str:
    return b.reshape(name, (level[0], 1, level[2]))


def _largest(b: Builder, offsets: Sequence[str]) -> str:
    return offsets[0] if len(offsets) == 1 else b.node("Max", offsets)


def _to_first(b: Builder, dtype: dt.DType, level: Level, x: str, largest: str, dout: str) -> str:
    """dout at the first offset of x that is not below the largest, elsewhere zeros, also where dout is not finite."""
    count, zero = level[1], b.const(np.zeros((), dtype.numpy))
    if count == 1:
        return dout
    whole = level[0] == 1  # else broadcasting over the offsets would loop over short rows
    if whole:
        below = b.nodes("Split", (b.node("Less", (x, largest)),), count, axis=1, num_outputs=count)
    else:
        below = tuple([b.node("Less", (offset, largest)) for offset in _taps(b, x, level)])
    first, none = [b.node("Not", below[:1])], below[0]
    for miss in below[1:-1]:
        first.append(b.node("And", (none, b.node("Not", (miss,)))))
        none = b.node("And", (none, miss))
    first.append(none)
    if whole:
        return b.node("Where", (b.node("Concat", first, axis=1), dout, zero))
    return b.node("Concat", [b.node("Where", (hit, dout, zero)) for hit in first], axis=1)


def _pooled(windows: Windows, x: TensorType) -> tuple[int, ...]:
    return x.shape[1], *windows.out, x.shape[0]
