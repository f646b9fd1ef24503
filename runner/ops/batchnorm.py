"""Batch normalisation (Ioffe and Szegedy, 2015) over the channels of (N, C) or (N, C, H, W), and its gradient.

Attributes, operands and outputs are those of the reference. Variances are computed from centred elements, so that a
mean far from 0 costs no precision.
"""

from collections.abc import Sequence
from dataclasses import InitVar
from typing import ClassVar

import numpy as np

from runner import dtype as dt
from runner.core.lowering import Builder, Form
from runner.core.operators import Gradient, Primitive, family, primitive
from runner.core.values import Value
from runner.host.threads import block_length, compute_parts, slices
from runner.ops.array import require, require_nchw
from runner.ops.conv import Conv2D
from runner.ops.elementwise_blocks import ELEMENT_FLOPS
from runner.ops.forms import batchnorm as row_forms
from runner.ops.matrices import BiasAdd
from runner.types import TensorType

__all__ = ["BatchNorm", "BatchNormGrad"]

BLOCK = 1 << 19  # bytes


@family
class Normalization(Primitive):
    """Base of both. `is_training`: use mean and variance of the batch, else the operands."""

    needs_elements: ClassVar = True

    is_training: bool = False
    epsilon: float = 1e-5

    def __post_init__(self) -> None:
        require(0.0 < self.epsilon <= 1.0, "epsilon out of range", given=self.epsilon, allowed="above 0, at most 1")


@primitive
class BatchNorm(Normalization):
    """y = (x - mean) / sqrt(variance + epsilon) * scale + bias, for each channel: (x, scale, bias, mean, variance).

    x is (N, C) or (N, C, H, W), the others (C,). Outputs: y; the new moving mean and variance, in which the batch has
    the weight `momentum` (without `is_training`: the operands); and the mean and 1 / sqrt(variance + epsilon) used for
    y. y uses the biased variance, the moving variance n / (n - 1) of it, as in cuDNN, Ascend, MindSpore 2 and PyTorch.
    The variance of a single element is 0, so that a last batch of one sample does not end a training.
    Only y has a gradient, with respect to x, scale and bias.
    """

    flops_each: ClassVar = 7  # mean 1, variance 3, normalised 2, scaled and shifted 2, rounded
    masters: ClassVar = (1, 2, 3, 4)
    without_gradient: ClassVar = (1, 2, 3, 4)

    momentum: float = 0.1
    data_format: InitVar[str] = "NCHW"

    def __post_init__(self, data_format: str) -> None:
        super().__post_init__()
        require_nchw(data_format)
        require(0.0 <= self.momentum <= 1.0, "momentum out of range", given=self.momentum, allowed="0 to 1")

    def infer(
        self, x: TensorType, scale: TensorType, bias: TensorType, mean: TensorType, variance: TensorType
    ) -> tuple[TensorType, ...]:
        check_channels(x, scale=scale, bias=bias, mean=mean, variance=variance)
        return x, mean, variance, mean, variance

    def kernel(
        self, x: np.ndarray, scale: np.ndarray, bias: np.ndarray, mean: np.ndarray, variance: np.ndarray
    ) -> tuple[np.ndarray, ...]:
        if not self.is_training:
            inverse = 1 / np.sqrt(variance + self.epsilon)
            centred = channel_rows(x) - mean[:, None]
            return from_channel_rows(scaled(centred, scale * inverse, bias), x), mean, variance, mean, inverse
        rows = channel_rows(x)
        y, batch_mean, biased, count = np.empty_like(rows), np.empty_like(mean), np.empty_like(mean), rows.shape[1]

        def normalize(part: slice) -> None:
            batch_mean[part] = row_sums(rows[part]) / count
            centred = np.subtract(rows[part], batch_mean[part, None], out=y[part])
            biased[part] = row_dots(centred, centred) / count
            scaled(centred, scale[part] / np.sqrt(biased[part] + self.epsilon), bias[part])

        compute_parts(normalize, cache_blocks(rows), ELEMENT_FLOPS * rows.size)
        unbiased = biased * (count / max(count - 1, 1))
        moving = self._moving_average(mean, batch_mean), self._moving_average(variance, unbiased)
        return from_channel_rows(y, x), *moving, batch_mean, 1 / np.sqrt(biased + self.epsilon)

    def _moving_average(self, moving: np.ndarray, batch: np.ndarray) -> np.ndarray:
        return moving * (1.0 - self.momentum) + batch * self.momentum

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        x, scale = inputs[:2]
        dx, dscale, dbias = BatchNormGrad(self.is_training, self.epsilon)(douts[0], x, scale, *outputs[3:])
        return dx, dscale, dbias, None, None

    def fold_into(
        self, before: Primitive, weight: np.ndarray, known: Sequence[np.ndarray | None]
    ) -> tuple[np.ndarray, Primitive, np.ndarray] | None:
        """Fold into a convolution by scaling its filters; computed in float64 and rounded once."""
        values = [np.float64(array) for array in known if array is not None]
        if self.is_training or not isinstance(before, Conv2D) or len(values) < len(known):
            return None
        scale, bias, mean, variance = values
        factor = scale / np.sqrt(variance + self.epsilon)
        scaled, shift = weight * factor[:, None, None, None], bias - mean * factor
        return scaled.astype(weight.dtype), BiasAdd(), shift.astype(weight.dtype)

    def lower(self, b: Builder, x: str, scale: str, bias: str, mean: str, variance: str) -> tuple[str, ...]:
        """Training uses elementary operators: CUDA has no BatchNormalization with `training_mode`."""
        if not self.is_training:
            y = b.node("BatchNormalization", (x, scale, bias, mean, variance), epsilon=self.epsilon)
            return y, mean, variance, mean, row_forms.inverse_deviation(b, x, variance, self.epsilon)
        axes, count = b.const(reduced_axes(b.type(x))), channel_size(b.type(x))
        batch_mean = b.node("ReduceMean", (x, axes), keepdims=0)
        centred = b.node("Sub", (x, per_channel(b, batch_mean, x)))
        spread = b.node("ReduceMean", (b.node("Mul", (centred, centred)), axes), keepdims=0)
        inverse = row_forms.inverse_deviation(b, x, spread, self.epsilon)
        y = b.node("Mul", (centred, per_channel(b, b.node("Mul", (scale, inverse)), x)))
        unbiased = b.node("Mul", (spread, b.const(count / max(count - 1, 1), like=x)))
        new_mean = row_forms.moving_average(b, mean, batch_mean, self.momentum)
        new_variance = row_forms.moving_average(b, variance, unbiased, self.momentum)
        return b.node("Add", (y, per_channel(b, bias, x))), new_mean, new_variance, batch_mean, inverse

    def forms(self, x: TensorType, *channels: TensorType) -> Sequence[Form]:
        return *row_forms.forms(self, self.momentum, x), Form("plain", self.lower, penalty=x.size)


