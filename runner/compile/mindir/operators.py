"""The operators that MindIR has, and what their nodes contain.

An operator has the name and the attributes of the reference, so most rows only list its attributes; arguments that a
call passes after the operands (`Primitive.statics`) follow them here too. An operator with another attribute that
differs from its default is refused: MindSpore ignores attributes that it does not know.
"""

from collections.abc import Callable, Mapping, Set
from dataclasses import MISSING, dataclass, fields
from typing import Any

import numpy as np

from runner import dtype as dt
from runner.core.graph import Graph
from runner.core.primitive import Node, Primitive
from runner.core.value import Value
from runner.errors import ConfigError, some

NCHW = "NCHW"
# mindspore::TypeId
TYPE_NUMBERS = {
    **{dt.bool_: 30, dt.int8: 32, dt.int16: 33, dt.int32: 34, dt.int64: 35},
    **{dt.uint8: 37, dt.uint16: 38, dt.uint32: 39, dt.uint64: 40},
    **{dt.float16: 42, dt.float32: 43, dt.float64: 44},
}
MOST_PLACES = 3  # in an error, for each operator


@dataclass(frozen=True)
class Form:
    """The primitive of an operator, its attributes, and the arguments that follow the first `operands` operands."""

    name: str
    attributes: Mapping[str, Any]
    arguments: tuple[Any, ...] = ()
    operands: int | None = None
    is_tuple: bool = False  # whether all operands are one tuple


@dataclass(frozen=True)
class Rule:
    """Which fields of an operator are known here, and its form, by default that of the fields."""

    known: tuple[str, ...] = ()
    form: Callable[[Any], Form] | None = None
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

    def form_of(self, op: Primitive) -> Form:
        """What MindIR has for an operator."""
        if self.form is not None:
            return self.form(op)
        attributes = {name: getattr(op, name) for name in self.known}
        return Form(op.name, attributes, tuple(getattr(op, name) for name in op.statics), is_tuple=self.is_tuple)


def form_of(op: Primitive) -> Form:
    """What MindIR has for an operator that `require_forms` allows."""
    return RULES[op.name].form_of(op)


def require_forms(graph: Graph) -> None:
    """Raise ConfigError with all operators, and where they are, that MindIR does not have."""
    places: dict[str, list[str]] = {}
    used = {x for node in graph.nodes for x in node.inputs} | set(graph.outputs)
    for node in graph.nodes:
        rule = RULES.get(node.op.name)
        reason = rule.missing(node, used) if rule else ""
        if reason is not None:
            places.setdefault(f"{node.op.name}({reason})" if reason else node.op.name, []).append(node.name)
    if places:
        rows = {operator: some(names, MOST_PLACES) for operator, names in places.items()}
        repair = "ONNX, which other programs read"
        raise ConfigError("MindIR does not have every operator of the network", **rows, repair=repair)


def _default(op: Primitive, name: str) -> Any:
    field = next(field for field in fields(op) if field.name == name)
    return field.default_factory() if field.default_factory is not MISSING else field.default


def _axes(axis: int | tuple[int, ...] | None) -> tuple[int, ...]:
    return () if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)


def _reduction(op: Any) -> Form:
    return Form(op.name, {"keep_dims": op.keep_dims}, (_axes(op.axis),))


def _along_axes(op: Any) -> Form:
    return Form(op.name, {"axis": _axes(op.axis)})


def _position(op: Any) -> Form:
    return Form(op.name, {"axis": op.axis, "output_type": TYPE_NUMBERS[op.output_type]})


def _convolution(op: Any) -> Form:
    names = ("out_channel", "kernel_size", "mode", "pad_mode", "pad", "group")
    attributes = {name: getattr(op, name) for name in names}
    attributes |= {"stride": (1, 1, *op.stride), "dilation": (1, 1, *op.dilation)}
    return Form(op.name, attributes | {"pad_list": op.pad, "groups": op.group, "format": NCHW})


def _largest(op: Any) -> Form:
    windows = {"kernel_size": (1, 1, *op.kernel_size), "strides": (1, 1, *op.strides)}
    return Form(op.name, {**windows, "pad_mode": op.pad_mode.upper(), "format": NCHW})


def _average(op: Any) -> Form:
    windows = {"kernel_size": op.kernel_size, "strides": op.strides}
    return Form(op.name, {**windows, "pad_mode": op.pad_mode.upper(), "format": NCHW})


def _normalization(op: Any) -> Form:
    return Form(op.name, {"is_training": False, "epsilon": op.epsilon, "momentum": op.momentum, "format": NCHW})


