"""The operators that MindIR has, and what their nodes contain.

An operator has the name and the attributes of the reference. In MindIR the attributes are constants that follow the
operands: first what a call passes after them (`Primitive.statics`), then the others, in this order. A few operators
have attributes at their nodes instead. An operator with a further attribute that differs from its default is refused.
"""

import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import MISSING, dataclass, field, fields
from itertools import starmap
from typing import Any

import numpy as np

from runner.core.graph import Graph
from runner.core.operators import Node, Primitive
from runner.core.values import Value
from runner.errors import ConfigError, some

NCHW, NCHW_NUMBER = "NCHW", 0
PAD_MODES = {"same": 1, "valid": 2}
MOST_PLACES = 3  # in an error, for each operator


@dataclass(frozen=True)
class MindirForm:
    """The primitive of an operator, the arguments that follow the first `operands` operands, and its attributes."""

    name: str
    arguments: tuple[Any, ...] = ()
    attributes: Mapping[str, Any] = field(default_factory=dict)
    operands: int | None = None
    is_tuple: bool = False  # whether all operands are one tuple
    before: "MindirForm | None" = None  # what replaces the first operand by its result


@dataclass(frozen=True)
class MindirRule:
    """Which fields of an operator are known here, and its form, by default that of the fields."""

    known: tuple[str, ...] = ()
    form: Callable[[Any], MindirForm] | None = None
    is_tuple: bool = False
    only_floats: bool = False  # for whole numbers, MindSpore computes something else
    results: int | None = None  # how many of the results are the same in MindSpore

    def missing(self, node: Node, used: Set[Value]) -> str | None:
        """Why this rule does not hold for a node, or None; `used` are the values that the graph needs."""
        op = node.op
        others = [k for k in op.fields if k not in (*self.known, *op.statics) and getattr(op, k) != _default(op, k)]
        if others:
            return ", ".join(f"{name}={getattr(op, name)}" for name in others)
        if self.only_floats and not node.inputs[0].type.dtype.is_float:
            return f"{node.inputs[0].type.dtype}"
        if self.results is not None and not used.isdisjoint(node.outputs[self.results :]):
            return f"result {self.results} and following"
        return None

    def form_of(self, op: Primitive) -> MindirForm:
        """What MindIR has for an operator."""
        if self.form is not None:
            return self.form(op)
        arguments = *(getattr(op, name) for name in op.statics), *(getattr(op, name) for name in self.known)
        return MindirForm(op.name, arguments, is_tuple=self.is_tuple)


def form_of(op: Primitive) -> MindirForm:
    """What MindIR has for an operator that `require_forms` allows."""
    return RULES[op.name].form_of(op)


def require_forms(graph: Graph) -> None:
    """Raise ConfigError with all operators, and where they are, that MindIR does not have."""
    places: dict[str, dict[str, list[str]]] = {}
    used = {x for node in graph.nodes for x in node.inputs} | set(graph.outputs)
    for node in graph.nodes:
        rule = RULES.get(node.op.name)
        reason = rule.missing(node, used) if rule else ""
        if reason is not None:
            places.setdefault(node.op.name, {}).setdefault(reason, []).append(node.name)
    if places:
        rows = {name: "\n".join(starmap(_places, reasons.items())) for name, reasons in places.items()}
        repair = "ONNX, which other programs read"
        raise ConfigError("MindIR does not have every operator of the network", **rows, repair=repair)


def _places(reason: str, names: Sequence[str]) -> str:
    return f"{reason}: {some(names, MOST_PLACES)}" if reason else some(names, MOST_PLACES)


def _default(op: Primitive, name: str) -> Any:
    declared = next(x for x in fields(op) if x.name == name)
    return declared.default_factory() if declared.default_factory is not MISSING else declared.default


def _axes(axis: int | tuple[int, ...] | None) -> tuple[int, ...]:
    return () if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)


def _reduction(op: Any) -> MindirForm:
    return MindirForm(op.name, (_axes(op.axis), op.keep_dims))


def _with_attributes(op: Any) -> MindirForm:
    return MindirForm(op.name, attributes=op.attributes())


def _convolution(op: Any) -> MindirForm:
    wide = {"stride": (1, 1, *op.stride), "dilation": (1, 1, *op.dilation), "format": NCHW}
    return MindirForm(op.name, attributes=op.attributes() | wide | {"pad_list": op.pad, "groups": op.group})


def _largest(op: Any) -> MindirForm:
    windows = {"kernel_size": (1, 1, *op.kernel_size), "strides": (1, 1, *op.strides), "format": NCHW}
    mode, before = _padding(op, -math.inf)
    return MindirForm(op.name, attributes={**windows, "pad_mode": mode.upper()}, before=before)


def _average(op: Any) -> MindirForm:
    mode, before = _padding(op, 0.0)
    return MindirForm(op.name, (op.kernel_size, op.strides, PAD_MODES[mode], NCHW_NUMBER), before=before)


def _padding(op: Any, value: float) -> tuple[str, MindirForm | None]:
    """The `pad_mode` of a pool, and the operator in front of it that pads by explicit numbers."""
    if op.pad_mode != "pad":
        return op.pad_mode, None
    top, bottom, left, right = op.padding
    attributes = {"mode": "constant", "paddings_contiguous": True}
    return "valid", MindirForm("PadV3", ((left, right, top, bottom), value), attributes)


