"""Rules of normalizations and of dropout, which behave as in training while the network is trained."""

import math
from typing import Any

import numpy as np

from runner import ops
from runner.core.values import Parameter, Tensor, Value
from runner.importer.node_call import NodeCall, onnx_operator
from runner.importer.rules.elementwise import per_channel, reshaped


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
