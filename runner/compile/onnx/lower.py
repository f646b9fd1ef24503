"""A graph becomes one checked ONNX model: parameters go in with the inputs, new values come out with the outputs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import chain, repeat
from typing import TYPE_CHECKING

import numpy as np

from runner.compile.onnx.builder import OnnxBuilder, element_type, onnx
from runner.compile.onnx.float16 import is_rounded, narrowed, widened
from runner.compile.onnx.fuse import fuse
from runner.compile.onnx.names import Names
from runner.core.graph import Graph
from runner.core.lowering import FUSED, PLAIN, Form, Layout, physical_shape
from runner.core.primitive import Node
from runner.core.source import user_line
from runner.core.value import Parameter, Symbol, Value
from runner.errors import ConfigError, InternalError, RunnerError
from runner.types import TensorType

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto as ModelProto, NodeProto, ValueInfoProto

OPSETS = {"": 18, FUSED: 1}  # 18: BitwiseXor, and reductions that take their axes as inputs
IR_VERSION = 9
UPDATED = ".updated"  # `conv1.weight` goes in, `conv1.weight.updated` comes out
# Inside a sink; a colon, because no parameter has one.
ENTRY, CARRIED, NEXT, TOLD = ":entry", ":carried", ":next", ":told"


def lower(
    graph: Graph, input_names: Sequence[str], output_names: Sequence[str], ways: Mapping[Value, Layout] | None = None
) -> ModelProto:
    """The model of a graph: inputs `input_names`, then the parameters; outputs `output_names`, updates, what is told.

    Results are plain, but for those to which `ways` gives another layout.

    Raises ConfigError when two of them have one name, and InternalError, with the operator, when ONNX does not accept
    what an operator was lowered to.
    """
    results = [*output_names, *(p.name + UPDATED for p in graph.updates), *graph.effect_operands]
    _check_names(graph.name, [*input_names, *(p.name for p in graph.parameters), *results])
    taken: dict[Value, str] = dict(zip(graph.inputs, input_names, strict=True))
    taken |= {symbol: parameter.name for parameter, symbol in graph.parameters.items()}
    builder = OnnxBuilder(graph.has_forms)
    names = Names(builder, taken)
    _lower_nodes(builder, graph, names)
    outputs = dict(zip(results, graph.results, strict=True))
    inputs = {name: x.type for x, name in taken.items()}
    return _model(_graph(builder, graph.name, inputs, outputs, names, ways or {}, graph.effect_operands))


def lower_sunk(
    fetch: Graph, step: Graph, scanned: Sequence[str], columns: Sequence[str], stepped: Sequence[Parameter] = ()
) -> ModelProto:
    """A model that runs a step many times in one call.

    For every entry along the first axis of the inputs `scanned`, `fetch` makes a batch of that entry and of the whole
    `columns`, and `step` trains with it; parameters that the step updates are carried from one step to the next, and
    those in `stepped` have a value of their own in every step. Inputs: scanned, columns, stepped, other parameters.
    Outputs: `losses`, the updates, and what effects tell in all steps. Raises as `lower`, and ConfigError when the step
    updates one of `stepped`.
    """
    others = [p for p in step.parameters if p not in stepped]
    results = [*(p.name + UPDATED for p in step.updates), "losses", *step.effect_operands]
    _check_names(step.name, [*scanned, *columns, *(p.name for p in (*stepped, *others)), *results])
    for parameter in stepped:
        if parameter in step.updates:
            raise ConfigError("a step may not assign a parameter that follows a schedule", parameter=parameter.name)
    kinds = dict(zip([*scanned, *columns], (symbol.type for symbol in fetch.inputs), strict=True))
    entries = {name: kinds[name] for name in scanned} | {p.name: p.type for p in stepped}
    body = _body(fetch, step, entries, columns)
    taken = [*(p.name for p in step.updates), *entries]
    attributes = {"body": body, "num_scan_inputs": len(entries), "name": "sink"}
    scan = onnx.helper.make_node("Scan", taken, results, **attributes)
    inputs = [_info(name, kind, stacked=name in scanned) for name, kind in kinds.items()]
    inputs += [_info(p.name, p.type, stacked=p in stepped) for p in (*stepped, *others)]
    outputs = [_info("losses", step.outputs[0].type, stacked=True)]
    outputs += [_info(p.name + UPDATED, p.type) for p in step.updates]
    outputs += [_info(name, x.type, stacked=True) for name, x in step.effect_operands.items()]
    return _model(onnx.helper.make_graph([scan], "sink", inputs, outputs))


def _body(fetch: Graph, step: Graph, entries: Mapping[str, TensorType], columns: Sequence[str]) -> GraphProto:
    """One step of a sink: takes what is carried and one entry each, gives what is carried on and the loss."""
    scanned = [name + ENTRY for name in entries][: len(fetch.inputs) - len(columns)]
    builder = OnnxBuilder(step.has_forms)
    names = Names(builder, dict(zip(fetch.inputs, [*scanned, *columns], strict=True)))
    _lower_nodes(builder, fetch, names)
    for image, fetched in zip(step.inputs, fetch.outputs, strict=True):
        names.give(image, names.of(fetched))
    for parameter, symbol in step.parameters.items():
        suffix = CARRIED if parameter in step.updates else ENTRY if parameter.name in entries else ""
        names.give(symbol, parameter.name + suffix)
    _lower_nodes(builder, step, names)
    taken = {p.name + CARRIED: p.type for p in step.updates} | {n + ENTRY: kind for n, kind in entries.items()}
    made = {p.name + NEXT: s for p, s in step.updates.items()} | {"loss": step.outputs[0]}
    told = {name + TOLD: x for name, x in step.effect_operands.items()}
    return _graph(builder, "step", taken, made | told, names, {}, told)


def with_defaults(model: ModelProto, parameters: Mapping[str, np.ndarray]) -> bytes:
    """The model as a file that stands alone: the parameters get these values unless the caller feeds others."""
    return _with_initializers(model, parameters, keep=set(parameters))


def with_constants(model: ModelProto, parameters: Mapping[str, np.ndarray]) -> bytes:
    """The model as a file in which the parameters are constants."""
    return _with_initializers(model, parameters, keep=set())


def _with_initializers(model: ModelProto, parameters: Mapping[str, np.ndarray], keep: set[str]) -> bytes:
    standing = onnx.ModelProto()
    standing.CopyFrom(model)
    inputs = [i for i in standing.graph.input if i.name in keep or i.name not in parameters]
    del standing.graph.input[:]
    standing.graph.input.extend(inputs)
    standing.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.asarray(v, order="C"), k) for k, v in parameters.items()
    )
    return bytes(standing.SerializeToString(deterministic=True))


def _check_names(graph: str, names: Sequence[str]) -> None:
    known: set[str] = set()
    for name in names:
        if not name:
            raise ConfigError("a parameter needs a name", graph=graph, repair="make it an attribute of a cell")
        if name in known:
            raise ConfigError("two values have one name", name=name, graph=graph, repair="rename one of the parameters")
        known.add(name)


def _lower_nodes(builder: OnnxBuilder, graph: Graph, names: Names) -> None:
    """Lower constants and nodes; `names` learns what each value is called."""
    for symbol, array in graph.constants.items():
        names.give(symbol, builder.const(np.asarray(array)))
    for node in graph.nodes:
        _lower_node(builder, node, names)


def _graph(
    builder: OnnxBuilder,
    name: str,
    inputs: Mapping[str, TensorType],
    outputs: Mapping[str, Symbol],
    names: Names,
    ways: Mapping[Value, Layout],
    observed: Collection[str],
) -> GraphProto:
    """What the builder has collected, with results under their public names; effects read those `observed`."""
    made = [names.of(symbol, ways.get(symbol, PLAIN)) for symbol in outputs.values()]
    kept = [name for name, result in zip(made, outputs, strict=True) if result not in observed]
    lowered = fuse(builder, kept, made) if builder.on_host else builder.list
    # An input is not made here, and neither is what the body of a sink takes from around it.
    inner = {output for node in lowered for output in node.output}
    nodes = _name_results(lowered, made, list(outputs), inner)
    used = {value for node in nodes for value in node.input} | set(outputs)
    graph: GraphProto = onnx.helper.make_graph(
        [_without_unused_outputs(n, used) for n in nodes],
        name,
        [_info(value, type) for value, type in inputs.items()],
        [_info(value, _lying(symbol, ways)) for value, symbol in outputs.items()],
        list(builder.constants.values()),
    )
    return graph


def _model(graph: GraphProto) -> ModelProto:
    opsets = [onnx.helper.make_opsetid(name, version) for name, version in OPSETS.items() if name in _domains(graph)]
    return _checked(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="runner"))


def _domains(graph: GraphProto) -> set[str]:
    """The operator sets that a graph uses, ONNX's own in any case."""
    inner = (_domains(a.g) for node in graph.node for a in node.attribute if a.HasField("g"))
    return {""}.union((node.domain for node in graph.node), *inner)


