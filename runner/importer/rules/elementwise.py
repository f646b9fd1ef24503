"""Rules of operators on single elements: arithmetic, comparison, logic, functions, activations."""

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from runner import ops
from runner.core.values import Tensor, Value
from runner.importer.node_call import NodeCall, onnx_operator
from runner.types import Shape

# Shapes of values in rules: broadcasting, reshaping without an operator where nothing changes.


def reshaped(x: Value, shape: Shape) -> Value:
    """x in this shape, without an operator if it has it."""
    return x if x.shape == shape else ops.Reshape()(x, shape)


def spread(x: Value, shape: Shape) -> Value:
    """x broadcast to a shape."""
    if x.shape == shape:
        return x
    return ops.BroadcastTo(shape)(reshaped(x, (1,) * (len(shape) - x.ndim) + x.shape))


def swapped(x: Value) -> Value:
    """x with its last two axes exchanged."""
    last = x.ndim - 1
    return ops.Transpose()(x, (*range(last - 1), last, last - 1))


def per_channel(channels: Value, ndim: int) -> Value:
    """(C,) in a shape that broadcasts against (N, C, ...) with `ndim` axes."""
    return reshaped(channels, (channels.size, *(1 for _ in range(ndim - 2))))


# Arithmetic, comparison, logic, functions.

