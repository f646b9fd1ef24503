"""Lowering of branches and loops on values to ONNX's If and Loop, whose bodies are graphs of their own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from runner import dtype as dt
from runner.compile.onnx.builder import OnnxBuilder, onnx
from runner.compile.onnx.graph_proto import graph_proto, lower_nodes
from runner.compile.onnx.names import ValueNames
from runner.core.branch import If
from runner.core.primitive import Node
from runner.core.value import Symbol, Value
from runner.core.while_loop import While, WhileGrad
from runner.types import TensorType


def lower_control_flow(builder: OnnxBuilder, node: Node, names: ValueNames) -> None:
    """Lower an operator that consists in graphs, and bind the names of its results."""
    if isinstance(node.op, If):
        _lower_branch(builder, node, names)
    elif isinstance(node.op, While):
        _lower_loop(builder, node, node.op, names)
    else:
        assert isinstance(node.op, WhileGrad)
        _lower_gradient(builder, node, node.op, names)


def _lower_branch(builder: OnnxBuilder, node: Node, names: ValueNames) -> None:
    """Lower both graphs of an `If`; they read what they need from the graph around them."""
    builder.operator = node.name
    captured = [names.of(x) for x in node.inputs[1:]]
    predicate = _as_condition(builder, names, node.inputs[0])
    results = builder.new_names("If", len(node.outputs))
    branches = {}
    for branch, graph in zip(("then_branch", "else_branch"), node.op.graphs, strict=True):
        inner = OnnxBuilder(builder.on_host, builder)
        inside = ValueNames(inner, dict(zip(graph.inputs, captured, strict=True)))
        lower_nodes(inner, graph, inside)
        outputs = {f"{name}:{branch}": symbol for name, symbol in zip(results, graph.outputs, strict=True)}
        branches[branch] = graph_proto(inner, graph.name, {}, outputs, inside, {}, ())
    builder.list.append(
        onnx.helper.make_node("If", [predicate], results, name=results[0].rpartition(":")[0], **branches)
    )
    for symbol, name in zip(node.outputs, results, strict=True):
        names.bind(symbol, name)


def _as_condition(builder: OnnxBuilder, names: ValueNames, value: Value) -> str:
    """A value with one element as a Bool without axes."""
    name = names.of(value)
    if value.dtype is not dt.bool_:
        name = builder.node("Cast", (name,), to=dt.bool_)
    return builder.node("Reshape", (name, builder.const([]))) if value.shape else name


def _lower_loop(builder: OnnxBuilder, node: Node, op: While, names: ValueNames) -> None:
    results, _ = _loop(builder, node, op, [names.of(x) for x in node.inputs])
    for symbol, result in zip(node.outputs, results, strict=True):
        names.bind(symbol, result)


def _loop(
    builder: OnnxBuilder, node: Node, op: While | WhileGrad, operands: Sequence[str], history: bool = False
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The variables after a loop, and with `history` those before each iteration, stacked.

    The test is computed before the first iteration and at the end of each.
    """
    first = _lower_test(builder, op, operands)
    builder.operator = node.name
    results = builder.new_names("Loop", op.count * (1 + history))
    name = results[0].rpartition(":")[0]
    entries = [f"{x}:entry" for x in results[: op.count]]
    inner = OnnxBuilder(builder.on_host, builder)
    body = ValueNames(inner, dict(zip(op.body.inputs, [*entries, *operands[op.count :]], strict=True)))
    lower_nodes(inner, op.body, body)
    test = ValueNames(inner, {})
    for x, y in zip(op.test.inputs, [*op.body.outputs, *op.body.inputs[op.count :]], strict=True):
        test.bind(x, body.of(y))
    lower_nodes(inner, op.test, test)
    goes_on = _bound(body, _as_condition(inner, test, op.test.outputs[0]), TensorType(dt.bool_, ()))
    inputs = {f"{name}:number": TensorType(dt.int64, ()), f"{name}:before": goes_on.type}
    inputs |= {entry: x.type for entry, x in zip(entries, op.body.outputs, strict=True)}
    values = [*op.body.outputs, *(op.body.inputs[: op.count] if history else ())]
    outputs = {f"{name}:after": goes_on} | {f"{x}:end": y for x, y in zip(results, values, strict=True)}
    graph = graph_proto(inner, op.body.name, inputs, outputs, body, {}, ())
    taken = ["", first, *operands[: op.count]]
    builder.list.append(onnx.helper.make_node("Loop", taken, results, name=name, body=graph))
    return results[: op.count], results[op.count :]


def _lower_gradient(builder: OnnxBuilder, node: Node, op: WhileGrad, names: ValueNames) -> None:
    """A loop with the history of its variables, and a second one backwards through this history."""
    given = len(op.body.inputs)
    operands = [names.of(x) for x in node.inputs]
    _, history = _loop(builder, node, op, operands[:given], history=True)
    length = builder.node("Reshape", (builder.node("Shape", (history[0],), end=1), builder.const([])))
    last = builder.node("Sub", (length, builder.const(1)))
    adjoints, others = operands[given:], [k for k in op.operands if k >= op.count]
    zeros = [
        builder.node("Expand", (builder.const(np.zeros((), x.dtype.numpy)), builder.const(list(x.shape))))
        for x in (node.inputs[k] for k in others)
    ]
    results = builder.new_names("Loop", len(op.operands))
    name = results[0].rpartition(":")[0]
    entries, number, before = [f"{x}:entry" for x in results], f"{name}:number", f"{name}:before"
    inner = OnnxBuilder(builder.on_host, builder)
    inner.operator = node.name
    place = inner.node("Sub", (last, number))
    state = [inner.node("Gather", (stack, place), axis=0) for stack in history]
    given_names = [*state, *entries[: len(adjoints)], *operands[op.count : given]]
    pull = ValueNames(inner, dict(zip(op.pull.inputs, given_names, strict=True)))
    lower_nodes(inner, op.pull, pull)
    inner.operator = node.name
    ends = list(op.pull.outputs[: len(adjoints)])
    for entry, x in zip(entries[len(adjoints) :], op.pull.outputs[len(adjoints) :], strict=True):
        ends.append(_bound(pull, inner.node("Add", (entry, pull.of(x))), x.type))
    goes_on = _bound(pull, before, TensorType(dt.bool_, ()))
    inputs = {number: TensorType(dt.int64, ()), before: goes_on.type}
    inputs |= {entry: x.type for entry, x in zip(entries, op.pull.outputs, strict=True)}
    outputs = {f"{name}:after": goes_on} | {f"{x}:end": y for x, y in zip(results, ends, strict=True)}
    graph = graph_proto(inner, op.pull.name, inputs, outputs, pull, {}, ())
    taken = [length, "", *adjoints, *zeros]
    builder.list.append(onnx.helper.make_node("Loop", taken, results, name=name, body=graph))
    for symbol, result in zip(node.outputs, results, strict=True):
        names.bind(symbol, result)


def _bound(names: ValueNames, name: str, type: TensorType) -> Symbol:
    """A value of the graph for a value of ONNX that no operator has as a result."""
    symbol = Symbol(type, name)
    names.bind(symbol, name)
    return symbol


def _lower_test(builder: OnnxBuilder, op: While | WhileGrad, operands: Sequence[str]) -> str:
    inside = ValueNames(builder, dict(zip(op.test.inputs, operands, strict=True)))
    lower_nodes(builder, op.test, inside)
    return _as_condition(builder, inside, op.test.outputs[0])