def _lower_node(builder: OnnxBuilder, node: Node, names: Names) -> None:
    builder.operator = node.name
    form = node.form or Form("plain", node.op.lower)
    ways = zip(node.inputs, chain(form.operands, repeat(PLAIN)), strict=False)
    operands = [names.of(x, wanted) for x, wanted in ways]
    rounds = is_rounded(node, builder.on_host)
    try:
        made = form.lower(builder, *(widened(builder, node, form, operands) if rounds else operands))
    except RunnerError as error:
        raise error.add(operator=node.name, line=user_line(node.source)) from None
    results = [made] if isinstance(made, str) else list(made)
    results = narrowed(builder, node, results) if rounds else results
    for symbol, name, lies in zip(node.outputs, results, chain(form.results, repeat(PLAIN)), strict=False):
        names.give(symbol, name, lies)


def _name_results(
    nodes: Sequence[NodeProto], made: Sequence[str], results: Sequence[str], inner: set[str]
) -> list[NodeProto]:
    """Give the results their public names: directly at the node that makes them, since an Identity would copy."""
    renamed: dict[str, str] = {}
    copies: list[NodeProto] = []
    for name, result in zip(made, results, strict=True):
        if name not in inner or name in renamed:
            copies.append(
                onnx.helper.make_node("Identity", [renamed.get(name, name)], [result], name=f"{result}/Identity")
            )
        else:
            renamed[name] = result
    for node in nodes:
        for names in (node.input, node.output):
            names[:] = [renamed.get(name, name) for name in names]
    return [*nodes, *copies]


