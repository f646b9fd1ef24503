"""Lowering of a graph to a checked ONNX model. Parameters are inputs of the model, updated parameters are outputs.

`lower` makes the model. Every operator adds its own nodes (`Primitive.lower`, or the lowering that the layout pass
chose); branches and loops become `If` and `Loop`, whose graphs are lowered alike. The last part makes models of many
steps.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from runner import dtype as dt
from runner.compile.onnx.builder import (
    OnnxBuilder,
    ValueNames,
    element_type,
    free_names,
    onnx,
    operands_of,
    rename_operands,
)
from runner.compile.onnx.fuse import cast_operands, cast_results, casts, fuse
from runner.compile.onnx.model import check, make_model
from runner.core.graph import NO_LOSS, RETURN_LOSS, Graph
from runner.core.loops import While, WhileGrad
from runner.core.lowering import PLAIN, Layout, Lowering, physical_shape, with_layouts
from runner.core.operators import Node
from runner.core.source import user_line
from runner.core.trace import If
from runner.core.values import Parameter, Symbol, Value
from runner.errors import ConfigError, RunnerError
from runner.types import TensorType

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto
UPDATED = ".updated"  # the input `conv1.weight` has the output `conv1.weight.updated`


def lower(
    graph: Graph,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    layouts: Mapping[Value, Layout] | None = None,
    checked: bool = True,
) -> ModelProto:
    """The model of a graph: inputs `input_names`, then the parameters; outputs `output_names`, then updates, then the
    operands of effects. The default names are `input0`, ... and `output0`, ..., also of outputs behind the names.

    Results are plain except for those that have another layout in `layouts`. A model that is only compared with others
    need not be `checked`. Raises ConfigError when two values have the same name, and InternalError, with the operator,
    when ONNX rejects the lowered nodes.
    """
    input_names = input_names or [f"input{k}" for k in range(len(graph.inputs))]
    output_names = output_names or ()
    if len(output_names) > len(graph.outputs):
        raise ConfigError(NO_LOSS, network=graph.name, repair=RETURN_LOSS)
    if not graph.results:
        graph = _with_output(graph)
    output_names = [*output_names, *(f"output{k}" for k in range(len(output_names), len(graph.outputs)))]
    results = [*output_names, *(p.name + UPDATED for p in graph.updates), *graph.effect_operands]
    check_names(graph.name, [*input_names, *(p.name for p in graph.parameters), *results])
    inputs: dict[Value, str] = dict(zip(graph.inputs, input_names, strict=True))
    inputs |= {symbol: parameter.name for parameter, symbol in graph.parameters.items()}
    builder = OnnxBuilder(graph.has_lowerings)
    names = ValueNames(builder, inputs)
    lower_nodes(builder, graph, names)
    types = {name: x.type for x, name in inputs.items()}
    outputs = dict(zip(results, graph.results, strict=True))
    lowered = graph_proto(builder, graph.name, types, outputs, names, layouts or {}, graph.effect_operands)
    return make_model(lowered if types or outputs else _with_a_value(lowered), checked)


def _with_a_value(empty: GraphProto) -> GraphProto:
    """A graph without inputs and results, with a result that is not read: onnxruntime needs a value."""
    nothing = onnx.helper.make_node("Constant", [], ["nothing"], value_int=0)
    outputs = [onnx.helper.make_tensor_value_info("nothing", onnx.TensorProto.INT64, [])]
    filled: GraphProto = onnx.helper.make_graph([*empty.node, nothing], empty.name, [], outputs)
    return filled


def _with_output(graph: Graph) -> Graph:
    """The graph with an output that is never read: onnxruntime opens no model without one. The results of such a
    network, such as the shape of an operand, are known while it is traced."""
    zero = np.zeros((), np.float32)
    symbol = Symbol(TensorType.of(zero), "unread")
    return replace(graph, constants={**graph.constants, symbol: zero}, outputs=(symbol,))


def column_names(graph: Graph, columns: Sequence[str], results: Sequence[str]) -> list[str]:
    """Names of inputs that are columns of a dataset, different from those of parameters and of these results."""
    parameters = [p.name for p in graph.parameters] + [p.name + UPDATED for p in graph.updates]
    return free_names(columns, {*parameters, *results})


def check_names(graph: str, names: Sequence[str]) -> None:
    known: set[str] = set()
    for name in names:
        if not name:
            raise ConfigError("a parameter needs a name", graph=graph, repair="make it an attribute of a cell")
        if name in known:
            raise ConfigError(
                "two values have the same name", name=name, graph=graph, repair="rename one of the parameters"
            )
        known.add(name)


def parameter_values(graph: Graph) -> dict[str, np.ndarray]:
    """The current values of a graph's parameters by name."""
    return {p.name: p.array for p in graph.parameters}


# The nodes of a graph.


