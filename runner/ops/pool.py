"""Pooling and its gradients.

The gradient of a maximum goes to its first position in the window, row-major: to the first element that is not below
the maximum. So a window with NaN, to which nothing compares, passes its gradient to its first element.
"""

import math
from collections.abc import Sequence
from dataclasses import InitVar, field
from functools import reduce
from typing import Any, ClassVar

import numpy as np

from runner import dtype as dt
from runner.core.lowering import Builder, Form
from runner.core.primitive import Gradient, Primitive, family, primitive
from runner.core.value import Value
from runner.ops.array import require, require_nchw
from runner.ops.forms import pool
from runner.ops.reduce import is_nan, nan_where
from runner.ops.window import Pair, Windows, batch_first, batch_last, counts, pair
from runner.types import Shape, TensorType

__all__ = ["AvgPool", "AvgPoolGrad", "MaxPool", "MaxPoolGrad"]

IMPL_MODES = ("high_precision", "high_performance")


@family
class Pooling(Primitive):
    """Base: `kernel_size`, `strides`, and `pad_mode` `valid` (incomplete windows are dropped) or `same`."""

    needs_elements: ClassVar = True

    kernel_size: Pair = (1, 1)
    strides: Pair = (1, 1)
    pad_mode: str = "valid"
    data_format: InitVar[str] = "NCHW"

    def __post_init__(self, data_format: str) -> None:
        require_nchw(data_format)
        object.__setattr__(self, "kernel_size", pair(self.kernel_size, "kernel_size"))
        object.__setattr__(self, "strides", pair(self.strides, "strides"))
        object.__setattr__(self, "pad_mode", str(self.pad_mode).lower())
        require(self.pad_mode in ("valid", "same"), "unknown pad_mode", given=self.pad_mode, allowed="valid, same")

    def windows(self, image: Shape) -> Windows:
        """The windows in images of shape (N, C, H, W)."""
        return Windows.resolve((image[2], image[3]), self.kernel_size, self.strides, self.pad_mode, (0, 0, 0, 0))

    def pooled(self, x: TensorType) -> TensorType:
        """Type of the pooled images."""
        require(x.ndim == 4 and x.dtype.is_float, "needs floats (N, C, H, W)", x=x)
        return x.with_shape(x.shape[0], x.shape[1], *self.windows(x.shape).out)

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        pooled = min(x.size for x in (*inputs, *outputs))  # images are not smaller
        return pooled * math.prod(self.kernel_size)

    def geometry(self, image: Shape) -> dict[str, Any]:
        """The geometry as ONNX attributes."""
        windows = self.windows(image)
        return {"kernel_shape": windows.kernel, **windows.onnx()}


@primitive
class MaxPool(Pooling):
    """Largest element of each window."""

    def infer(self, x: TensorType) -> TensorType:
        return self.pooled(x)

    def kernel(self, x: np.ndarray) -> np.ndarray:
        windows = self.windows(x.shape)
        padded = windows.pad(batch_last(x), -np.inf)
        rows = reduce(np.maximum, [padded[:, tap] for tap in windows.taps(0)])  # height first: on whole rows
        return batch_first(reduce(np.maximum, [rows[:, :, tap] for tap in windows.taps(1)]))

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (MaxPoolGrad(self.kernel_size, self.strides, self.pad_mode)(inputs[0], outputs[0], douts[0]),)

    def lower(self, b: Builder, x: str) -> str:
        geometry = self.geometry(b.type(x).shape)
        # The second output, the positions, is for the gradient; the builder removes it if unused.
        largest = b.nodes("MaxPool", (x,), 2, **geometry)[0]
        # onnxruntime compares with the lowest finite number first.
        largest = b.node("Where", (_is_above_lowest(b, largest, b.type(x).dtype), largest, b.const(-math.inf, like=x)))
        return nan_where(b, b.node("MaxPool", (is_nan(b, x),), **geometry), largest, b.type(x).dtype)

    def forms(self, x: TensorType) -> Sequence[Form]:
        windows = self.windows(x.shape)
        tiled = pool.tiled_forms(pool.tiled_maximum, windows, x, gradient=False)
        return *tiled, *pool.forms(pool.maximum, windows, x, 1), Form("plain", self.lower)


