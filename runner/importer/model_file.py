"""Reads an ONNX file. It is never executed; sizes are checked before memory is taken.

The protobuf parser of `onnx` bounds how deeply messages are nested. Models above 2 GiB keep their elements in other
files, which `external_data` reads.
"""

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # of the parser in `onnx`
from onnx import numpy_helper

from runner import dtype as dt
from runner.errors import ConfigError, DataError, some
from runner.host.files import read_bytes
from runner.host.machine import require_memory
from runner.importer.attribute_types import require_attribute_types
from runner.importer.external_data import ExternalData
from runner.importer.functions import inlined
from runner.importer.graph import OnnxGraph, OnnxNode, OnnxValue
from runner.importer.order import in_order

MAX_BYTES = (1 << 31) - 1  # of protobuf
MOST_NODES = 20_000
OLDEST_OPSET = 9
REPAIR = "export it again, or copy the file again"
Kinds = onnx.AttributeProto


def read_model(path: Path) -> OnnxGraph:
    """The main graph of an ONNX file.

    Raises DataError for a file that is missing, damaged or refers to files elsewhere, ConfigError for one that cannot
    be imported: too old, too large, or with tensors of other element types.
    """
    model = _parsed(path, read_bytes(path, MAX_BYTES))
    try:
        return _Reader(path, _opsets(model)).graph(inlined(model).graph)
    except (ConfigError, DataError) as error:
        raise error.add(file=path) from None


def with_all_outputs(path: Path, names: Sequence[str]) -> bytes:
    """The serialised model of a file that `read_model` has read, with these values as outputs.

    Raises ConfigError when it is too large for one message.
    """
    model = onnx.load(str(path))
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    if model.ByteSize() > MAX_BYTES:
        raise ConfigError("a model above 2 GiB cannot be executed with all values", file=path, bytes=model.ByteSize())
    return bytes(model.SerializeToString())


def _parsed(path: Path, data: bytes) -> onnx.ModelProto:
    require_memory(2 * len(data), file=path)
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except (DecodeError, ValueError) as reason:
        what = "not an ONNX file, or a damaged one"
        raise DataError(what, file=path, reason=reason, bytes=len(data), repair=REPAIR) from None
    if not model.HasField("graph") or not model.graph.node:
        raise DataError("an ONNX file without a graph", file=path, bytes=len(data), repair=REPAIR)
    count = len(model.graph.node) + sum(len(function.node) for function in model.functions)
    if count > MOST_NODES:
        raise ConfigError("an ONNX file with too many nodes", file=path, nodes=count, allowed=f"at most {MOST_NODES}")
    return model


def _opsets(model: onnx.ModelProto) -> dict[str, int]:
    """The opset of each domain. Raises ConfigError for one below 9."""
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    opsets[""] = opsets.get("", opsets.pop("ai.onnx", 0))
    if 0 < opsets[""] < OLDEST_OPSET:
        allowed, repair = f"{OLDEST_OPSET} and newer", "onnx.version_converter.convert_version(model, 13)"
        raise ConfigError("the opset of an ONNX file is too old", opset=opsets[""], allowed=allowed, repair=repair)
    return opsets


