"""Shapes of values in rules: broadcasting, reshaping without an operator where nothing changes."""

from runner import ops
from runner.core.values import Value
from runner.types import Shape


def reshaped(x: Value, shape: Shape) -> Value:
    """x in this shape, without an operator if it has it."""
    result: Value = x if x.shape == shape else ops.Reshape()(x, shape)
    return result


def spread(x: Value, shape: Shape) -> Value:
    """x broadcast to a shape."""
    if x.shape == shape:
        return x
    result: Value = ops.BroadcastTo(shape)(reshaped(x, (1,) * (len(shape) - x.ndim) + x.shape))
    return result


def swapped(x: Value) -> Value:
    """x with its last two axes exchanged."""
    last = x.ndim - 1
    result: Value = ops.Transpose()(x, (*range(last - 1), last, last - 1))
    return result


def per_channel(channels: Value, ndim: int) -> Value:
    """(C,) in a shape that broadcasts against (N, C, ...) with `ndim` axes."""
    return reshaped(channels, (channels.size, *(1 for _ in range(ndim - 2))))