@primitive
class MaxPoolGrad(Pooling):
    """Gradient of MaxPool: (x, out, dout) to the type of x."""

    def infer(self, x: TensorType, out: TensorType, dout: TensorType) -> TensorType:
        require(
            self.pooled(x) == out == dout, "out and dout must have the type of the pooled x", x=x, out=out, dout=dout
        )
        return x

    def kernel(self, x: np.ndarray, out: np.ndarray, dout: np.ndarray) -> np.ndarray:
        windows, largest, douts = self.windows(x.shape), batch_last(out), batch_last(dout)
        padded = windows.pad(batch_last(x), -np.inf)
        if not (all_finite(largest) and all_finite(douts)):
            return batch_first(windows.crop(_masked_gradient(windows, padded, largest, douts)))
        tiles = windows.tiles
        image = (np.empty if tiles else np.zeros)(padded.shape, x.dtype)
        read, write = windows.view(padded), windows.view(image)
        rest = douts.copy()  # the gradient that no earlier element of the window has received
        for i, j in np.ndindex(*windows.kernel):
            part = (read[:, i, j] == largest).astype(x.dtype)  # numpy multiplies bools with floats slowly
            part *= rest
            write[:, i, j] = part if tiles else part + write[:, i, j]
            rest -= part
        return batch_first(windows.crop(image))

    def lower(self, b: Builder, x: str, out: str, dout: str) -> str:
        shape, pooled = b.type(x).shape, b.type(out).shape
        if pool.uses_taps(self.windows(shape)):
            return self._by_taps(b, x, out, dout)
        places = b.nodes("MaxPool", (x,), 2, **self.geometry(shape))[1]
        # Elsewhere onnxruntime has found no position.
        found = _is_above_lowest(b, out, b.type(x).dtype)
        places = b.node("Where", (found, places, _first_positions(b, self.windows(shape), shape)))
        count = math.prod(pooled)
        # Expanded when the model is loaded: a constant would make it as large as the images.
        zeros = b.node("Expand", (b.const(np.zeros((), b.type(x).dtype.numpy)), b.const([math.prod(shape)])))
        flat = (zeros, b.reshape(places, (count,)), b.reshape(dout, (count,)))
        return b.reshape(b.node("ScatterElements", flat, axis=0, reduction="add"), shape)

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


def _first_positions(b: Builder, windows: Windows, image: Shape) -> str:
    """The position in the flattened images (N, C, H, W) of the first element of each window that is not padding."""
    (top, _, left, _), (down, across) = windows.pads, windows.strides
    rows = np.maximum(np.arange(windows.out[0]) * down - top, 0)
    columns = np.maximum(np.arange(windows.out[1]) * across - left, 0)
    starts = np.arange(image[0] * image[1]).reshape(*image[:2], 1, 1) * (image[2] * image[3])
    return b.node("Add", (b.const(starts), b.const(rows[:, None] * image[3] + columns)))


@primitive
class AvgPool(Pooling):
    """Mean of each window over the elements that are not padding.

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
        return batch_first(total / counts(windows, x.dtype)[..., None])

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (AvgPoolGrad(self.kernel_size, self.strides, self.pad_mode, x_shape=inputs[0].shape)(douts[0]),)

    def lower(self, b: Builder, x: str) -> str:
        if self.impl_mode == "high_performance" and b.type(x).dtype is dt.float16:
            return pool.mean_in_half(self.windows(b.type(x).shape), b, x)
        geometry = self.geometry(b.type(x).shape)
        del geometry["dilations"]  # ONNX has them for AveragePool only since opset 19
        return b.node("AveragePool", (x,), count_include_pad=0, **geometry)

    def forms(self, x: TensorType) -> Sequence[Form]:
        return *pool.forms(pool.mean, self.windows(x.shape), x, 1), Form("plain", self.lower)


@primitive
class AvgPoolGrad(Pooling):
    """Gradient of AvgPool: dout to `x_shape`."""

    x_shape: Shape = ()

    def infer(self, dout: TensorType) -> TensorType:
        expected = self.pooled(dout.with_shape(*self.x_shape))
        require(dout == expected, "the shape of dout does not match the attributes", dout=dout, expected=expected)
        return dout.with_shape(*self.x_shape)

    def kernel(self, dout: np.ndarray) -> np.ndarray:
        windows = self.windows(self.x_shape)
        share = batch_last(dout) / counts(windows, dout.dtype)[..., None]
        channels = self.x_shape[1]
        columns = np.broadcast_to(share[:, None, None], (channels, *windows.kernel, *share.shape[1:]))
        image = np.zeros((channels, *windows.padded, len(dout)), dout.dtype)
        return batch_first(windows.col2im([(slice(0, math.prod(windows.out) * len(dout)), columns)], image))

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        return (AvgPool(self.kernel_size, self.strides, self.pad_mode)(douts[0]),)

    def lower(self, b: Builder, dout: str) -> str:
        """A transposed convolution with ones, for each channel separately."""
        windows, (n, c, h, w), dtype = self.windows(self.x_shape), self.x_shape, b.type(dout).dtype.numpy
        share = b.node("Div", (dout, b.const(counts(windows, dtype))))
        single = b.reshape(share, (n * c, 1, *windows.out))
        missing = [(p - r) % s for p, r, s in zip(windows.padded, windows.extent, windows.strides, strict=True)]
        ones = b.const(np.ones((1, 1, *windows.kernel), dtype))
        result = b.node("ConvTranspose", (single, ones), output_padding=missing, group=1, **windows.onnx())
        return b.reshape(result, (n, c, h, w))

    def forms(self, dout: TensorType) -> Sequence[Form]:
        x = dout.with_shape(*self.x_shape)
        return *pool.forms(pool.mean_gradient, self.windows(x.shape), x, 1), Form("plain", self.lower)
