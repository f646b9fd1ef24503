"""MindIR, the file format of MindSpore 2 for networks: `mindspore.load` reads it, `mindspore.nn.GraphCell` runs it.

`export_mindir`, at the end, traces a function and writes the file: its operators as MindIR has them, their attributes
as messages, a free batch axis, and the graph.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import MISSING, dataclass, field, fields, replace
from itertools import count, starmap
from typing import Any

import numpy as np

from runner import __version__, dtype as dt
from runner.compile.passes import optimize
from runner.compile.passes.simplify import cse, dce, fold
from runner.core.graph import Graph, Pass
from runner.core.operators import Node, Primitive
from runner.core.trace import trace
from runner.core.values import Value
from runner.dtype import DType
from runner.errors import ConfigError, some
from runner.host.console import LOG
from runner.host.protobuf import message
from runner.types import Shape, TensorType

# The operators that MindIR has, and what their nodes contain.
#
# An operator has the name and the attributes of MindSpore. In MindIR the attributes are constants that follow the
# operands: first what a call passes after them (`Primitive.statics`), then the others, in this order. A few operators
# have attributes at their nodes instead. An operator with a further attribute that differs from its default is refused.

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


# Attributes, constants and tensors as messages of MindSpore's `mind_ir.proto`.
#
# An attribute has its value in the field of its type; an item of a tuple has it in the repeated field of that type.

# AttributeProto.AttributeType
_FLOAT, _INT64, _STRING, _BOOL, _TENSORS, _TUPLE = 1, 7, 8, 9, 19, 20
# TensorProto.DataType
ELEMENT_TYPES: dict[DType, int] = {
    dt.float32: 1,
    dt.uint8: 2,
    dt.int8: 3,
    dt.uint16: 4,
    dt.int16: 5,
    dt.int32: 6,
    dt.int64: 7,
    dt.bool_: 9,
    dt.float16: 10,
    dt.float64: 11,
    dt.uint32: 12,
    dt.uint64: 13,
}
# mindspore::TypeId
TYPE_NUMBERS: dict[DType, int] = {
    dt.bool_: 30,
    dt.int8: 32,
    dt.int16: 33,
    dt.int32: 34,
    dt.int64: 35,
    dt.uint8: 37,
    dt.uint16: 38,
    dt.uint32: 39,
    dt.uint64: 40,
    dt.float16: 42,
    dt.float32: 43,
    dt.float64: 44,
}
# The fields of AttributeProto for a value that stands alone, and for an item of a tuple.
_ALONE, _ITEM = {_FLOAT: 2, _INT64: 3, _BOOL: 3, _STRING: 5}, {_FLOAT: 8, _INT64: 10, _BOOL: 10, _STRING: 11}


def attribute(name: str, value: Any) -> bytes:
    """AttributeProto of a bool, number, text, element type (by its number), array, or a tuple of those."""
    return _attribute(name, value, _ALONE)


def _attribute(name: str, value: Any, fields: dict[int, int]) -> bytes:
    names = [(1, name)] if name else []
    if isinstance(value, tuple | list):
        return message(*names, (16, _TUPLE), *((17, _attribute("", item, _ITEM)) for item in value))
    if isinstance(value, DType):
        value = TYPE_NUMBERS[value]
    if isinstance(value, np.ndarray):
        return message(*names, (16, _TENSORS), (12, tensor("", value)))
    if isinstance(value, float):
        kind, value = _FLOAT, np.float32(value)
    else:
        kind = _BOOL if isinstance(value, bool) else _INT64 if isinstance(value, int) else _STRING
    return message(*names, (16, kind), (fields[kind], value))


def type_attribute(name: str, *given: TensorType) -> bytes:
    """AttributeProto of the type of a tensor, or of a tuple of several tensors."""
    each = [((16, _TENSORS), (12, tensor_type("", one))) for one in given]
    if len(each) == 1:
        return message((1, name), *each[0])
    return message((1, name), (16, _TUPLE), *((17, message(*one)) for one in each))


def tensor_type(name: str, given: TensorType) -> bytes:
    """TensorProto without elements."""
    return message(*_tensor_fields(name, given))


def tensor(name: str, array: np.ndarray) -> bytes:
    """TensorProto with elements."""
    return message(*_tensor_fields(name, TensorType.of(array)), (9, np.ascontiguousarray(array).tobytes()))


def _tensor_fields(name: str, given: TensorType) -> list[tuple[int, int | str | bytes]]:
    names: list[tuple[int, int | str | bytes]] = [(7, name)] if name else []
    return [*((1, length) for length in given.shape), (2, ELEMENT_TYPES[given.dtype]), *names]


# A batch of any size in MindIR: an axis is free (-1) if the traces for two sizes of the batch agree otherwise.

FREE = -1
SHAPED = ("Reshape", "BroadcastTo")  # operators whose attribute `shape` may have a free axis
LENGTHS = range(37, 1 << 20, 2)
Types = Mapping[Value, TensorType]


def free_batch(graph: Graph, other: Graph) -> tuple[Graph, Types] | None:
    """The graph with a free axis wherever `other`, for another size of the batch, has another length, and the types of
    its values. None when the graphs differ otherwise: then the batch has to keep its size.
    """
    twins = _paired_sources(graph, other)
    if twins is None or len(graph.nodes) != len(other.nodes):
        return None
    nodes: list[Node] = []
    for node, twin in zip(graph.nodes, other.nodes, strict=True):
        op = _common(node.op, twin.op)
        if op is None or [twins[x] for x in node.inputs] != list(twin.inputs):
            return None
        twins.update(zip(node.outputs, twin.outputs, strict=True))
        nodes.append(replace(node, op=op))
    if [twins[y] for y in graph.outputs] != list(other.outputs):
        return None
    types = {x: TensorType(x.dtype, _free(x.shape, twin.shape)) for x, twin in twins.items()}
    return replace(graph, nodes=tuple(nodes)), types


def other_types(types: Sequence[TensorType], graph: Graph) -> list[TensorType] | None:
    """The types of the inputs for another size of the batch, which is no length in the graph; None without a batch."""
    rows = types[0].shape[:1] if types else ()
    if not rows:
        return None
    used = {n for node in graph.nodes for x in (*node.inputs, *node.outputs) for n in x.shape}
    size = next(n for n in LENGTHS if n not in used)
    return [x.with_shape(size, *x.shape[1:]) if x.shape[:1] == rows else x for x in types]


def _paired_sources(graph: Graph, other: Graph) -> dict[Value, Value] | None:
    """Inputs, parameters and constants of both graphs, in pairs, if they agree."""
    if list(graph.parameters) != list(other.parameters) or len(graph.constants) != len(other.constants):
        return None
    for a, b in zip(graph.constants.values(), other.constants.values(), strict=True):
        if (a.dtype, a.shape, a.tobytes()) != (b.dtype, b.shape, b.tobytes()):
            return None
    return dict(zip(_sources(graph), _sources(other), strict=True))


def _sources(graph: Graph) -> tuple[Value, ...]:
    return *graph.inputs, *graph.parameters.values(), *graph.constants


def _common(op: Primitive, twin: Primitive) -> Primitive | None:
    """The operator of both traces, with a free axis in its shape if that is what differs, or None."""
    if op == twin or type(op) is not type(twin) or op.name not in SHAPED:
        return op if op == twin else None
    shape, given = op.attributes()["shape"], twin.attributes()["shape"]
    if len(shape) != len(given) or FREE in (*shape, *given):
        return None
    free = _free(shape, given)
    if free.count(FREE) > 1:
        return None
    widened: Primitive = replace(op, shape=free)  # type: ignore[call-arg]
    return widened


def _free(shape: Shape, other: Shape) -> Shape:
    return tuple(n if n == m else FREE for n, m in zip(shape, other, strict=True))


# A graph as the ModelProto of a `.mindir` file.
#
# All values share one space of names. MindSpore shows a name without what precedes its first colon, so that the prefix
# makes names different: `network:conv1.weight` is the parameter `conv1.weight`. The full name of a node is its
# `domain`.

IR_VERSION = "0.1.0"
MIND_IR_VERSION = 2  # the first one in which the attributes of most operators are operands
CONSTANT = "Constant"


def model(graph: Graph, types: Types, input_names: Sequence[str]) -> bytes:
    """The serialised ModelProto of a graph without updates, with the current values of its parameters.

    `types` are those of values with free axes, which have the length -1.
    """
    content = _Writer(graph, types, input_names).graph_proto()
    versions = (1, IR_VERSION), (2, "runner"), (3, __version__), (5, __version__)
    return message(*versions, (7, content), (10, True), (13, MIND_IR_VERSION))


class _Writer:
    """`names`: of the input, parameter, constant or node that defines each value."""

    def __init__(self, graph: Graph, types: Types, input_names: Sequence[str]) -> None:
        self.graph, self.types, self.numbers = graph, types, count()
        self.nodes: list[bytes] = []
        self.names: dict[Value, str] = {
            x: f"{graph.name}:{name}" for x, name in zip(graph.inputs, input_names, strict=True)
        }
        self.names |= {x: f"{graph.name}:{p.name}" for p, x in graph.parameters.items()}

    def graph_proto(self) -> bytes:
        """GraphProto: nodes, name, parameters, inputs, outputs."""
        graph = self.graph
        for symbol, array in graph.constants.items():
            self.names[symbol] = self.constant(array)
        for node in graph.nodes:
            self.write(node)
        inputs = [(5, _value_info(self.names[x], self.type(x))) for x in graph.inputs]
        outputs = [(6, _value_info(self.names[y], self.type(y))) for y in graph.outputs]
        weights = [(3, tensor(self.names[x], p.array)) for p, x in graph.parameters.items()]
        return message(*((1, node) for node in self.nodes), (2, graph.name), *weights, *inputs, *outputs)

    def type(self, value: Value) -> TensorType:
        """The type of a value, perhaps with free axes."""
        return self.types.get(value, value.type)

    def write(self, node: Node) -> None:
        """The node of an operator, after those of its arguments and before those of its results."""
        form = form_of(node.op)
        operands = [self.names[x] for x in node.inputs]
        if form.before:
            more = [self.constant(value) for value in form.before.arguments]
            operands[0] = self.node(form.before.name, [operands[0], *more], (), node.scope, form.before.attributes)
        if form.is_tuple:
            operands = [self.node("MakeTuple", operands, map(self.type, node.inputs), node.scope)]
        at = len(operands) if form.operands is None else form.operands
        operands[at:at] = [self.constant(value) for value in form.arguments]
        result = self.node(form.name, operands, map(self.type, node.outputs), node.name, form.attributes)
        if len(node.outputs) == 1:
            self.names[node.outputs[0]] = result
            return
        for k, y in enumerate(node.outputs):
            self.names[y] = self.node("TupleGetItem", [result, self.constant(k)], [self.type(y)], node.scope)

    def node(
        self,
        kind: str,
        operands: Sequence[str],
        types: Iterable[TensorType],
        full: str,
        attributes: Mapping[str, Any] | None = None,
    ) -> str:
        """Add a NodeProto, and return the name of its result."""
        name = f"{self.graph.name}:{kind}-op{next(self.numbers)}:"
        inputs = [(1, operand) for operand in operands]
        described = [attribute(key, value) for key, value in (attributes or {}).items()]
        described += [type_attribute("shape", *given)] if (given := tuple(types)) else []
        self.nodes.append(message(*inputs, (2, name), (3, name), (4, kind), *((5, x) for x in described), (7, full)))
        return name

    def constant(self, value: Any) -> str:
        """Add a constant, and return its name."""
        name = f"{self.graph.name}:constant{next(self.numbers)}"
        self.nodes.append(message((2, name), (4, CONSTANT), (5, attribute("value", value))))
        return name


def _value_info(name: str, type: TensorType) -> bytes:
    """ValueInfoProto of an input or an output."""
    return message((1, name), (2, tensor_type(name, type)))


# Export of a function as a `.mindir` file.

MOST_BYTES = (1 << 31) - (1 << 24)  # protobuf reads 2 GiB; nodes and names need some of it
PASSES: tuple[Pass, ...] = (fold, cse, dce)


def export_mindir(
    function: Callable[..., object], types: Sequence[TensorType], name: str, *, input_names: Sequence[str] | None = None
) -> bytes:
    """The serialised MindIR of a function for inputs of these types, with the parameters' values and without effects.

    The batch, the first axis of the first input and of those with as many rows, may have any size if the function
    allows that. Raises ConfigError with all operators that MindIR does not have, and for more than 2 GiB of parameters.
    """

    def traced(given: Sequence[TensorType]) -> Graph:
        return optimize(trace(function, given, name).without_effects(), PASSES)

    graph = traced(types)
    require_forms(graph)
    _require_size(graph)
    others = other_types(types, graph)
    try:
        free = free_batch(graph, traced(others)) if others else None
    except Exception as error:  # user code that cannot compute with another size
        LOG.debug("MindIR of %s has a fixed batch: %s", name, error)
        free = None
    names = input_names or [x.name for x in graph.inputs]
    return model(*free, names) if free else model(graph, {}, names)


def _require_size(graph: Graph) -> None:
    """Raise ConfigError when a message of protobuf, which a file is, cannot hold the parameters."""
    arrays = [p.array for p in graph.parameters] + list(graph.constants.values())
    if (size := sum(array.nbytes for array in arrays)) > MOST_BYTES:
        rows = {"size": f"{size:,} bytes", "allowed": f"at most {MOST_BYTES:,} bytes"}
        raise ConfigError("the parameters do not fit into a MindIR file", **rows, repair="ONNX")