def lower_nodes(builder: OnnxBuilder, graph: Graph, names: ValueNames) -> None:
    """Lower constants and nodes, and bind the names of their values."""
    for symbol, array in graph.constants.items():
        names.bind(symbol, builder.const(np.asarray(array)))
    for node in graph.nodes:
        if isinstance(node.op, If):
            _lower_branch(builder, node, names)
        elif isinstance(node.op, While):
            _lower_loop(builder, node, node.op, names)
        elif isinstance(node.op, WhileGrad):
            _lower_gradient(builder, node, node.op, names)
        else:
            _lower_node(builder, node, names)


def _lower_node(builder: OnnxBuilder, node: Node, names: ValueNames) -> None:
    builder.operator = node.name
    lowering = node.lowering or Lowering("plain", node.op.lower)
    operands = [names.of(x, layout) for x, layout in with_layouts(node.inputs, lowering.operands)]
    found = casts(node, builder.on_host)
    try:
        given = cast_operands(builder, node, lowering, operands, found) if found else operands
        lowered = lowering.lower(builder, *given)
    except RunnerError as error:
        raise error.add(operator=node.name, line=user_line(node.source)) from None
    results = [lowered] if isinstance(lowered, str) else list(lowered)
    results = cast_results(builder, node, results, builder.on_host) if found else results
    for (symbol, layout), name in zip(with_layouts(node.outputs, lowering.results), results, strict=True):
        names.bind(symbol, name, layout)
        if node.op.is_users:
            builder.declared[name] = symbol.type


# Branches and loops: the graphs inside.


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


# Nodes, inputs and outputs as a graph of ONNX.


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
        [value_info(value, type) for value, type in inputs.items()],
        [value_info(value, _stored_type(symbol, layouts)) for value, symbol in outputs.items()],
        list(builder.constants.values()),
        value_info=[
            value_info(value, type) for value, type in builder.declared.items() if value in computed - set(results)
        ],
    )
    return graph


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


def value_info(name: str, type: TensorType, stacked: bool = False) -> ValueInfoProto:
    """Name and type of an input or output; `stacked` adds the steps of a sink as first axis."""
    shape = ("steps", *type.shape) if stacked else type.shape
    info: ValueInfoProto = onnx.helper.make_tensor_value_info(name, element_type(type.dtype), shape)
    return info


# Models of several training steps in one call: a Scan has the model of one step as its body.
#
# `lower_sunk` makes them of graphs, for sinks; `repeat_step` of the model of a step, for exports.

# Suffixes inside a Scan, with a colon, which no parameter name contains.
ENTRY, CARRIED, NEXT, EMITTED = ":entry", ":carried", ":next", ":emitted"


def lower_sunk(
    fetch: Graph, step: Graph, scanned: Sequence[str], columns: Sequence[str], stepped: Sequence[Parameter] = ()
) -> ModelProto:
    """A model that runs many training steps in one call.

    For every entry along the first axis of the inputs `scanned`, `fetch` computes a batch from that entry and the whole
    `columns`, and `step` trains with it. Parameters that the step updates are carried from one step to the next; those
    in `stepped` have a separate value for every step. Inputs: scanned, columns, stepped, other parameters. Outputs:
    `losses`, the updates, and the operands of effects in all steps. Raises as `lower`, and ConfigError when the step
    updates one of `stepped`.
    """
    if not step.outputs:
        raise ConfigError(NO_LOSS, network=step.name, repair=RETURN_LOSS)
    names = column_names(step, [*scanned, *columns], ["losses", "loss", *(p.name for p in stepped)])
    scanned, columns = names[: len(scanned)], names[len(scanned) :]
    fed = set(stepped)
    others = [p for p in step.parameters if p not in fed]
    results = [*(p.name + UPDATED for p in step.updates), "losses", *step.effect_operands]
    check_names(step.name, [*scanned, *columns, *(p.name for p in (*stepped, *others)), *results, "loss"])
    for parameter in stepped:
        if parameter in step.updates:
            raise ConfigError("a step may not assign a parameter that follows a schedule", parameter=parameter.name)
    kinds = dict(zip([*scanned, *columns], (symbol.type for symbol in fetch.inputs), strict=True))
    entries = {name: kinds[name] for name in scanned} | {p.name: p.type for p in stepped}
    body = _sunk_body(fetch, step, entries, columns)
    operands = [*(p.name for p in step.updates), *entries]
    attributes = {"body": body, "num_scan_inputs": len(entries), "name": "sink"}
    scan = onnx.helper.make_node("Scan", operands, results, **attributes)
    inputs = [value_info(name, kind, stacked=name in scanned) for name, kind in kinds.items()]
    inputs += [value_info(p.name, p.type, stacked=p in fed) for p in (*stepped, *others)]
    outputs = [value_info("losses", step.outputs[0].type, stacked=True)]
    outputs += [value_info(p.name + UPDATED, p.type) for p in step.updates]
    outputs += [value_info(name, x.type, stacked=True) for name, x in step.effect_operands.items()]
    return make_model(onnx.helper.make_graph([scan], "sink", inputs, outputs))