def _without_unused_outputs(node: NodeProto, used: set[str]) -> NodeProto:
    """Leave out what nothing reads at the end of the outputs (MaxPool's positions cost ten times the pool).

    Those of a Split are its pieces, and all there.
    """
    while node.op_type != "Split" and len(node.output) > 1 and node.output[-1] not in used:
        del node.output[-1]
    return node


def _lying(symbol: Symbol, ways: Mapping[Value, Layout]) -> TensorType:
    return symbol.type.with_shape(*physical_shape(symbol.shape, ways.get(symbol, PLAIN)))


def _info(name: str, type: TensorType, stacked: bool = False) -> ValueInfoProto:
    """Name and type of an input or output; `stacked` puts the steps of a sink in front."""
    shape = ("steps", *type.shape) if stacked else type.shape
    made: ValueInfoProto = onnx.helper.make_tensor_value_info(name, element_type(type.dtype), shape)
    return made


def _checked(model: ModelProto) -> ModelProto:
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as reason:
        raise InternalError("ONNX does not accept the lowered graph", graph=model.graph.name, reason=reason) from reason
    return model


def parameters_in(graph: Graph) -> dict[str, np.ndarray]:
    """The present values of a graph's parameters by name."""
    return {p.name: p.data for p in graph.parameters}
