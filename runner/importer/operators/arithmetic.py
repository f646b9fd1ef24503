"""Rules of operators on single elements: arithmetic, comparison, logic, functions."""

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from runner import ops
from runner.core.values import Parameter, Tensor, Value
from runner.importer.broadcasting import spread
from runner.importer.node_call import NodeCall
from runner.importer.table import onnx_operator

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
        result: Value = kind()(a, b)
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
    """x to the power y, with broadcasting."""
    known = y.asnumpy() if isinstance(y, Tensor) and not isinstance(y, Parameter) else None
    if known is not None and known.size == 1 and x.dtype.is_float and y.ndim <= x.ndim:
        kind = POWERS.get(known.item())
        if kind is not None:
            return kind()(x)  # type: ignore[no-any-return]
    result: Value = ops.Pow()(x, y if y.dtype is x.dtype else ops.Cast()(y, x.dtype))
    return result


@onnx_operator("Div")
def div(call: NodeCall, a: Value, b: Value) -> Value:
    """a / b; for whole numbers the quotient towards zero."""
    result: Value = (ops.Div() if a.dtype.is_float else ops.TruncateDiv())(a, b)
    return result


@onnx_operator("Mod")
def mod(call: NodeCall, a: Value, b: Value) -> Value:
    """The remainder with the sign of b; with fmod=1, that of a."""
    result: Value = (ops.TruncateMod() if call.attribute("fmod", 0) else ops.FloorMod())(a, b)
    return result


@onnx_operator("Xor")
def xor(call: NodeCall, a: Value, b: Value) -> Value:
    """Whether one of two is true."""
    result: Value = ops.NotEqual()(a, b)
    return result


@onnx_operator("IsInf")
def is_inf(call: NodeCall, x: Value) -> Value:
    """Whether each element is infinite."""
    call.choice("detect_negative", 1, 1)
    call.choice("detect_positive", 1, 1)
    result: Value = ops.IsInf()(x)
    return result


@onnx_operator("Where")
def where(call: NodeCall, condition: Value, x: Value, y: Value) -> Value:
    """x where the condition holds, else y, with broadcasting."""
    shape = np.broadcast_shapes(condition.shape, x.shape, y.shape)
    result: Value = ops.Select()(*(spread(value, shape) for value in (condition, x, y)))
    return result


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


@onnx_operator("Clip", static=("low", "high"))
def clip(call: NodeCall, x: Value, low: np.ndarray | None = None, high: np.ndarray | None = None) -> Value:
    """Each element within bounds, which are known at import."""
    if (call.setting("min", low), call.setting("max", high)) == (0, 6) and x.dtype.is_float:
        return ops.ReLU6()(x)  # type: ignore[no-any-return]
    for bound, kind, attribute in ((low, ops.Maximum, "min"), (high, ops.Minimum, "max")):
        value = call.setting(attribute, bound)
        if value is not None and np.isfinite(value) and abs(value) < np.finfo(np.float32).max:
            x = kind()(x, Tensor(np.asarray(value, x.dtype.numpy)))
    return x