def _sunk_body(fetch: Graph, step: Graph, entries: Mapping[str, TensorType], columns: Sequence[str]) -> GraphProto:
    """The body of the Scan. Inputs: carried parameters and one entry each; outputs: carried parameters and the loss."""
    scanned = [name + ENTRY for name in entries][: len(fetch.inputs) - len(columns)]
    builder = OnnxBuilder(step.has_lowerings)
    names = ValueNames(builder, dict(zip(fetch.inputs, [*scanned, *columns], strict=True)))
    lower_nodes(builder, fetch, names)
    for image, fetched in zip(step.inputs, fetch.outputs, strict=True):
        names.bind(image, names.of(fetched))
    for parameter, symbol in step.parameters.items():
        suffix = CARRIED if parameter in step.updates else ENTRY if parameter.name in entries else ""
        names.bind(symbol, parameter.name + suffix)
    lower_nodes(builder, step, names)
    inputs = {p.name + CARRIED: p.type for p in step.updates} | {n + ENTRY: kind for n, kind in entries.items()}
    outputs = {p.name + NEXT: s for p, s in step.updates.items()} | {"loss": step.outputs[0]}
    emitted = {name + EMITTED: x for name, x in step.effect_operands.items()}
    return graph_proto(builder, "step", inputs, outputs | emitted, names, {}, emitted)


# A Scan around a finished model.

LOSS, LOSSES = "loss", "losses"


def repeat_step(
    step: ModelProto, steps: int, scanned: Sequence[str], carried: Mapping[str, str], counter: str | None = None
) -> ModelProto:
    """The model that makes `steps` steps with one batch each, the entries of the inputs `scanned` along a new first
    axis.

    `carried` maps inputs to the outputs from which the next step takes them; `counter` is an input that is one more in
    each step. Other inputs are the same in all steps. Outputs: `losses` [steps], then the last values of `carried`.
    """
    inputs = {entry.name: entry for entry in step.graph.input}
    outputs = {entry.name: entry for entry in step.graph.output}
    states = {name: outputs[result] for name, result in carried.items()}
    operands = [*carried, *([counter] if counter else []), *scanned]
    unread = [f"{counter}:end"] if counter else []
    scan = onnx.helper.make_node(
        "Scan",
        operands,
        [*carried.values(), *unread, LOSSES],
        name="steps",
        body=_repeated_body(step, scanned, carried, counter),
        num_scan_inputs=len(scanned),
    )
    stacked = [_stacked(inputs[name], name, steps) if name in scanned else inputs[name] for name in inputs]
    results = [_stacked(outputs[LOSS], LOSSES, steps), *states.values()]
    model: ModelProto = onnx.ModelProto()
    model.CopyFrom(step)
    model.graph.CopyFrom(onnx.helper.make_graph([scan], "train_steps", stacked, results))
    return check(model)


def _repeated_body(step: ModelProto, scanned: Sequence[str], carried: Mapping[str, str], counter: str | None) -> object:
    """The graph of one step with its own names of what the graph around it has too."""
    graph = onnx.GraphProto()
    graph.CopyFrom(step.graph)
    inputs, outputs = {x.name: x for x in step.graph.input}, {y.name: y for y in step.graph.output}
    states = [*carried, *([counter] if counter else [])]
    renamed = {name: name + CARRIED for name in states} | {name: name + ENTRY for name in scanned}
    results = {result: name + NEXT for name, result in carried.items()}
    for node in graph.node:
        rename_operands(node, renamed | results)
        node.output[:] = [results.get(name, name) for name in node.output]
    ends = [_renamed(outputs[carried[name]], name + NEXT) for name in carried]
    if counter:
        graph.node.append(_increment(counter, graph.initializer))
        ends.append(_renamed(inputs[counter], counter + NEXT))
    for field, entries in (
        (graph.input, [_renamed(inputs[name], renamed[name]) for name in [*states, *scanned]]),
        (graph.output, [*ends, outputs[LOSS]]),
    ):
        del field[:]
        field.extend(entries)
    return graph


def _increment(counter: str, constants: object) -> NodeProto:
    one = onnx.helper.make_tensor(f"{counter}:one", onnx.TensorProto.INT64, [], [1])
    constants.append(one)  # type: ignore[attr-defined]
    node: NodeProto = onnx.helper.make_node("Add", [counter + CARRIED, one.name], [counter + NEXT], name="next_step")
    return node


def _renamed(entry: ValueInfoProto, name: str) -> ValueInfoProto:
    copy: ValueInfoProto = onnx.ValueInfoProto()
    copy.CopyFrom(entry)
    copy.name = name
    return copy


def _stacked(entry: ValueInfoProto, name: str, steps: int) -> ValueInfoProto:
    """An input or output with the steps as its first axis."""
    stacked = _renamed(entry, name)
    axes = stacked.type.tensor_type.shape.dim
    lengths = [onnx.TensorShapeProto.Dimension(dim_value=steps), *axes]
    copies = [onnx.TensorShapeProto.Dimension.FromString(length.SerializeToString()) for length in lengths]
    del axes[:]
    axes.extend(copies)
    return stacked
