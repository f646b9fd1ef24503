"""Rules of activation functions."""

from collections.abc import Callable
from typing import Any

import numpy as np

from runner import ops
from runner.core.values import Tensor, Value
from runner.importer.broadcasting import reshaped
from runner.importer.node_call import NodeCall
from runner.importer.operators.arithmetic import declare
from runner.importer.table import onnx_operator

PLAIN: dict[str, Callable[[], Any]] = {
    "Relu": ops.ReLU,
    "Sigmoid": ops.Sigmoid,
    "Softplus": ops.Softplus,
    "Softsign": ops.Softsign,
    "HardSwish": ops.HSwish,
    "Mish": ops.Mish,
}
SELU_ALPHA, SELU_GAMMA = 1.6732632, 1.0507010


for _name, _kind in PLAIN.items():
    declare(_name, _kind, 1)


@onnx_operator("LeakyRelu")
def leaky_relu(call: NodeCall, x: Value) -> Value:
    """x where it is positive, else alpha * x."""
    return _two_sided(x, x * call.attribute("alpha", 0.01))


@onnx_operator("PRelu")
def prelu(call: NodeCall, x: Value, slope: Value) -> Value:
    """x where it is positive, else slope * x; the slope is one number, or one for each channel."""
    if x.ndim > 1 and slope.size in (1, x.shape[1]) and slope.size == max(slope.shape[:1], default=1):
        result: Value = ops.PReLU()(x, reshaped(slope, (slope.size,)))
        return result
    return _two_sided(x, x * slope)


@onnx_operator("ThresholdedRelu")
def thresholded_relu(call: NodeCall, x: Value) -> Value:
    """x where it is above alpha, else 0."""
    result: Value = ops.Select()(ops.Greater()(x, call.attribute("alpha", 1.0)), x, ops.ZerosLike()(x))
    return result


@onnx_operator("Elu")
def elu(call: NodeCall, x: Value) -> Value:
    """x where it is positive, else alpha * (exp(x) - 1)."""
    return _two_sided(x, _expm1_below(x) * call.attribute("alpha", 1.0))


@onnx_operator("Celu")
def celu(call: NodeCall, x: Value) -> Value:
    """x where it is positive, else alpha * (exp(x / alpha) - 1)."""
    alpha = call.attribute("alpha", 1.0)
    return _two_sided(x, _expm1_below(x * (1.0 / alpha)) * alpha)


@onnx_operator("Selu")
def selu(call: NodeCall, x: Value) -> Value:
    """gamma * x where x is positive, else gamma * alpha * (exp(x) - 1)."""
    negative = _expm1_below(x) * call.attribute("alpha", SELU_ALPHA)
    gamma: float = call.attribute("gamma", SELU_GAMMA)
    return _two_sided(x, negative) * gamma


@onnx_operator("HardSigmoid")
def hard_sigmoid(call: NodeCall, x: Value) -> Value:
    """alpha * x + beta, within 0 and 1."""
    alpha, beta = call.attribute("alpha", 0.2), call.attribute("beta", 0.5)
    if np.isclose(alpha, 1 / 6) and beta == 0.5:
        return ops.HSigmoid()(x)  # type: ignore[no-any-return]
    result: Value = ops.Minimum()(ops.Maximum()(x * alpha + beta, 0.0), 1.0)
    return result


@onnx_operator("Swish")
def swish(call: NodeCall, x: Value) -> Value:
    """x * sigmoid(alpha * x)."""
    result: Value = x * ops.Sigmoid()(x * call.attribute("alpha", 1.0))
    return result


@onnx_operator("com.microsoft.QuickGelu")
def quick_gelu(call: NodeCall, x: Value) -> Value:
    """x * sigmoid(alpha * x)."""
    result: Value = x * ops.Sigmoid()(x * call.attribute("alpha", 1.702))
    return result


@onnx_operator("Gelu")
def gelu(call: NodeCall, x: Value) -> Value:
    """Gaussian error linear unit: exact with Erf, or by tanh."""
    if call.choice("approximate", "none", "none", "tanh") == "tanh":
        return ops.GeLU()(x)  # type: ignore[no-any-return]
    return _exact_gelu(x)


@onnx_operator("com.microsoft.Gelu")
def microsoft_gelu(call: NodeCall, x: Value) -> Value:
    """Gaussian error linear unit, exact with Erf."""
    return _exact_gelu(x)


@onnx_operator("Shrink")
def shrink(call: NodeCall, x: Value) -> Value:
    """x + bias below -lambd, x - bias above lambd, and 0 between."""
    bias, limit, zero = call.attribute("bias", 0.0), call.attribute("lambd", 0.5), ops.ZerosLike()(x)
    above = ops.Select()(ops.Greater()(x, limit), x - bias, zero)
    result: Value = ops.Select()(ops.Less()(x, -limit), x + bias, above)
    return result


@onnx_operator("Softmax")
def softmax(call: NodeCall, x: Value) -> Value:
    """Softmax along one axis; before opset 13 over all axes from `axis` on."""
    return _along_axis(call, x, ops.Softmax)


@onnx_operator("LogSoftmax")
def log_softmax(call: NodeCall, x: Value) -> Value:
    """Logarithm of Softmax along one axis; before opset 13 over all axes from `axis` on."""
    return _along_axis(call, x, ops.LogSoftmax)


def _along_axis(call: NodeCall, x: Value, kind: Callable[[int], Any]) -> Value:
    result: Value
    if call.opset >= 13:
        result = kind(call.attribute("axis", -1))(x)
        return result
    axis = call.attribute("axis", 1) % x.ndim
    rows = int(np.prod(x.shape[:axis], dtype=np.int64))
    result = kind(-1)(reshaped(x, (rows, x.size // rows)))
    return reshaped(result, x.shape)


def _two_sided(x: Value, negative: Value) -> Value:
    result: Value = ops.Select()(ops.Greater()(x, 0.0), x, negative)
    return result


def _expm1_below(x: Value) -> Value:
    """exp(x) - 1 where x is negative: no overflow where x is not."""
    result: Value = ops.Expm1()(ops.Minimum()(x, 0.0))
    return result


def _exact_gelu(x: Value) -> Value:
    result: Value = x * 0.5 * (ops.Erf()(x * Tensor(np.asarray(np.sqrt(0.5), x.dtype.numpy))) + 1.0)
    return result
