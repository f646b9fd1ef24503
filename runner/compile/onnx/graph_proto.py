"""Lowering of the nodes of a graph to an ONNX graph."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from runner.compile.onnx.builder import OnnxBuilder, element_type, onnx, operands_of, rename_operands
from runner.compile.onnx.float16 import is_rounded, narrow, widen
from runner.compile.onnx.fuse import fuse
from runner.compile.onnx.names import ValueNames
from runner.core.graph import Graph
from runner.core.lowering import PLAIN, Form, Layout, physical_shape, with_layouts
from runner.core.primitive import Node
from runner.core.source import user_line
from runner.core.value import Symbol, Value
from runner.errors import RunnerError
from runner.types import TensorType

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto, ValueInfoProto


def lower_nodes(builder: OnnxBuilder, graph: Graph, names: ValueNames) -> None:
    """Lower constants and nodes, and bind the names of their values."""
    for symbol, array in graph.constants.items():
        names.bind(symbol, builder.const(np.asarray(array)))
    for node in graph.nodes:
        if node.op.graphs:
            from runner.compile.onnx.control_flow import lower_control_flow

            lower_control_flow(builder, node, names)
        else:
            _lower_node(builder, node, names)


def graph_proto(
    builder: OnnxBuilder,
    name: str,
    inputs: Mapping[str, TensorType],
    outputs: Mapping[str, Symbol],
    names: ValueNames,
    layouts: Mapping[Value, Layout],
    observed: Collection[str],
) -> GraphProto:
    """The nodes and constants of the builder as a graph with these inputs and outputs; effects read the `observed`."""
    results = [names.of(symbol, layouts.get(symbol, PLAIN)) for symbol in outputs.values()]
    kept = [name for name, output in zip(results, outputs, strict=True) if output not in observed]
    lowered = fuse(builder, kept, results) if builder.on_host else builder.list
    # Inputs, and values that the body of a sink reads from the outer graph, are not computed here.
    computed = {output for node in lowered for output in node.output}
    nodes = _name_results(lowered, results, list(outputs), computed)
    used = {value for node in nodes for value in operands_of(node)} | set(outputs)
    graph: GraphProto = onnx.helper.make_graph(
        [_without_unused_outputs(n, used) for n in nodes],
        name,
        [described(value, type) for value, type in inputs.items()],
        [described(value, _stored_type(symbol, layouts)) for value, symbol in outputs.items()],
        list(builder.constants.values()),
        value_info=[
            described(value, type) for value, type in builder.declared.items() if value in computed - set(results)
        ],
    )
    return graph


def _lower_node(builder: OnnxBuilder, node: Node, names: ValueNames) -> None:
    builder.operator = node.name
    form = node.form or Form("plain", node.op.lower)
    operands = [names.of(x, layout) for x, layout in with_layouts(node.inputs, form.operands)]
    rounds = is_rounded(node, builder.on_host)
    try:
        lowered = form.lower(builder, *(widen(builder, node, form, operands) if rounds else operands))
    except RunnerError as error:
        raise error.add(operator=node.name, line=user_line(node.source)) from None
    results = [lowered] if isinstance(lowered, str) else list(lowered)
    results = narrow(builder, node, results) if rounds else results
    for (symbol, layout), name in zip(with_layouts(node.outputs, form.results), results, strict=True):
        names.bind(symbol, name, layout)
        if node.op.is_users:
            builder.declared[name] = symbol.type


def _name_results(
    nodes: Sequence[NodeProto], values: Sequence[str], results: Sequence[str], computed: set[str]
) -> list[NodeProto]:
    """Rename values to the names of the results, at the node that computes them where possible: Identity would copy."""
    renamed: dict[str, str] = {}
    copies: list[NodeProto] = []
    for name, result in zip(values, results, strict=True):
        if name not in computed or name in renamed:
            copies.append(
                onnx.helper.make_node("Identity", [renamed.get(name, name)], [result], name=f"{result}/Identity")
            )
        else:
            renamed[name] = result
    for node in nodes:
        rename_operands(node, renamed)
        node.output[:] = [renamed.get(name, name) for name in node.output]
    return [*nodes, *copies]


def _without_unused_outputs(node: NodeProto, used: set[str]) -> NodeProto:
    """Remove trailing outputs that nothing reads (MaxPool's indices cost ten times the pool).

    A Split must keep all of its outputs, and so must branches and loops.
    """
    while node.op_type not in ("Split", "If", "Loop") and len(node.output) > 1 and node.output[-1] not in used:
        del node.output[-1]
    return node


def _stored_type(symbol: Symbol, layouts: Mapping[Value, Layout]) -> TensorType:
    return symbol.type.with_shape(*physical_shape(symbol.shape, layouts.get(symbol, PLAIN)))


def described(name: str, type: TensorType, stacked: bool = False) -> ValueInfoProto:
    """Name and type of an input or output; `stacked` adds the steps of a sink as first axis."""
    shape = ("steps", *type.shape) if stacked else type.shape
    info: ValueInfoProto = onnx.helper.make_tensor_value_info(name, element_type(type.dtype), shape)
    return info
