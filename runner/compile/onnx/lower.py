"""Lowering of a graph to a checked ONNX model. Parameters are inputs of the model, updated parameters are outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from runner.compile.onnx.builder import OnnxBuilder, all_graphs, onnx
from runner.compile.onnx.graph_proto import described, graph_proto, lower_nodes
from runner.compile.onnx.names import ValueNames, free_names
from runner.core.graph import NO_LOSS, RETURN_LOSS, Graph
from runner.core.lowering import FUSED, Layout
from runner.core.values import Parameter, Symbol, Value
from runner.errors import ConfigError, InternalError
from runner.types import TensorType

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto as ModelProto

OPSETS = {"": 18, FUSED: 1}  # 18: BitwiseXor, and reductions with axes as inputs
IR_VERSION = 9
UPDATED = ".updated"  # the input `conv1.weight` has the output `conv1.weight.updated`
# Suffixes inside a sink, with a colon, which no parameter name contains.
ENTRY, CARRIED, NEXT, EMITTED = ":entry", ":carried", ":next", ":emitted"


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
    _check_names(graph.name, [*input_names, *(p.name for p in graph.parameters), *results])
    inputs: dict[Value, str] = dict(zip(graph.inputs, input_names, strict=True))
    inputs |= {symbol: parameter.name for parameter, symbol in graph.parameters.items()}
    builder = OnnxBuilder(graph.has_forms)
    names = ValueNames(builder, inputs)
    lower_nodes(builder, graph, names)
    types = {name: x.type for x, name in inputs.items()}
    outputs = dict(zip(results, graph.results, strict=True))
    lowered = graph_proto(builder, graph.name, types, outputs, names, layouts or {}, graph.effect_operands)
    return _model(lowered if types or outputs else _with_a_value(lowered), checked)


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
    _check_names(step.name, [*scanned, *columns, *(p.name for p in (*stepped, *others)), *results, "loss"])
    for parameter in stepped:
        if parameter in step.updates:
            raise ConfigError("a step may not assign a parameter that follows a schedule", parameter=parameter.name)
    kinds = dict(zip([*scanned, *columns], (symbol.type for symbol in fetch.inputs), strict=True))
    entries = {name: kinds[name] for name in scanned} | {p.name: p.type for p in stepped}
    body = _body(fetch, step, entries, columns)
    operands = [*(p.name for p in step.updates), *entries]
    attributes = {"body": body, "num_scan_inputs": len(entries), "name": "sink"}
    scan = onnx.helper.make_node("Scan", operands, results, **attributes)
    inputs = [described(name, kind, stacked=name in scanned) for name, kind in kinds.items()]
    inputs += [described(p.name, p.type, stacked=p in fed) for p in (*stepped, *others)]
    outputs = [described("losses", step.outputs[0].type, stacked=True)]
    outputs += [described(p.name + UPDATED, p.type) for p in step.updates]
    outputs += [described(name, x.type, stacked=True) for name, x in step.effect_operands.items()]
    return _model(onnx.helper.make_graph([scan], "sink", inputs, outputs))


def _body(fetch: Graph, step: Graph, entries: Mapping[str, TensorType], columns: Sequence[str]) -> GraphProto:
    """The body of the Scan. Inputs: carried parameters and one entry each; outputs: carried parameters and the loss."""
    scanned = [name + ENTRY for name in entries][: len(fetch.inputs) - len(columns)]
    builder = OnnxBuilder(step.has_forms)
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


def with_defaults(model: ModelProto, parameters: Mapping[str, np.ndarray]) -> bytes:
    """The serialised model with these values as defaults of the parameters, which remain inputs."""
    return _with_initializers(model, parameters, keep=set(parameters))


def with_constants(model: ModelProto, parameters: Mapping[str, np.ndarray]) -> bytes:
    """The serialised model with the parameters as constants."""
    return _with_initializers(model, parameters, keep=set())


def with_metadata(model: ModelProto, entries: Mapping[str, str]) -> ModelProto:
    """The model with these entries of metadata, in this order."""
    described: ModelProto = onnx.ModelProto()
    described.CopyFrom(model)
    onnx.helper.set_model_props(described, dict(entries))
    return described


def _with_initializers(model: ModelProto, parameters: Mapping[str, np.ndarray], keep: set[str]) -> bytes:
    initialized = onnx.ModelProto()
    initialized.CopyFrom(model)
    inputs = [i for i in initialized.graph.input if i.name in keep or i.name not in parameters]
    del initialized.graph.input[:]
    initialized.graph.input.extend(inputs)
    initialized.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.asarray(v, order="C"), k) for k, v in parameters.items()
    )
    return bytes(initialized.SerializeToString(deterministic=True))


def _check_names(graph: str, names: Sequence[str]) -> None:
    known: set[str] = set()
    for name in names:
        if not name:
            raise ConfigError("a parameter needs a name", graph=graph, repair="make it an attribute of a cell")
        if name in known:
            raise ConfigError(
                "two values have the same name", name=name, graph=graph, repair="rename one of the parameters"
            )
        known.add(name)


def _model(graph: GraphProto, checked: bool = True) -> ModelProto:
    domains = {"", *(node.domain for inner in all_graphs(graph) for node in inner.node)}
    opsets = [onnx.helper.make_opsetid(name, version) for name, version in OPSETS.items() if name in domains]
    model: ModelProto = onnx.helper.make_model(
        graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="runner"
    )
    if checked:
        check(model)
    for inner in all_graphs(model.graph):
        del inner.value_info[:]  # only for the check: a model may be generalized to other lengths of its axes
    return model


def parse_model(content: bytes) -> ModelProto:
    """The model that was serialised."""
    model: ModelProto = onnx.ModelProto.FromString(content)
    return model


def check(model: ModelProto) -> ModelProto:
    """The model, if ONNX accepts it. Raises InternalError."""
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as reason:
        raise InternalError("ONNX does not accept the lowered graph", graph=model.graph.name, reason=reason) from reason
    return model


def parameter_values(graph: Graph) -> dict[str, np.ndarray]:
    """The current values of a graph's parameters by name."""
    return {p.name: p.array for p in graph.parameters}
