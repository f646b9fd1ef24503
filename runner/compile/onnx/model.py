"""ONNX models as such: made and checked, with other defaults, constants and metadata, and what they need and return."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from runner.compile.onnx.builder import all_graphs, onnx
from runner.core.lowering import FUSED
from runner.errors import InternalError

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto as ModelProto, ValueInfoProto
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
