"""Pooling and its gradients.

The gradient of a maximum goes to its first position in the window, row-major: to the first element that is not below
the maximum. So a window with NaN, to which nothing compares, passes its gradient to its first element.
"""

import math
from collections.abc import Sequence
from dataclasses import field
from functools import reduce
from typing import ClassVar

import numpy as np

from runner import dtype as dt
from runner.core.lowering import Builder, Form
from runner.core.operators import BatchRule, Gradient, family, primitive
from runner.core.values import Value
from runner.host.threads import compute_parts, slices
from runner.ops.array import require
from runner.ops.elementwise_blocks import ELEMENT_FLOPS
from runner.ops.forms import pool
from runner.ops.pool_geometry import Pooling, padded_for_onnx
from runner.ops.reduce import is_nan, nan_where
from runner.ops.window import Windows, batch_first, batch_last, counts
from runner.types import Shape, TensorType

__all__ = ["AvgPool", "AvgPoolGrad", "MaxPool", "MaxPoolGrad"]

BLOCK_BYTES = 1 << 20  # of the images whose gradient is distributed at once
IMPL_MODES = ("high_precision", "high_performance")


@primitive
class MaxPool(Pooling):
    """Largest element of each window."""

    takes_largest: ClassVar = True

    def infer(self, x: TensorType) -> TensorType:
        return self.pooled(x)

    def kernel(self, x: np.ndarray) -> np.ndarray:
        windows = self.windows(x.shape)
        padded = windows.pad(batch_last(x), -np.inf)
        rows = reduce(np.maximum, [padded[:, tap] for tap in windows.taps(0)])  # height first: on whole rows
        return batch_first(reduce(np.maximum, [rows[:, :, tap] for tap in windows.taps(1)]))

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

    def batched(self, types: Sequence[TensorType]) -> BatchRule | None:
        return BatchRule((True,), lambda _: self)

    def forms(self, x: TensorType) -> Sequence[Form]:
        windows = self.windows(x.shape)
        tiled = pool.tiled_forms(pool.tiled_maximum, windows, x, gradient=False)
        return *tiled, *pool.forms(pool.maximum, windows, x, 1), Form("plain", self.lower)


@primitive
class MaxPoolGrad(Pooling):
    """Gradient of MaxPool: (x, out, dout) to the type of x."""

    gradient_of: ClassVar = "MaxPool"

    def infer(self, x: TensorType, out: TensorType, dout: TensorType) -> TensorType:
        fits = self.pooled(x) == out == dout
        require(fits, "out and dout must have the type of the pooled x", x=x, out=out, dout=dout)
        return x

    def kernel(self, x: np.ndarray, out: np.ndarray, dout: np.ndarray) -> np.ndarray:
        windows, largest, douts = self.windows(x.shape), batch_last(out), batch_last(dout)
        padded = windows.pad(batch_last(x), -np.inf)
        if not (all_finite(largest) and all_finite(douts)):
            return batch_first(windows.crop(_masked_gradient(windows, padded, largest, douts)))
        image = (np.empty if windows.tiles else np.zeros)(padded.shape, x.dtype)
        arrays, blocks = (padded, largest, douts, image), slices(len(padded), max(1, BLOCK_BYTES // padded[0].nbytes))
        compute_parts(lambda part: _distribute(windows, *[x[part] for x in arrays]), blocks, ELEMENT_FLOPS * x.size)
        return batch_first(windows.crop(image))

    def lower(self, b: Builder, x: str, out: str, dout: str) -> str:
        shape, pooled = b.type(x).shape, b.type(out).shape
        if pool.uses_taps(self.windows(shape)):
            return self._by_taps(b, x, out, dout)
        image, windows = padded_for_onnx(b, x, self.windows(shape), -math.inf)
        places = b.nodes("MaxPool", (image,), 2, kernel_shape=windows.kernel, **windows.onnx())[1]
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

    def batched(self, types: Sequence[TensorType]) -> BatchRule | None:
        return BatchRule((True, True, True), lambda _: self)

    def forms(self, x: TensorType, out: TensorType, dout: TensorType) -> Sequence[Form]:
        windows = self.windows(x.shape)
        tiled = pool.tiled_forms(pool.tiled_maximum_gradient, windows, x, gradient=True)
        return *tiled, *pool.forms(pool.maximum_gradient, windows, x, 3), Form("plain", self.lower)

    def _by_taps(self, b: Builder, x: str, out: str, dout: str) -> str:
        """By transposing to batch last and back, in half the time that positions of MaxPool take."""
        last = [b.node("Transpose", (name,), perm=(1, 2, 3, 0)) for name in (x, out, dout)]
        result = pool.maximum_gradient(self.windows(b.type(x).shape), b.type(x), b, *last)
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
        write[:, i, j] = part if windows.tiles else write[:, i, j] + part
    write[:, *last] = rest if windows.tiles else write[:, *last] + rest


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
            total = reduce(np.add, [padded[:, i, j] for i in windows.taps(0) for j in windows.taps(1)])
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
            return pool.mean_in_half(windows, divisors, b, x)
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

    def batched(self, types: Sequence[TensorType]) -> BatchRule | None:
        return BatchRule((True,), lambda _: self)

    def forms(self, x: TensorType) -> Sequence[Form]:
        return *pool.forms(pool.mean, self.windows(x.shape), x, 1), Form("plain", self.lower)


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

    def batched(self, types: Sequence[TensorType]) -> BatchRule | None:
        counted, image = self.count_include_pad, self.x_shape[1:]
        return BatchRule((True,), lambda n: self.sibling(AvgPoolGrad, count_include_pad=counted, x_shape=(n, *image)))

    def forms(self, dout: TensorType) -> Sequence[Form]:
        x = dout.with_shape(*self.x_shape)
        return *pool.forms(pool.mean_gradient, self.windows(x.shape), x, 1), Form("plain", self.lower)
