"""Several training steps in one call: a model whose Scan has the model of one step as its body."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from runner.compile.onnx.builder import onnx, rename_operands
from runner.compile.onnx.lower import CARRIED, ENTRY, NEXT, check

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, ValueInfoProto

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
        body=_body(step, scanned, carried, counter),
        num_scan_inputs=len(scanned),
    )
    stacked = [_stacked(inputs[name], name, steps) if name in scanned else inputs[name] for name in inputs]
    results = [_stacked(outputs[LOSS], LOSSES, steps), *states.values()]
    model: ModelProto = onnx.ModelProto()
    model.CopyFrom(step)
    model.graph.CopyFrom(onnx.helper.make_graph([scan], "train_steps", stacked, results))
    return check(model)


def _body(step: ModelProto, scanned: Sequence[str], carried: Mapping[str, str], counter: str | None) -> object:
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
