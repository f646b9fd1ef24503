"""Batch normalisation batch last: every channel is one row of memory, and nothing passes over the rows without need.

onnxruntime's LayerNormalization normalises a row in one pass and without loss of digits, wherever its mean is;
a convolution of each channel with one number scales and shifts rows in one pass, where Mul and Add take two.
"""

from functools import partial
from typing import Protocol

import numpy as np

from runner import dtype as dt
from runner.core.lowering import FUSED, LAST, Builder, Form
from runner.ops.forms.columns import as_rows, pays
from runner.types import TensorType


class Settings(Protocol):
    """The attributes of the operators that are needed here."""

    @property
    def is_training(self) -> bool: ...
    @property
    def epsilon(self) -> float: ...


def forms(op: Settings, momentum: float, x: TensorType) -> tuple[Form, ...]:
    """The forms of BatchNorm, the fastest first."""
    lower = partial(forward if op.is_training else inference, op, momentum)
    return (Form("rows", lower, (LAST,), (LAST,)),) if _gains(x) else ()


def gradient_forms(op: Settings, x: TensorType) -> tuple[Form, ...]:
    """The forms of BatchNormGrad, the fastest first."""
    return (Form("rows", partial(gradient, op), (LAST, LAST), (LAST,)),) if op.is_training and _gains(x) else ()


def _gains(x: TensorType) -> bool:
    return x.dtype is dt.float32 and pays(x.shape[0], x.dtype.size)


def forward(
    op: Settings, momentum: float, b: Builder, x: str, scale: str, bias: str, mean: str, variance: str
) -> tuple[str, ...]:
    """BatchNorm in training."""
    channels, count = _extent(b, x)
    normalized, middle, inverse = _normalized(b, x, op.epsilon)
    middle, inverse = b.reshape(middle, (channels,)), b.reshape(inverse, (channels,))
    spread = b.node("Sub", (b.node("Reciprocal", (b.node("Mul", (inverse, inverse)),)), b.const(op.epsilon, like=x)))
    unbiased = b.node("Mul", (spread, b.const(count / max(count - 1, 1), like=x)))
    averages = moved(b, mean, middle, momentum), moved(b, variance, unbiased, momentum)
    return _lying(b, _scaled(b, normalized, scale, bias, (channels, count)), x), *averages, middle, inverse


def inference(
    op: Settings, momentum: float, b: Builder, x: str, scale: str, bias: str, mean: str, variance: str
) -> tuple[str, ...]:
    """BatchNorm with given statistics."""
    inverse = inverse_deviation(b, x, variance, op.epsilon)
    rows = b.reshape(as_rows(b, x, _extent(b, x)[0]), (1, *_extent(b, x)))
    made = b.node("BatchNormalization", (rows, scale, bias, mean, variance), epsilon=op.epsilon)
    return _lying(b, made, x), mean, variance, mean, inverse


def gradient(op: Settings, b: Builder, dout: str, x: str, scale: str, mean: str, inverse: str) -> tuple[str, str, str]:
    """BatchNormGrad: dx = scale * inverse * (dout - mean of dout - normalized * mean of (dout * normalized))."""
    channels, count = _extent(b, x)
    rows, normalized = as_rows(b, dout, channels), _normalized(b, x, op.epsilon)[0]
    dbias = b.node("ReduceSum", (rows, b.const([1])), keepdims=0)
    pair = b.reshape(rows, (channels, 1, count)), b.reshape(normalized, (channels, 1, count))
    dscale = b.reshape(b.node("FusedMatMul", pair, FUSED, transB=1), (channels,))
    steep = b.node("Mul", (scale, inverse))
    share = b.node("Mul", (steep, b.const(-1.0 / count, like=x)))
    rest = _scaled(b, normalized, b.node("Mul", (share, dscale)), b.node("Mul", (share, dbias)), (channels, count))
    operands = b.reshape(rows, (1, channels, 1, count)), b.reshape(steep, (channels, 1, 1, 1)), "", rest
    return _lying(b, b.node("FusedConv", operands, FUSED, group=channels), x), dscale, dbias


def inverse_deviation(b: Builder, x: str, variance: str, epsilon: float) -> str:
    """1 / sqrt(variance + epsilon), (C,) in the element type of x."""
    deviation = b.node("Sqrt", (b.node("Add", (variance, b.const(epsilon, like=x))),))
    return b.node("Div", (b.const(1.0, like=x), deviation))


def moved(b: Builder, moving: str, batch: str, momentum: float) -> str:
    """The moving mean or variance (C,) after a batch, which weighs `momentum`."""
    kept = b.node("Mul", (moving, b.const(1.0 - momentum, like=moving)))
    return b.node("Add", (kept, b.node("Mul", (batch, b.const(momentum, like=moving)))))


def _extent(b: Builder, x: str) -> tuple[int, int]:
    """Number of channels, and of elements in each of them."""
    channels = b.type(x).shape[1]
    return channels, b.type(x).size // channels


def _normalized(b: Builder, x: str, epsilon: float) -> tuple[str, ...]:
    """(x - mean) / sqrt(variance + epsilon) as rows, the mean, and 1 / sqrt(variance + epsilon)."""
    channels, count = _extent(b, x)
    ones = b.const(np.ones(count, np.float32))
    return b.nodes("LayerNormalization", (as_rows(b, x, channels), ones), 3, axis=1, epsilon=epsilon)


def _scaled(b: Builder, rows: str, scale: str, shift: str, extent: tuple[int, int]) -> str:
    """Each row times its scale plus its shift, as an image (1, C, 1, elements)."""
    channels, count = extent
    image = b.reshape(rows, (1, channels, 1, count))
    return b.node("Conv", (image, b.reshape(scale, (channels, 1, 1, 1)), shift), group=channels)


def _lying(b: Builder, rows: str, x: str) -> str:
    """Rows in the shape in which x lies."""
    shape = b.type(x).shape
    return b.reshape(rows, (*shape[1:], shape[0]))
