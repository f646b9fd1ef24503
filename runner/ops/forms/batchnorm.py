"""Batch normalisation in batch-last layout: every channel is one row of memory, with as few passes as possible.

LayerNormalization of onnxruntime normalises a row in one pass, accurately for any mean; a convolution of each channel
with one number scales and shifts rows in one pass, where Mul and Add take two.
"""

from functools import partial
from typing import Protocol

import numpy as np

from runner.core.lowering import FUSED, LAST, Builder, Form
from runner.ops.forms.columns import as_rows, suits_batch_last
from runner.types import TensorType


class BatchNormAttributes(Protocol):
    """The attributes of BatchNorm and BatchNormGrad that are used here."""

    @property
    def is_training(self) -> bool: ...
    @property
    def epsilon(self) -> float: ...


def forms(op: BatchNormAttributes, momentum: float, x: TensorType) -> tuple[Form, ...]:
    """The forms of BatchNorm, the fastest first."""
    lower = partial(forward if op.is_training else inference, op, momentum)
    return (Form("rows", lower, (LAST,), (LAST,)),) if suits_batch_last(x) else ()


def gradient_forms(op: BatchNormAttributes, x: TensorType) -> tuple[Form, ...]:
    """The forms of BatchNormGrad, the fastest first."""
    return (
        (Form("rows", partial(gradient, op), (LAST, LAST), (LAST,)),) if op.is_training and suits_batch_last(x) else ()
    )


def forward(
    op: BatchNormAttributes, momentum: float, b: Builder, x: str, scale: str, bias: str, mean: str, variance: str
) -> tuple[str, ...]:
    """BatchNorm in training."""
    channels, count = _extent(b, x)
    normalized, batch_mean, inverse = _normalized(b, x, op.epsilon)
    batch_mean, inverse = b.reshape(batch_mean, (channels,)), b.reshape(inverse, (channels,))
    spread = b.node("Sub", (b.node("Reciprocal", (b.node("Mul", (inverse, inverse)),)), b.const(op.epsilon, like=x)))
    unbiased = b.node("Mul", (spread, b.const(count / max(count - 1, 1), like=x)))
    averages = moving_average(b, mean, batch_mean, momentum), moving_average(b, variance, unbiased, momentum)
    return (
        _shape_like(b, _scale_and_shift(b, normalized, scale, bias, (channels, count)), x),
        *averages,
        batch_mean,
        inverse,
    )


def inference(
    op: BatchNormAttributes, momentum: float, b: Builder, x: str, scale: str, bias: str, mean: str, variance: str
) -> tuple[str, ...]:
    """BatchNorm with given statistics."""
    inverse = inverse_deviation(b, x, variance, op.epsilon)
    rows = b.reshape(as_rows(b, x, _extent(b, x)[0]), (1, *_extent(b, x)))
    result = b.node("BatchNormalization", (rows, scale, bias, mean, variance), epsilon=op.epsilon)
    return _shape_like(b, result, x), mean, variance, mean, inverse


def gradient(
    op: BatchNormAttributes, b: Builder, dout: str, x: str, scale: str, mean: str, inverse: str
) -> tuple[str, str, str]:
    """BatchNormGrad: dx = scale * inverse * (dout - mean of dout - normalized * mean of (dout * normalized))."""
    channels, count = _extent(b, x)
    rows, normalized = as_rows(b, dout, channels), _normalized(b, x, op.epsilon)[0]
    dbias = b.node("ReduceSum", (rows, b.const([1])), keepdims=0)
    pair = b.reshape(rows, (channels, 1, count)), b.reshape(normalized, (channels, 1, count))
    dscale = b.reshape(b.node("FusedMatMul", pair, FUSED, transB=1), (channels,))
    slope = b.node("Mul", (scale, inverse))
    share = b.node("Mul", (slope, b.const(-1.0 / count, like=x)))
    rest = _scale_and_shift(
        b, normalized, b.node("Mul", (share, dscale)), b.node("Mul", (share, dbias)), (channels, count)
    )
    operands = b.reshape(rows, (1, channels, 1, count)), b.reshape(slope, (channels, 1, 1, 1)), "", rest
    return _shape_like(b, b.node("FusedConv", operands, FUSED, group=channels), x), dscale, dbias


def inverse_deviation(b: Builder, x: str, variance: str, epsilon: float) -> str:
    """1 / sqrt(variance + epsilon), (C,) in the element type of x."""
    deviation = b.node("Sqrt", (b.node("Add", (variance, b.const(epsilon, like=x))),))
    return b.node("Div", (b.const(1.0, like=x), deviation))


def moving_average(b: Builder, moving: str, batch: str, momentum: float) -> str:
    """The moving mean or variance (C,) after a batch, whose weight is `momentum`."""
    kept = b.node("Mul", (moving, b.const(1.0 - momentum, like=moving)))
    return b.node("Add", (kept, b.node("Mul", (batch, b.const(momentum, like=moving)))))


def _extent(b: Builder, x: str) -> tuple[int, int]:
    """Number of channels, and of elements per channel."""
    channels = b.type(x).shape[1]
    return channels, b.type(x).size // channels


def _normalized(b: Builder, x: str, epsilon: float) -> tuple[str, ...]:
    """(x - mean) / sqrt(variance + epsilon) as rows, the mean, and 1 / sqrt(variance + epsilon)."""
    channels, count = _extent(b, x)
    ones = b.const(np.ones(count, np.float32))
    return b.nodes("LayerNormalization", (as_rows(b, x, channels), ones), 3, axis=1, epsilon=epsilon)


def _scale_and_shift(b: Builder, rows: str, scale: str, shift: str, extent: tuple[int, int]) -> str:
    """Each row times its scale plus its shift, as an image (1, C, 1, elements)."""
    channels, count = extent
    image = b.reshape(rows, (1, channels, 1, count))
    return b.node("Conv", (image, b.reshape(scale, (channels, 1, 1, 1)), shift), group=channels)


def _shape_like(b: Builder, rows: str, x: str) -> str:
    """Rows in the batch-last shape of x."""
    shape = b.type(x).shape
    return b.reshape(rows, (*shape[1:], shape[0]))
