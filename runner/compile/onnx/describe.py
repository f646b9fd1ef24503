"""What connects a lowered model with its graph: locations of errors, a listing, and metadata of the nodes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from runner import dtype as dt
from runner.compile.onnx.builder import all_graphs, onnx
from runner.core.graph import NO_GRAPHS, Graph, GraphObserver
from runner.core.lowering import FUSED
from runner.core.operators import Node
from runner.core.source import user_line
from runner.errors import ConfigError, DeviceError, InternalError, RunnerError
from runner.observe.graph import listing
from runner.observe.graph.listing import attribute_text, constant_text, device_type, source_lines
from runner.types import TensorType

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto


# Errors of passes, ONNX and onnxruntime get the operator that they concern, its scope and the user's source line.
#
# ONNX and onnxruntime name nodes in their messages, and nodes are named after the operator that they were lowered from.

_FULL_NAME = re.compile(r"[\w/-]+-op\d+")


class OperatorIndex:
    """The operators of a graph by full name."""

    def __init__(self, graph: Graph) -> None:
        self._nodes = {node.name: node for node in (*graph.all_nodes, *graph.effects)}

    def find_in(self, text: str) -> Node | None:
        """The first operator whose full name, or the name of an ONNX node of it, occurs in a text."""
        found = (self._nodes.get(name) for name in _FULL_NAME.findall(text))
        return next((node for node in found if node is not None), None)


def add_location(error: RunnerError, graph: Graph) -> RunnerError:
    """Add operator, scope and source line to an error that names an operator of the graph."""
    node = OperatorIndex(graph).find_in("\n".join((error.what, *error.rows.values())))
    if node is not None:
        error.rows["operator"] = node.name  # onnxruntime names the node, or only the loop around it
        operands = ", ".join(str(x.type) for x in node.inputs) if isinstance(error, ConfigError) else None
        error.add(operands=operands, scope=node.scope, line=user_line(node.source))
    return error


@contextmanager
def locate_errors(graph: Graph, observer: GraphObserver = NO_GRAPHS, step: str | None = None) -> Iterator[None]:
    """Add locations to the errors of a block that processes a graph, and notify the observer; `step` is the pass.

    Raises InternalError for an unexpected exception in a pass. Errors of the device are not attributed to the graph.
    """
    try:
        yield
    except DeviceError:
        raise
    except RunnerError as error:
        observer.failed(graph)
        add_location(error.add(**{"pass": step}), graph)
        raise
    except Exception as error:
        observer.failed(graph)
        if step is None:
            raise
        reason = f"{type(error).__name__}: {error}"
        internal = InternalError("a pass failed", **{"pass": step}, graph=graph.name, reason=reason)
        raise add_location(internal, graph) from error


# Lowered models with the names of their graph: as a listing, and as metadata of the nodes.

METADATA_IR_VERSION = 10  # the first ONNX IR version with metadata of nodes


def annotate(model: ModelProto, graph: Graph) -> None:
    """Write operator, scope, source line and IR index into the metadata of every node with an operator."""
    operators = OperatorIndex(graph)
    model.ir_version = max(model.ir_version, METADATA_IR_VERSION)
    for lowered in model.graph.node:
        node = operators.find_in(lowered.name)
        if node is not None:
            entries = {"operator": node.name, "scope": node.scope, "ir_index": node.number}
            entries["source"] = user_line(node.source) or ""
            for key, value in entries.items():
                lowered.metadata_props.add(key=key, value=str(value))


def describe_model(model: ModelProto, graph: Graph, number: int) -> listing.Listing:
    """The listing of a model: its nodes in order, with the full names of their operators."""
    whole = model.graph
    weights = {parameter.name for parameter in graph.parameters}
    writer = _Writer(graph, number)
    writer.types = _types(model)
    parameters = []
    for k, value in enumerate(whole.input, 1):
        type = _type(value) or TensorType(dt.float32, ())
        writer.names[value.name] = listing.parameter_reference(k, value.name)
        parameters.append(
            listing.ListedParameter(writer.names[value.name], type, device_type(type), value.name in weights)
        )
    writer.count = len(parameters)
    entry = writer.subgraph(whole, ())
    return listing.Listing((), tuple(parameters), (entry, *writer.inner))


class _Writer:
    """Describes the subgraphs of one model. `names`: references to the values of the current and the outer graphs."""

    def __init__(self, graph: Graph, number: int) -> None:
        self.operators, self.number = OperatorIndex(graph), number
        self.names: dict[str, str] = {"": "None"}
        self.types: Mapping[str, TensorType | None] = {}
        self.count = 0
        self.inner: list[listing.Subgraph] = []

    def subgraph(self, graph: GraphProto, parameters: tuple[str, ...]) -> listing.Subgraph:
        """Describe one graph, after the graphs in attributes of its nodes."""
        for constant in graph.initializer:
            self.names[constant.name] = constant_text(constant.name, onnx.numpy_helper.to_array(constant))
        operations = tuple([self.operation(k, node) for k, node in enumerate(graph.node)])
        names, types = self.values(value.name for value in graph.output)
        return listing.Subgraph(f"{graph.name}.{self.number}", parameters, operations, (), names, types)

    def operation(self, k: int, node: NodeProto) -> listing.Operation:
        """Describe one node."""
        attributes = tuple([(a.name, self.attribute(a)) for a in sorted(node.attribute, key=lambda a: str(a.name))])
        operands, operand_types = self.values(node.input)
        self.names.update(zip(node.output, listing.result_references(k, len(node.output)), strict=True))
        types = operand_types, self.values(node.output)[1], None
        name, instance, lines = node.name, "", source_lines(())
        if operator := self.operators.find_in(node.name):
            name, instance, lines = operator.name, operator.instance, source_lines(operator.source)
        return listing.Operation(k, node.name, node.op_type, operands, instance, attributes, *types, name, lines)

    def values(self, names: Iterable[str]) -> tuple[tuple[str, ...], tuple[TensorType | None, ...]]:
        """References and types of values."""
        known = list(names)
        return tuple([self.names[name] for name in known]), tuple([self.types.get(name) for name in known])

    def attribute(self, attribute: Any) -> str:
        """An attribute as text; for a graph, the name of its subgraph."""
        value = onnx.helper.get_attribute_value(attribute)
        if isinstance(value, onnx.GraphProto):
            outer = dict(self.names)
            inputs = tuple(self._inputs(value))
            self.inner.append(self.subgraph(value, inputs))
            self.names = outer
            return f"@{self.inner[-1].name}"
        if isinstance(value, onnx.TensorProto):
            return constant_text(value.name, onnx.numpy_helper.to_array(value))
        return attribute_text(value.decode() if isinstance(value, bytes) else value)

    def _inputs(self, graph: GraphProto) -> Iterator[str]:
        for value in graph.input:
            self.count += 1
            self.names[value.name] = listing.parameter_reference(self.count, value.name)
            yield self.names[value.name]


def _types(model: ModelProto) -> dict[str, TensorType | None]:
    """The types of all values, including inner graphs. Nodes of onnxruntime's domain are inferred as ONNX nodes."""
    standard = onnx.ModelProto()
    standard.CopyFrom(model)
    for graph in all_graphs(standard.graph):
        for node in graph.node:
            if node.domain == FUSED:
                node.CopyFrom(_standard_node(node))
    types: dict[str, TensorType | None] = {}
    for graph in all_graphs(onnx.shape_inference.infer_shapes(standard).graph):
        types |= {c.name: TensorType.of(onnx.numpy_helper.to_array(c)) for c in graph.initializer}
        types |= {value.name: _type(value) for value in (*graph.input, *graph.value_info, *graph.output)}
    return types


def _standard_node(node: NodeProto) -> NodeProto:
    """A node of the standard ONNX domain whose outputs have the same types."""
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    if node.op_type == "FusedMatMul":
        left, right = "ji" if attributes.get("transA") else "ij", "kj" if attributes.get("transB") else "jk"
        kind, inputs, attributes = "Einsum", node.input, {"equation": f"...{left},...{right}->...ik"}
    else:  # FusedConv: a convolution with an addend and an activation
        kind, inputs = "Conv", node.input[:3]
        attributes.pop("activation", None)
    standard: NodeProto = onnx.helper.make_node(kind, inputs, node.output, **attributes)
    return standard


def _type(value: ValueInfoProto) -> TensorType | None:
    """The type of a value; the length of a dynamic axis is -1."""
    tensor = value.type.tensor_type
    if not tensor.elem_type:
        return None
    kind = dt.of(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    return TensorType(kind, tuple([d.dim_value if d.HasField("dim_value") else -1 for d in tensor.shape.dim]))