UNARY: dict[str, Callable[[], Any]] = {
    **{name: getattr(ops, name) for name in ("Abs", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor", "Log", "Neg")},
    **{name: getattr(ops, name) for name in ("Reciprocal", "Round", "Sign", "Sin", "Sinh", "Sqrt", "Tan", "Tanh")},
    **{name: getattr(ops, name) for name in ("Acosh", "Asin", "Asinh", "Atan", "Atanh", "Identity")},
    "Acos": ops.ACos,
    "IsNaN": ops.IsNan,
    "Not": ops.LogicalNot,
    "BitwiseNot": ops.Invert,
}
BINARY: dict[str, Callable[[], Any]] = {
    **{name: getattr(ops, name) for name in ("Add", "Sub", "Mul", "Equal", "Greater", "Less")},
    "GreaterOrEqual": ops.GreaterEqual,
    "LessOrEqual": ops.LessEqual,
    "And": ops.LogicalAnd,
    "Or": ops.LogicalOr,
    **{name: getattr(ops, name) for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")},
}
POWERS: dict[float, Callable[[], Any]] = {0.5: ops.Sqrt, 2.0: ops.Square, -1.0: ops.Reciprocal}


def declare(name: str, kind: Callable[[], Any], operands: int) -> None:
    """Declare the rule of an ONNX operator that is one of ours, of one or two operands."""

    def unary(call: NodeCall, x: Value) -> Value:
        result: Value = kind()(x)
        return result

    def binary(call: NodeCall, a: Value, b: Value) -> Value:
        result: Value = kind()(*call.broadcast(a, b))
        return result

    rule = unary if operands == 1 else binary
    rule.__doc__ = f"{kind.__name__} of each element{'' if operands == 1 else ', with broadcasting'}."
    onnx_operator(name)(rule)


for _name, _kind in UNARY.items():
    declare(_name, _kind, 1)
for _name, _kind in BINARY.items():
    declare(_name, _kind, 2)


@onnx_operator("Pow")
def power(call: NodeCall, x: Value, y: Value) -> Value:
    """x to the power y, with broadcasting, in the type of x."""
    known = call.known("y")
    if known is not None and known.size == 1 and x.dtype.is_float and y.ndim <= x.ndim:
        kind = POWERS.get(known.item())
        if kind is not None:
            return kind()(x)  # type: ignore[no-any-return]
    if y.dtype.is_float and not x.dtype.is_float:  # a fraction of a whole number is cut once, at the end
        return ops.Cast()(ops.Pow()(ops.Cast()(x, y.dtype), y), x.dtype)
    return ops.Pow()(x, y if y.dtype is x.dtype else ops.Cast()(y, x.dtype))


@onnx_operator("Div")
def div(call: NodeCall, a: Value, b: Value) -> Value:
    """a / b; for whole numbers the quotient towards zero."""
    return (ops.Div() if a.dtype.is_float else ops.TruncateDiv())(*call.broadcast(a, b))


@onnx_operator("Mod")
def mod(call: NodeCall, a: Value, b: Value) -> Value:
    """The remainder with the sign of b; with fmod=1, that of a."""
    return (ops.TruncateMod() if call.attribute("fmod", 0) else ops.FloorMod())(a, b)


@onnx_operator("Xor")
def xor(call: NodeCall, a: Value, b: Value) -> Value:
    """Whether one of two is true."""
    return ops.NotEqual()(a, b)


@onnx_operator("IsInf")
def is_inf(call: NodeCall, x: Value) -> Value:
    """Whether each element is infinite."""
    call.choice("detect_negative", 1, 1)
    call.choice("detect_positive", 1, 1)
    return ops.IsInf()(x)


@onnx_operator("Where")
def where(call: NodeCall, condition: Value, x: Value, y: Value) -> Value:
    """x where the condition holds, else y, with broadcasting."""
    shape = np.broadcast_shapes(condition.shape, x.shape, y.shape)
    return ops.Select()(*(spread(value, shape) for value in (condition, x, y)))


def _folded(name: str, kind: Callable[[], Any]) -> None:
    def rule(call: NodeCall, *values: Value) -> Value:
        return reduce(kind(), values)

    rule.__doc__ = f"{kind.__name__} of any number of operands, with broadcasting."
    onnx_operator(name)(rule)


for _name, _kind in {"Sum": ops.Add, "Max": ops.Maximum, "Min": ops.Minimum}.items():
    _folded(_name, _kind)


@onnx_operator("Mean")
def mean(call: NodeCall, *values: Value) -> Value:
    """The mean of any number of operands, with broadcasting."""
    return reduce(ops.Add(), values) * (1.0 / len(values))


@onnx_operator("Clip")
def clip(call: NodeCall, x: Value, low: Value | None = None, high: Value | None = None) -> Value:
    """Each element within bounds."""
    bounds = [call.setting(key, call.known(k)) for key, k in (("min", 1), ("max", 2))]
    if bounds == [0, 6] and x.dtype.is_float:
        return ops.ReLU6()(x)
    for given, known, kind in zip((low, high), bounds, (ops.Maximum, ops.Minimum), strict=True):
        if known is None and given is not None:
            x = kind()(x, call.fitted(given, x.shape))
        elif known is not None and (np.ndim(known) or (np.isfinite(known) and abs(known) < np.finfo(np.float32).max)):
            x = kind()(x, Tensor(np.asarray(known, x.dtype.numpy)))
    return x


# Activation functions.

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
        return ops.PReLU()(x, reshaped(slope, (slope.size,)))
    return _two_sided(x, x * slope)


@onnx_operator("ThresholdedRelu")
def thresholded_relu(call: NodeCall, x: Value) -> Value:
    """x where it is above alpha, else 0."""
    return ops.Select()(ops.Greater()(x, call.attribute("alpha", 1.0)), x, ops.ZerosLike()(x))


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
        return ops.HSigmoid()(x)
    return ops.Minimum()(ops.Maximum()(x * alpha + beta, 0.0), 1.0)


@onnx_operator("Swish")
def swish(call: NodeCall, x: Value) -> Value:
    """x * sigmoid(alpha * x)."""
    return x * ops.Sigmoid()(x * call.attribute("alpha", 1.0))


@onnx_operator("com.microsoft.QuickGelu")
def quick_gelu(call: NodeCall, x: Value) -> Value:
    """x * sigmoid(alpha * x)."""
    return x * ops.Sigmoid()(x * call.attribute("alpha", 1.702))


@onnx_operator("Gelu")
def gelu(call: NodeCall, x: Value) -> Value:
    """Gaussian error linear unit: exact with Erf, or by tanh."""
    if call.choice("approximate", "none", "none", "tanh") == "tanh":
        return ops.GeLU()(x)
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
    return ops.Select()(ops.Less()(x, -limit), x + bias, above)


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
        result = kind(call.axis(-1, x.ndim))(x)
        return result
    axis = call.axis(1, x.ndim)
    rows = int(np.prod(x.shape[:axis], dtype=np.int64))
    result = kind(-1)(reshaped(x, (rows, x.size // rows)))
    return reshaped(result, x.shape)


def _two_sided(x: Value, negative: Value) -> Value:
    return ops.Select()(ops.Greater()(x, 0.0), x, negative)


def _expm1_below(x: Value) -> Value:
    """exp(x) - 1 where x is negative: no overflow where x is not."""
    return ops.Expm1()(ops.Minimum()(x, 0.0))


def _exact_gelu(x: Value) -> Value:
    return x * 0.5 * (ops.Erf()(x * Tensor(np.asarray(np.sqrt(0.5), x.dtype.numpy))) + 1.0)
