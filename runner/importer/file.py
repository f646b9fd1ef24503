"""Reads an ONNX file. It is never executed; sizes are checked before memory is taken.

`read_model`, at the end, makes plain records of it: `OnnxGraph`, with local functions inlined and the nodes in order.
The protobuf parser of `onnx` bounds how deeply messages are nested. Models above 2 GiB keep their elements in other
files, which `ExternalData` reads.
"""

import math
import os
import re
import sys
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx
import onnx.inliner
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # of the parser in `onnx`
from onnx import numpy_helper

from runner import dtype as dt
from runner.errors import ConfigError, DataError, known_names, some
from runner.host.files import open_regular, read_bytes
from runner.host.machine import require_memory

# The content of an ONNX model as plain records: nodes, initializers as numpy arrays, inputs and outputs.


@dataclass(frozen=True)
class OnnxValue:
    """An input or output: its name, element type, and lengths, where a symbolic one is a text."""

    name: str
    dtype: dt.DType | None
    shape: tuple[int | str, ...] | None

    def __str__(self) -> str:
        lengths = " of unknown shape" if self.shape is None else f"[{', '.join(map(str, self.shape))}]"
        return f"{self.name}: {self.dtype or 'unknown type'}{lengths}"


@dataclass(frozen=True)
class ExportedCall:
    """The call of a torch operator of which a node is a part, as PyTorch's exporter noted it: its result, the operator,
    and the values that it passes, by their names in the exported program.

    >>> ExportedCall.of("%y : [] = call_function[target=torch.ops.aten.mm.default](args = (%x, %p_w), kwargs = {})")
    ExportedCall(result='y', operator='aten.mm', passes=('x', 'p_w'))
    """

    result: str
    operator: str
    passes: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> "ExportedCall | None":
        """None if there is no such note, or it has another form."""
        found = _CALL.match(text)
        if found is None:
            return None
        operator = ".".join(found[2].removeprefix("torch.ops.").split(".")[:2])
        return cls(found[1], operator, tuple(_PASSED.findall(text, found.end())))


_CALL = re.compile(r"%(\w+) : .*?call_function\[target=([\w.]+)\]")
_PASSED = re.compile(r"%(\w+)")


@dataclass(frozen=True, eq=False)
class OnnxNode:
    """A node. `number` counts from 1 in the order of the file; "" in `inputs` is one that is left out.

    `layer` is the path of the layer that it comes from, `call` the call, where the exporter noted them.
    """

    name: str
    op_type: str
    domain: str
    opset: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    number: int
    layer: str = ""
    call: ExportedCall | None = None

    @property
    def operator(self) -> str:
        """The operator with its domain, if it is not that of ONNX."""
        return f"{self.domain}.{self.op_type}" if self.domain else self.op_type

    @property
    def graphs(self) -> tuple["OnnxGraph", ...]:
        """The graphs among the attributes: the branches of If, the body of Loop."""
        return tuple(value for value in self.attributes.values() if isinstance(value, OnnxGraph))

    @property
    def reads(self) -> set[str]:
        """The names that it reads, also those that its graphs read from outside."""
        inner = [name for graph in self.graphs for name in graph.captures]
        return {name for name in (*self.inputs, *inner) if name}

    def renamed(self, names: Mapping[str, str]) -> "OnnxNode":
        """The node, with its graphs, that reads values under other names."""
        if not self.reads & names.keys():
            return self
        inputs = tuple([names.get(name, name) for name in self.inputs])
        attributes = {k: x.renamed(names) if isinstance(x, OnnxGraph) else x for k, x in self.attributes.items()}
        return replace(self, inputs=inputs, attributes=attributes)

    def __str__(self) -> str:
        return f"{self.operator}({', '.join(self.inputs)}) -> {', '.join(self.outputs)}"


