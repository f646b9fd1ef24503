"""Models in another version of the ONNX operators than the one that they are lowered in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.compile.onnx.builder import all_graphs, onnx, source_operators
from runner.compile.onnx.model import OPSETS, check
from runner.errors import ConfigError, InternalError

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

OPSET = OPSETS[""]
LEAST = 13  # the versions before it have other inputs of Softmax, Split, Squeeze and ReduceSum
CHANGED = 18  # reductions have their axes as an input, before as an attribute; Split has `num_outputs`
ALWAYS_INPUT = "ReduceSum"  # since 13


def require_opset(opset: int) -> None:
    """Raise ConfigError unless models can be written in this version."""
    newest = int(onnx.defs.onnx_opset_version())
    if not LEAST <= opset <= newest:
        rows = {"opset": opset, "allowed": f"{LEAST} to {newest}"}
        raise ConfigError("no version of the ONNX operators that can be written", **rows)


def with_opset(model: ModelProto, opset: int) -> ModelProto:
    """The model in this version of the standard operators.

    Raises ConfigError for a version out of range, and with the operators of the network that need a newer one.
    """
    require_opset(opset)
    if opset == OPSET:
        return model
    converted: ModelProto = onnx.ModelProto()
    converted.CopyFrom(model)
    if opset < CHANGED:
        _write_as_before(converted)
    if newer := _newer(converted, opset):
        lines = [f"{kind} (opset {since}) at {place}" for kind, (since, place) in newer.items()]
        needed = max(since for since, _ in newer.values())
        rows = {"opset": opset, "needs_a_newer_one": "\n".join(lines), "repair": f"--opset {needed} or newer"}
        raise ConfigError("the model needs a newer version of the ONNX operators", **rows)
    for entry in converted.opset_import:
        if entry.domain == "":
            entry.version = opset
    try:
        return check(converted)
    except InternalError as error:
        rows = {"opset": opset, "reason": error.rows.get("reason"), "repair": f"--opset {OPSET}"}
        raise ConfigError("the model cannot be written in this version of the ONNX operators", **rows) from error


def _write_as_before(model: ModelProto) -> None:
    """Change reductions with constant axes, and splits into equal parts, to what they were before opset 18."""
    known: dict[str, list[int]] = {}
    for graph in all_graphs(model.graph):
        known |= {x.name: onnx.numpy_helper.to_array(x).tolist() for x in graph.initializer if x.data_type == 7}
    for graph in all_graphs(model.graph):
        for node in graph.node:
            if node.op_type == "Split":
                kept = [attribute for attribute in node.attribute if attribute.name != "num_outputs"]
                del node.attribute[:]
                node.attribute.extend(kept)
            is_reduction = node.op_type.startswith("Reduce") and node.op_type != ALWAYS_INPUT
            if is_reduction and len(node.input) == 2 and node.input[1] in known:
                node.attribute.append(onnx.helper.make_attribute("axes", known[node.input[1]]))
                del node.input[1:]


def _newer(model: ModelProto, opset: int) -> dict[str, tuple[int, str]]:
    """The kinds of nodes that this version does not have in this form: since when, and an operator that needs it."""
    found: dict[str, tuple[int, str]] = {}
    for graph in all_graphs(model.graph):
        for node in graph.node:
            if not _is_valid(node, opset):
                since = onnx.defs.get_schema(node.op_type, OPSET, "").since_version
                found.setdefault(node.op_type, (since, (source_operators(node) or (node.name,))[0]))
    return found


def _is_valid(node: NodeProto, opset: int) -> bool:
    """Whether a node has the inputs and attributes of this version."""
    try:
        schema = onnx.defs.get_schema(node.op_type, opset, "")
    except onnx.defs.SchemaError:
        return False
    known = {attribute.name for attribute in node.attribute} <= set(schema.attributes)
    return known and schema.min_input <= len(node.input) <= schema.max_input