def _one_hot(op: Any) -> Form:
    values = [np.asarray(x, op.dtype.numpy) for x in (op.on_value, op.off_value)]
    return Form(op.name, {"axis": op.axis}, (op.depth, *values))


def _resized(op: Any) -> Form:
    flags = {"align_corners": op.align_corners, "half_pixel_centers": False}
    return Form("ResizeBilinearV2", flags, (op.size,))


_FIELDS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("MatMul", "BatchMatMul"), ("transpose_a", "transpose_b")),
    **dict.fromkeys(("CumSum", "CumProd"), ("exclusive", "reverse")),
    "LayerNorm": ("begin_norm_axis", "begin_params_axis", "epsilon"),
    "LogSoftmax": ("axis",),
    "Pad": ("paddings",),
    "ResizeNearestNeighbor": ("size", "align_corners"),
    "Sort": ("axis", "descending"),
    "Split": ("axis", "output_num"),
    "StridedSlice": ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"),
    "Unstack": ("axis",),
}
_WITHOUT_FIELDS = (
    *("ACos", "Abs", "Acosh", "Add", "Asin", "Asinh", "Atan", "Atan2", "Atanh", "BitwiseAnd", "BitwiseOr"),
    *("BitwiseXor", "Ceil", "Cos", "Cosh", "Equal", "Erf", "Erfc", "Exp", "ExpandDims", "Expm1", "FastGeLU"),
    *("Flatten", "Floor", "FloorDiv", "Gather", "GatherNd", "GeLU", "Greater", "GreaterEqual", "HSigmoid"),
    *("HSwish", "Identity", "Invert", "IsFinite", "IsNan", "Less", "LessEqual", "Log", "Log1p", "LogicalAnd"),
    *("LogicalNot", "LogicalOr", "Maximum", "Minimum", "Mish", "Mod", "Mul", "MulNoNan", "Neg", "NotEqual"),
    *("OnesLike", "PReLU", "Pow", "ReLU", "ReLU6", "RealDiv", "Reciprocal", "Reshape", "Rint", "Rsqrt", "ScatterNd"),
    *("SeLU", "Select", "Sigmoid", "Sign", "Sin", "Sinh", "Slice", "Softplus", "Softsign", "Sqrt", "Square"),
    *("SquaredDifference", "Sub", "Tan", "Tanh", "TensorScatterUpdate", "Tile", "Transpose", "TruncateMod"),
    *("UnsortedSegmentMax", "UnsortedSegmentMin", "UnsortedSegmentProd", "UnsortedSegmentSum", "Xdivy", "Xlogy"),
    "ZerosLike",
)
RULES: dict[str, Rule] = {
    **dict.fromkeys(_WITHOUT_FIELDS, Rule()),
    **{name: Rule(known) for name, known in _FIELDS.items()},
    **{name: Rule(("keep_dims",), _reduction) for name in ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum")},
    **{name: Rule(("keep_dims",), _reduction) for name in ("ReduceAll", "ReduceAny", "ReduceProd")},
    **{name: Rule(("axis",), _along_axes) for name in ("ReverseV2", "Softmax", "Squeeze")},
    **{name: Rule(("axis", "output_type"), _position) for name in ("Argmax", "Argmin")},
    **{name: Rule(("axis",), is_tuple=True) for name in ("Concat", "Stack")},
    **{name: Rule(only_floats=True) for name in ("Div", "DivNoNan", "FloorMod", "IsInf", "TruncateDiv")},
    "AvgPool": Rule(("kernel_size", "strides", "pad_mode", "impl_mode"), _average),
    "BatchNorm": Rule(("epsilon", "momentum"), _normalization, results=1),
    "BiasAdd": Rule((), lambda op: Form(op.name, {"format": NCHW})),
    "BroadcastTo": Rule((), lambda op: Form(op.name, {"shape": op.shape})),
    "Cast": Rule((), lambda op: Form(op.name, {}, (TYPE_NUMBERS[op.dtype],))),
    "Conv2D": Rule(
        ("out_channel", "kernel_size", "mode", "pad_mode", "pad", "stride", "dilation", "group"), _convolution
    ),
    "Elu": Rule((), lambda op: Form(op.name, {"alpha": op.alpha})),  # kernels know 1
    "GatherD": Rule(("dim",), lambda op: Form(op.name, {}, (op.dim,), operands=1)),
    "MaxPool": Rule(("kernel_size", "strides", "pad_mode"), _largest),
    "OneHot": Rule(("axis", "dtype"), _one_hot),
    "ResizeBilinear": Rule(("size", "align_corners"), _resized),
    "Round": Rule((), lambda op: Form(op.name, {}, (0,))),
    "StopGradient": Rule((), lambda op: Form("Identity", {})),
}
