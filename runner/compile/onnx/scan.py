"""Models of several training steps in one call: a Scan has the model of one step as its body.

`lower_sunk` makes them of graphs, for sinks; `repeat_step` of the model of a step, for exports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from runner.compile.onnx.builder import OnnxBuilder, ValueNames, onnx, rename_operands
from runner.compile.onnx.lower import UPDATED, check_names, column_names, graph_proto, lower_nodes, value_info
from runner.compile.onnx.model import check, make_model
from runner.core.graph import NO_LOSS, RETURN_LOSS, Graph
from runner.core.values import Parameter
from runner.errors import ConfigError
from runner.types import TensorType

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto


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
