"""ONNX models as such: made and checked, with other defaults, constants and metadata; what they need and return, for
programs that call them; and written in another version of the ONNX operators.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from runner.compile.onnx.builder import all_graphs, onnx, source_operators
from runner.core.lowering import FUSED
from runner.errors import ConfigError, InternalError

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto as ModelProto, NodeProto, ValueInfoProto
OPSETS = {"": 18, FUSED: 1}  # 18: BitwiseXor, and reductions with axes as inputs
IR_VERSION = 9


def make_model(graph: GraphProto, checked: bool = True) -> ModelProto:
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


def check(model: ModelProto) -> ModelProto:
    """The model, if ONNX accepts it. Raises InternalError."""
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as reason:
        raise InternalError("ONNX does not accept the lowered graph", graph=model.graph.name, reason=reason) from reason
    return model


def parse_model(content: bytes) -> ModelProto:
    """The model that was serialised."""
    model: ModelProto = onnx.ModelProto.FromString(content)
    return model


# Models with values of their parameters, and with metadata.


def with_defaults(model: ModelProto, parameters: Mapping[str, np.ndarray]) -> bytes:
    """The serialised model with these values as defaults of the parameters, which remain inputs."""
    return _with_initializers(model, parameters, keep=set(parameters))


def with_constants(model: ModelProto, parameters: Mapping[str, np.ndarray]) -> bytes:
    """The serialised model with the parameters as constants."""
    return _with_initializers(model, parameters, keep=set())


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


def with_metadata(model: ModelProto, entries: Mapping[str, str]) -> ModelProto:
    """The model with these entries of metadata, in this order."""
    value_info: ModelProto = onnx.ModelProto()
    value_info.CopyFrom(model)
    onnx.helper.set_model_props(value_info, dict(entries))
    return value_info


# The inputs and outputs of a model, for programs that call it.


class ModelValue(NamedTuple):
    """Name, element type (numpy's name) and shape of an input or output; an axis of any length has a name."""

    name: str
    type: str
    shape: tuple[int | str, ...]


def model_values(model: ModelProto) -> tuple[list[ModelValue], list[ModelValue]]:
    """The inputs that have to be fed, and the outputs, in the model's order."""
    constants = {x.name for x in model.graph.initializer}
    return _values(x for x in model.graph.input if x.name not in constants), _values(model.graph.output)


def _values(entries: Iterable[ValueInfoProto]) -> list[ModelValue]:
    values = []
    for entry in entries:
        kind = onnx.helper.tensor_dtype_to_np_dtype(entry.type.tensor_type.elem_type).name
        axes = entry.type.tensor_type.shape.dim
        shape = tuple([axis.dim_value if axis.HasField("dim_value") else axis.dim_param or "?" for axis in axes])
        values.append(ModelValue(entry.name, kind, shape))
    return values


# Models in another version of the ONNX operators than the one that they are lowered in.

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