def _one_hot(op: Any) -> MindirForm:
    values = [np.asarray(x, op.dtype.numpy) for x in (op.on_value, op.off_value)]
    return MindirForm(op.name, (op.depth, *values, op.axis))


_FIELDS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("MatMul", "BatchMatMul"), ("transpose_a", "transpose_b")),
    **dict.fromkeys(("CumSum", "CumProd"), ("exclusive", "reverse")),
    "LayerNorm": ("begin_norm_axis", "begin_params_axis", "epsilon"),
    "LogSoftmax": ("axis",),
    "Split": ("axis", "output_num"),
    "StridedSlice": ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"),
}
_WITHOUT_FIELDS = (
    *("ACos", "Abs", "Acosh", "Add", "Asin", "Asinh", "Atan", "Atan2", "Atanh", "BitwiseAnd", "BitwiseOr"),
    *("BitwiseXor", "BroadcastTo", "Ceil", "Cos", "Cosh", "Equal", "Erf", "Erfc", "Exp", "ExpandDims", "Expm1"),
    *("FastGeLU", "Flatten", "Floor", "FloorDiv", "GatherNd", "GeLU", "Greater", "GreaterEqual", "HSigmoid"),
    *("HSwish", "Identity", "Invert", "IsFinite", "IsNan", "Less", "LessEqual", "Log", "Log1p", "LogicalAnd"),
    *("LogicalNot", "LogicalOr", "Maximum", "Minimum", "Mish", "Mod", "Mul", "MulNoNan", "Neg", "NotEqual"),
    *("OnesLike", "PReLU", "Pow", "ReLU", "ReLU6", "RealDiv", "Reciprocal", "Reshape", "Rint", "Rsqrt", "ScatterNd"),
    *("SeLU", "Select", "Sigmoid", "Sign", "Sin", "Sinh", "Slice", "Softplus", "Softsign", "Sqrt", "Square"),
    *("SquaredDifference", "Sub", "Tan", "Tanh", "TensorScatterUpdate", "Tile", "Transpose", "TruncateMod"),
    *("UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentProd", "UnsortedSegmentSum", "Xdivy", "Xlogy"),
    "ZerosLike",
)
_REDUCTIONS = ("ReduceAll", "ReduceAny", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd")
RULES: dict[str, MindirRule] = {
    **dict.fromkeys(_WITHOUT_FIELDS, MindirRule()),
    **{name: MindirRule(known) for name, known in _FIELDS.items()},
    **dict.fromkeys(_REDUCTIONS, MindirRule(("keep_dims",), _reduction)),
    **dict.fromkeys(("Argmax", "Argmin"), MindirRule(("axis", "output_type"))),
    **dict.fromkeys(("Div", "DivNoNan", "FloorMod", "IsInf", "TruncateDiv"), MindirRule(only_floats=True)),
    **dict.fromkeys(
        ("ReverseV2", "Softmax", "Squeeze"), MindirRule(("axis",), lambda op: MindirForm(op.name, (_axes(op.axis),)))
    ),
    "AvgPool": MindirRule(("kernel_size", "strides", "pad_mode", "padding", "impl_mode"), _average),
    "BatchNorm": MindirRule(
        ("epsilon", "momentum"),
        lambda op: MindirForm(op.name, (False, op.epsilon, op.momentum, NCHW_NUMBER)),
        results=1,
    ),
    "BiasAdd": MindirRule(form=lambda op: MindirForm(op.name, (NCHW_NUMBER,))),
    "Cast": MindirRule(),
    "Concat": MindirRule(("axis",), is_tuple=True),
    "Conv2D": MindirRule(
        ("out_channel", "kernel_size", "mode", "pad_mode", "pad", "stride", "dilation", "group"), _convolution
    ),
    "Elu": MindirRule(
        form=lambda op: MindirForm(op.name, (op.alpha,))
    ),  # MindSpore has no kernel for another alpha than 1
    "Gather": MindirRule(form=lambda op: MindirForm(op.name, (op.axis, 0))),
    "GatherD": MindirRule(("dim",), lambda op: MindirForm(op.name, (op.dim,), operands=1)),
    "MaxPool": MindirRule(("kernel_size", "strides", "pad_mode", "padding"), _largest),
    "OneHot": MindirRule(("axis", "dtype"), _one_hot),
    "Pad": MindirRule(("paddings",), lambda op: MindirForm(op.name, attributes={"paddings": op.paddings})),
    "ReduceSum": MindirRule(("keep_dims",), lambda op: MindirForm(op.name, (_axes(op.axis), op.keep_dims, False))),
    "ResizeBilinear": MindirRule(
        ("size", "align_corners"), lambda op: MindirForm("ResizeBilinearV2", (op.size, op.align_corners, False))
    ),
    "ResizeNearestNeighbor": MindirRule(
        ("size", "align_corners"), lambda op: MindirForm(op.name, (op.size, op.align_corners, False))
    ),
    "Round": MindirRule(form=lambda op: MindirForm(op.name, (0,))),
    "Sort": MindirRule(("axis", "descending"), _with_attributes),
    "Stack": MindirRule(("axis",), lambda op: MindirForm(op.name, attributes={"axis": op.axis}, is_tuple=True)),
    "StopGradient": MindirRule(form=lambda op: MindirForm("Identity")),
    "Unstack": MindirRule(("axis",), _with_attributes),
}
