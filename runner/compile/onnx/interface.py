"""The inputs and outputs of a model, for programs that call it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from runner.compile.onnx.builder import onnx

if TYPE_CHECKING:
    from onnx import ModelProto, ValueInfoProto


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