@primitive
class BatchNormGrad(Normalization):
    """Gradients of BatchNorm with respect to x, scale and bias: (dout, x, scale, reserve_space_1, reserve_space_2).

    The reserve spaces are the last two outputs of BatchNorm: mean and 1 / sqrt(variance + epsilon).
    """

    flops_each: ClassVar = 11
    masters: ClassVar = (2, 3, 4)

    def infer(
        self,
        dout: TensorType,
        x: TensorType,
        scale: TensorType,
        reserve_space_1: TensorType,
        reserve_space_2: TensorType,
    ) -> tuple[TensorType, TensorType, TensorType]:
        check_channels(x, scale=scale, reserve_space_1=reserve_space_1, reserve_space_2=reserve_space_2)
        require(dout == x, "dout must have the type of x", dout=dout, x=x)
        return x, scale, scale

    def kernel(self, *operands: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        dout, x, scale, mean, inverse = operands
        douts, rows = channel_rows(dout), channel_rows(x)
        dx, along, dbias = np.empty_like(rows), np.empty_like(scale), np.empty_like(scale)

        def differentiate(part: slice) -> None:
            centred = np.subtract(rows[part], mean[part, None], out=dx[part])
            dbias[part], along[part] = row_sums(douts[part]), row_dots(douts[part], centred)
            if self.is_training:
                share = inverse[part] ** 2 / -rows.shape[1]
                scaled(centred, along[part] * share, dbias[part] / -rows.shape[1])
                centred += douts[part]
            np.multiply(centred if self.is_training else douts[part], (scale * inverse)[part, None], out=dx[part])

        compute_parts(differentiate, cache_blocks(rows), ELEMENT_FLOPS * rows.size)
        return from_channel_rows(dx, x), along * inverse, dbias

    def lower(
        self, b: Builder, dout: str, x: str, scale: str, reserve_space_1: str, reserve_space_2: str
    ) -> tuple[str, str, str]:
        axes, inverse = b.const(reduced_axes(b.type(x))), reserve_space_2
        centred = b.node("Sub", (x, per_channel(b, reserve_space_1, x)))
        dbias = b.node("ReduceSum", (dout, axes), keepdims=0)
        along = b.node("ReduceSum", (b.node("Mul", (dout, centred)), axes), keepdims=0)
        dscale = b.node("Mul", (along, inverse))
        dx = dout
        if self.is_training:
            share = b.const(1.0 / channel_size(b.type(x)), like=x)
            slope = b.node("Mul", (b.node("Mul", (dscale, inverse)), share))
            dx = b.node("Sub", (dx, per_channel(b, b.node("Mul", (dbias, share)), x)))
            dx = b.node("Sub", (dx, b.node("Mul", (centred, per_channel(b, slope, x)))))
        return b.node("Mul", (dx, per_channel(b, b.node("Mul", (scale, inverse)), x))), dscale, dbias

    def forms(self, dout: TensorType, x: TensorType, *channels: TensorType) -> Sequence[Form]:
        return *row_forms.gradient_forms(self, x), Form("plain", self.lower, penalty=x.size)


def check_channels(x: TensorType, **channels: TensorType) -> None:
    """Raise ShapeError unless x is (N, C) or (N, C, H, W) of floats, and the others are (C,) of the same element type,
    or of Float32 if x is Float16.
    """
    require(x.ndim in (2, 4) and x.dtype.is_float, "needs floats (N, C) or (N, C, H, W)", x=x)
    for name, given in channels.items():
        expected = x.with_shape(x.shape[1])
        is_master = x.dtype is dt.float16 and given == expected.with_dtype(dt.float32)
        fits, what = given == expected or is_master, f"{name} needs one element per channel of x"
        require(fits, what, x=x, given=given, expected=expected)


def channel_rows(x: np.ndarray) -> np.ndarray:
    """(N, C, ...) as rows (C, elements of the channel); no copy in batch-last memory order (see window.py)."""
    batch_last = x.transpose(*range(1, x.ndim), 0)
    return np.ascontiguousarray(batch_last).reshape(x.shape[1], -1)


def from_channel_rows(rows: np.ndarray, x: np.ndarray) -> np.ndarray:
    """A view of channel rows in the shape of x."""
    return rows.reshape(*x.shape[1:], len(x)).transpose(-1, *range(x.ndim - 1))


def cache_blocks(rows: np.ndarray) -> list[slice]:
    """Blocks of rows that are small enough to stay in the cache between passes."""
    return slices(len(rows), max(1, block_length(BLOCK) // rows[0].nbytes))


def row_sums(rows: np.ndarray) -> np.ndarray:
    """Sum of each row, by a scalar product, which is five times faster than numpy's sum."""
    return row_dots(rows, np.broadcast_to(np.ones(rows.shape[1], rows.dtype), rows.shape))


def row_dots(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Scalar product of each pair of rows: the bits of one do not depend on the others."""
    result: np.ndarray = a[:, None, :] @ b[:, :, None]
    return result[:, 0, 0]


def scaled(rows: np.ndarray, factor: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Each row times its factor plus its shift, in place."""
    rows *= factor[:, None]
    rows += shift[:, None]
    return rows


def reduced_axes(x: TensorType) -> list[int]:
    """All axes except the channels."""
    return [axis for axis in range(x.ndim) if axis != 1]


def channel_size(x: TensorType) -> int:
    """Number of elements of each channel."""
    return x.size // x.shape[1]


def per_channel(b: Builder, channels: str, x: str) -> str:
    """(C,) reshaped to broadcast against x."""
    type = b.type(x)
    return channels if type.ndim == 2 else b.reshape(channels, (1, type.shape[1], 1, 1))