class _Reader:
    """Converts the messages of one file."""

    def __init__(self, path: Path, opsets: Mapping[str, int]) -> None:
        self.opsets, self.external, self.count = opsets, ExternalData(path), 0

    def graph(self, proto: onnx.GraphProto) -> OnnxGraph:
        arrays: dict[str, np.ndarray] = {}
        for tensor in proto.initializer:
            if tensor.name in arrays:
                raise DataError("two initializers have one name", value=tensor.name)
            if tensor.data_type != onnx.TensorProto.STRING:  # which only labels of classifiers are
                arrays[tensor.name] = self._array(tensor)
        if proto.sparse_initializer:
            names = [tensor.values.name for tensor in proto.sparse_initializer]
            raise ConfigError("sparse initializers cannot be imported", initializers=some(names, 5))
        weights = set(arrays)
        nodes = []
        for node in self._nodes(proto.node):
            if node.op_type == "Constant" and not node.domain:
                arrays[node.outputs[0]] = constant(node)
            else:
                nodes.append(node)
        inputs = tuple(_value(x) for x in proto.input if x.name not in weights)  # old files list initializers there
        ordered = in_order(nodes, [*arrays, *(x.name for x in inputs)])
        return OnnxGraph(
            proto.name, ordered, arrays, inputs, tuple(map(_value, proto.output)), weights, self.external.files
        )

    def _nodes(self, protos: Sequence[onnx.NodeProto]) -> Iterator[OnnxNode]:
        for proto in protos:
            self.count += 1
            domain = "" if proto.domain == "ai.onnx" else proto.domain
            name = proto.name or f"{proto.op_type}_{self.count}"
            opset = self.opsets.get(domain, 0)
            require_attribute_types(proto, domain, opset, name)
            attributes = {a.name: self._attribute(a) for a in proto.attribute}
            names = tuple(proto.input), tuple(proto.output)
            yield OnnxNode(name.strip("/"), proto.op_type, domain, opset, *names, attributes, self.count, _layer(proto))

    def _attribute(self, proto: onnx.AttributeProto) -> Any:
        match proto.type:
            case Kinds.FLOAT:
                return proto.f
            case Kinds.INT:
                return proto.i
            case Kinds.STRING:
                return proto.s.decode(errors="replace")
            case Kinds.TENSOR:
                return self._array(proto.t)
            case Kinds.GRAPH:
                return self.graph(proto.g)
            case Kinds.FLOATS:
                return tuple(proto.floats)
            case Kinds.INTS:
                return tuple(proto.ints)
            case Kinds.STRINGS:
                return tuple(text.decode(errors="replace") for text in proto.strings)
        return None  # a rule that reads it reports the attribute as missing

    def _array(self, tensor: onnx.TensorProto) -> np.ndarray:
        """The elements of a tensor. Raises DataError when their number is not that of its shape."""
        shape = tuple(tensor.dims)
        kind = _element_type(tensor.data_type, tensor.name)
        if any(n < 0 for n in shape) or math.prod(shape) > sys.maxsize // 16:
            raise DataError("a tensor has an impossible shape", tensor=tensor.name, shape=shape)
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            entries = {entry.key: entry.value for entry in tensor.external_data}
            return self.external.array(tensor.name, kind, shape, entries)
        found = _length(tensor, kind)
        if found != math.prod(shape):
            rows = {"tensor": tensor.name, "shape": shape, "expected": math.prod(shape), "found": found}
            raise DataError("a tensor has another number of elements than its shape", **rows, repair=REPAIR)
        return np.asarray(numpy_helper.to_array(tensor))


def _layer(proto: onnx.NodeProto) -> str:
    """The path of the layer: PyTorch lists its steps, and then the operator, as "['', 'conv', 'conv.0', 'relu']"."""
    notes = {entry.key: entry.value for entry in proto.metadata_props}
    steps = notes.get("pkg.torch.onnx.name_scopes", "").strip("[]").split(", ")
    return steps[-2].strip("'") if len(steps) > 1 else ""


def _length(tensor: onnx.TensorProto, kind: np.dtype[Any]) -> int:
    """How many elements the message of a tensor has."""
    if tensor.HasField("raw_data"):
        return len(tensor.raw_data) // kind.itemsize if len(tensor.raw_data) % kind.itemsize == 0 else -1
    packed = tensor.float_data, tensor.double_data, tensor.int32_data, tensor.int64_data, tensor.uint64_data
    return max(map(len, packed))


def _element_type(code: int, name: str) -> np.dtype[Any]:
    """Raises ConfigError for element types that no operator here has."""
    kinds = {kind.numpy.name for kind in dt.ALL}
    try:
        found = onnx.helper.tensor_dtype_to_np_dtype(code)
    except (KeyError, ValueError):
        found = None
    if found is None or found.name not in kinds:
        label = onnx.TensorProto.DataType.Name(code) if code in onnx.TensorProto.DataType.values() else code
        hint = "a model in Float32; of a quantized model, the original" if "INT4" in str(label) else None
        allowed = ", ".join(sorted(kinds))
        raise ConfigError("an element type is not supported", tensor=name, value=label, allowed=allowed, hint=hint)
    return found


def _value(proto: onnx.ValueInfoProto) -> OnnxValue:
    if not proto.type.HasField("tensor_type"):
        return OnnxValue(proto.name, None, None)
    tensor = proto.type.tensor_type
    is_text = tensor.elem_type in (0, onnx.TensorProto.STRING)
    kind = None if is_text else _element_type(tensor.elem_type, proto.name)
    shape = None
    if tensor.HasField("shape"):
        dims = tensor.shape.dim
        shape = tuple(d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in dims)
    return OnnxValue(proto.name, dt.of(kind) if kind is not None else None, shape)


def constant(node: OnnxNode) -> np.ndarray:
    """The value of a Constant node. Raises ConfigError for one of texts or sparse tensors."""
    values = [(name, value) for name, value in node.attributes.items() if name.startswith("value")]
    if len(values) == 1 and not isinstance(values[0][1], str | None | OnnxGraph):
        name, value = values[0]
        kind = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
        if isinstance(value, np.ndarray):
            return value
        if name in kind:
            return np.asarray(value, kind[name])
    raise ConfigError("a Constant is not a tensor of numbers", node=node.name, attributes=", ".join(node.attributes))