@dataclass(frozen=True, eq=False)
class OnnxGraph:
    """A graph: its nodes are in an order in which each reads what earlier ones write.

    `weights` are the initializers of the file; other arrays come from Constant nodes. `signature` has the parameters
    and buffers of the program that PyTorch exported, where the file says so: by their names there (`p_fc_bias`) the
    kind (`PARAMETER`, `BUFFER`) and the name in the network (`fc.bias`).
    """

    name: str
    nodes: tuple[OnnxNode, ...]
    initializers: Mapping[str, np.ndarray]
    inputs: tuple[OnnxValue, ...]
    outputs: tuple[OnnxValue, ...]
    weights: Collection[str] = ()
    files: tuple[Path, ...] = ()  # with external data
    producer: str = ""
    signature: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def captures(self) -> set[str]:
        """The names that it reads from the graph around it."""
        written = {name for node in self.nodes for name in node.outputs} | self.initializers.keys()
        written |= {value.name for value in self.inputs}
        read = {name for node in self.nodes for name in node.reads} | {value.name for value in self.outputs}
        return read - written

    def all_nodes(self) -> list[OnnxNode]:
        """The nodes, and those of the graphs inside of them."""
        found = []
        for node in self.nodes:
            found += [node, *(inner for graph in node.graphs for inner in graph.all_nodes())]
        return found

    def pruned(self, output: str) -> "OnnxGraph":
        """The part of which an output is computed."""
        needed, kept = {output}, []
        for node in reversed(self.nodes):
            if needed.intersection(node.outputs):
                kept.append(node)
                needed |= node.reads
        arrays = {name: array for name, array in self.initializers.items() if name in needed}
        outputs = tuple(value for value in self.outputs if value.name == output)
        inputs = tuple(value for value in self.inputs if value.name in needed)
        return replace(self, nodes=tuple(reversed(kept)), initializers=arrays, inputs=inputs, outputs=outputs)

    def renamed(self, names: Mapping[str, str]) -> "OnnxGraph":
        """The graph, also inside of its nodes, that reads values under other names."""
        nodes = tuple([node.renamed(names) for node in self.nodes])
        outputs = tuple([replace(value, name=names.get(value.name, value.name)) for value in self.outputs])
        return replace(self, nodes=nodes, outputs=outputs)

    def without_initializers(self, names: Container[str]) -> "OnnxGraph":
        """The graph without these arrays, which are held elsewhere."""
        return replace(self, initializers={name: x for name, x in self.initializers.items() if name not in names})


# Tensors of an ONNX model whose elements are in other files: those below the model's directory, of the right size.

ALLOWED = "a file below the directory of the model"


class ExternalData:
    """The files beside a model. Nothing outside of its directory is opened, whatever the model says."""

    def __init__(self, model: Path) -> None:
        self.model = model
        self.folder = Path(os.path.realpath(model.parent))
        self._files: set[Path] = set()

    @property
    def files(self) -> tuple[Path, ...]:
        """Those that were read."""
        return tuple(sorted(self._files))

    def array(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...], entries: dict[str, str]) -> np.ndarray:
        """The elements of a tensor. Raises DataError for another place, and for another length than the type has."""
        needed = math.prod(shape) * dtype.itemsize
        path = self._path(name, entries.get("location", ""))
        self._files.add(path)
        offset, length = (self._whole(name, entries, key) for key in ("offset", "length"))
        if length is not None and length != needed:
            what = "external data have another length than the tensor"
            raise DataError(what, tensor=name, file=path, declared=length, expected=needed, model=self.model)
        require_memory(needed, tensor=name, model=self.model)
        try:
            with open_regular(path, 1 << 62) as file:
                return self._read(file, offset or 0, needed, dtype).reshape(shape)
        except DataError as error:
            raise error.add(tensor=name, model=self.model) from None

    def _path(self, name: str, location: str) -> Path:
        path = Path(os.path.realpath(self.folder / location))
        if not location or os.path.isabs(location) or "\0" in location or self.folder not in path.parents:
            what = "external data are outside of the model's directory"
            raise DataError(what, tensor=name, location=repr(location), model=self.model, allowed=ALLOWED)
        return path

    def _whole(self, name: str, entries: dict[str, str], key: str) -> int | None:
        text = entries.get(key)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit() and len(text) < 19):
            raise DataError(f"{key} of external data is no number", tensor=name, value=repr(text), model=self.model)
        return int(text)

    def _read(self, file: BinaryIO | Any, offset: int, needed: int, dtype: np.dtype[Any]) -> np.ndarray:
        size = os.fstat(file.fileno()).st_size
        if offset + needed > size:
            raise DataError(
                "a file of external data is too short", file=file.name, expected=offset + needed, found=size
            )
        file.seek(offset)
        data = file.read(needed)
        if len(data) != needed:
            raise DataError("a file of external data is too short", file=file.name, expected=needed, found=len(data))
        return np.frombuffer(data, dtype)


# The local functions of an ONNX model, which `onnx` inlines once it is known that none calls itself.

MOST_INLINED = 20_000
Key = tuple[str, str]


def inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without local functions. Raises DataError for functions that call each other in a circle."""
    if not model.functions:
        return model
    calls = {(f.domain, f.name): list(_called(f.node)) for f in model.functions}
    sizes: dict[Key, int] = {}
    try:
        for key in TopologicalSorter(calls).static_order():
            sizes[key] = 1 + sum(sizes.get(inner, 1) for inner in calls.get(key, []))
    except CycleError as error:
        names = " -> ".join(".".join(key) for key in error.args[1])
        raise DataError("functions of an ONNX file call each other in a circle", functions=names) from None
    total = sum(sizes.get(key, 1) for key in _called(model.graph.node))
    if total > MOST_INLINED:
        rows = {"nodes": total, "allowed": f"at most {MOST_INLINED}"}
        raise DataError("the functions of an ONNX file have too many nodes", **rows)
    return onnx.inliner.inline_local_functions(model)


def _called(nodes: object) -> Iterator[Key]:
    for node in nodes:  # type: ignore[attr-defined]
        yield node.domain, node.op_type
        for attribute in node.attribute:
            yield from _called(attribute.g.node)


# The attributes that ONNX declares for its operators.

Kinds = onnx.AttributeProto


def require_attributes(proto: onnx.NodeProto, domain: str, opset: int, name: str) -> None:
    """Raise ConfigError for an attribute that its operator does not declare, or declares with another type."""
    declared = _declared(proto.op_type, domain, opset)
    where = {"node": name, "operator": f"{proto.op_type}, opset {opset}"}
    if declared is None:
        return
    for attribute in proto.attribute:
        if attribute.name not in declared:
            what = "ONNX declares no such attribute of an operator"
            rows = known_names(attribute.name, [*declared]) if declared else {"allowed": "none"}
            raise ConfigError(what, **where, attribute=attribute.name, **rows)
        expected = int(declared[attribute.name].type.value)
        if attribute.type != expected:
            types = {"given": _label(attribute.type), "allowed": _label(expected)}
            what = "an attribute has another type than ONNX declares"
            raise ConfigError(what, **where, attribute=attribute.name, **types)


def default_of(node: OnnxNode, name: str) -> Any:
    """The value that ONNX declares for an attribute that is left out; None if there is none."""
    declared = _declared(node.op_type, node.domain, node.opset) or {}
    default = declared[name].default_value if name in declared else None
    value = onnx.helper.get_attribute_value(default) if default is not None and default.type else None
    return value.decode() if isinstance(value, bytes) else value


@cache
def _declared(operator: str, domain: str, opset: int) -> Mapping[str, Any] | None:
    """The attributes by name; None for an operator of which ONNX declares nothing."""
    try:
        return dict(onnx.defs.get_schema(operator, opset, domain).attributes)
    except onnx.defs.SchemaError:
        return None


def _label(kind: int) -> str:
    return str(Kinds.AttributeType.Name(kind)) if kind in Kinds.AttributeType.values() else str(kind)


# The order of the nodes of an ONNX graph, which damaged or hand-written files do not keep.


def in_order(nodes: Sequence[OnnxNode], known: Iterable[str]) -> tuple[OnnxNode, ...]:
    """The nodes so that each reads what is `known` or what earlier ones write; their order in the file where it can be.

    Raises DataError for two nodes that write one name, and for nodes that read their own results.
    """
    writers: dict[str, int] = {}
    for k, node in enumerate(nodes):
        for name in filter(None, node.outputs):
            if name in writers:
                rows = {"value": name, "first": nodes[writers[name]], "second": node}
                raise DataError("two nodes write one value", **rows)
            writers[name] = k
    for name in known:
        if name in writers:
            raise DataError("a node writes an input or an initializer", value=name, node=nodes[writers[name]])
    return tuple(nodes[k] for k in _order(nodes, writers))


def _order(nodes: Sequence[OnnxNode], writers: dict[str, int]) -> Iterable[int]:
    waits = {k: {writers[name] for name in node.reads if name in writers} for k, node in enumerate(nodes)}
    if all(before < k for k, others in waits.items() for before in others):
        return waits
    try:
        return list(TopologicalSorter(waits).static_order())
    except CycleError as error:
        rows = {"nodes": some([str(nodes[k]) for k in reversed(error.args[1])], 6)}
        raise DataError("the graph has a cycle", **rows) from None


# Files and their messages.

MAX_BYTES = (1 << 31) - 1  # of protobuf
MOST_NODES = 20_000
OLDEST_OPSET = 9
REPAIR = "export it again, or copy the file again"


def read_model(path: Path) -> OnnxGraph:
    """The main graph of an ONNX file.

    Raises DataError for a file that is missing, damaged or refers to files elsewhere, ConfigError for one that cannot
    be imported: too old, too large, or with tensors of other element types.
    """
    model = _parsed(path, read_bytes(path, MAX_BYTES))
    try:
        graph = _Reader(path, _opsets(model)).main_graph(inlined(model).graph)
        return replace(graph, producer=model.producer_name, signature=_signature(model.graph))
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
    """The opset of each domain. Raises ConfigError for one below 9, or above the newest that `onnx` knows."""
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    opsets[""] = opsets.get("", opsets.pop("ai.onnx", 0))
    if 0 < opsets[""] < OLDEST_OPSET:
        allowed, repair = f"{OLDEST_OPSET} and newer", "onnx.version_converter.convert_version(model, 13)"
        raise ConfigError("the opset of an ONNX file is too old", opset=opsets[""], allowed=allowed, repair=repair)
    newest = onnx.defs.onnx_opset_version()
    if opsets[""] > newest:
        allowed, repair = f"{OLDEST_OPSET} to {newest}, which onnx {onnx.__version__} knows", "pip install -U onnx"
        raise ConfigError("the opset of an ONNX file is too new", opset=opsets[""], allowed=allowed, repair=repair)
    return opsets


def operators_of_onnx() -> set[str]:
    """The operators that ONNX defines, in any opset, as nodes of them have them in `operator`."""
    return {f"{schema.domain}.{schema.name}".lstrip(".") for schema in onnx.defs.get_all_schemas_with_history()}


def changed_since(node: OnnxNode, opset: int) -> int | None:
    """The opset after this one, up to that of the file, in which ONNX changed the operator of a node, if it did."""
    try:
        since = int(onnx.defs.get_schema(node.op_type, node.opset, node.domain).since_version)
    except onnx.defs.SchemaError:
        return None
    return since if since > opset and not node.domain else None


class _Reader:
    """Converts the messages of one file."""

    def __init__(self, path: Path, opsets: Mapping[str, int]) -> None:
        self.opsets, self.external, self.count = opsets, ExternalData(path), 0
        self.moved: dict[str, np.ndarray] = {}  # from graphs inside of nodes to the outermost one
        self.moved_weights: set[str] = set()

    def main_graph(self, proto: onnx.GraphProto) -> OnnxGraph:
        """The graph of the file, with the initializers of the graphs inside of it, which are weights like others."""
        graph = self.graph(proto)
        arrays = {**self.moved, **graph.initializers}
        return replace(graph, initializers=arrays, weights={*graph.weights, *self.moved_weights})

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
            require_attributes(proto, domain, opset, name)
            attributes = {a.name: self._attribute(a) for a in proto.attribute}
            names = tuple(proto.input), tuple(proto.output)
            notes = {entry.key.removeprefix(TORCH): entry.value for entry in proto.metadata_props}
            call = ExportedCall.of(notes.get("onnx.fx_node", ""))
            plain = name.strip("/")
            yield OnnxNode(plain, proto.op_type, domain, opset, *names, attributes, self.count, _layer(notes), call)

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
                return self._inner(self.graph(proto.g))
            case Kinds.FLOATS:
                return tuple(proto.floats)
            case Kinds.INTS:
                return tuple(proto.ints)
            case Kinds.STRINGS:
                return tuple(text.decode(errors="replace") for text in proto.strings)
        return None  # a rule that reads it reports the attribute as missing

    def _inner(self, graph: OnnxGraph) -> OnnxGraph:
        """A graph inside of a node, whose initializers are moved out of it; two branches may have one name for them."""
        arrays = graph.initializers
        names = {name: f"{name}.{len(self.moved)}" if name in self.moved else name for name in arrays}
        self.moved |= {names[name]: array for name, array in arrays.items()}
        self.moved_weights |= {names[name] for name in graph.weights}
        return replace(graph, initializers={}, weights=()).renamed(names)

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


TORCH = "pkg.torch."  # before the names of the notes of PyTorch's exporter
_ENTRY = re.compile(r"^(\w+): (PARAMETER|BUFFER) target='([^']+)'", re.MULTILINE)


def _signature(proto: onnx.GraphProto) -> dict[str, tuple[str, str]]:
    notes = {entry.key.removeprefix(TORCH): entry.value for entry in proto.metadata_props}
    entries = _ENTRY.findall(notes.get("export.ExportedProgram.graph_signature", ""))
    return {name: (kind, target) for name, kind, target in entries}


def _layer(notes: Mapping[str, str]) -> str:
    """The path of the layer: PyTorch lists its steps, and then the operator, as "['', 'conv', 'conv.0', 'relu']"."""
    steps = notes.get("onnx.name_scopes", "").strip("[]").split(", ")
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
        hint = "a model in Float32; of a quantized model, the original" if re.search("INT4|FLOAT", str(label)) else None
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
