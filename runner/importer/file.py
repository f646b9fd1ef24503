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
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import chain, repeat
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

import numpy as np
import onnx
import onnx.checker
import onnx.inliner
from google.protobuf.message import DecodeError, Message  # type: ignore[import-untyped]  # of the parser in `onnx`
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
    """A node. `number` counts from 1, in the order of the file if it can be executed so.

    "" in `inputs` is one that is left out. `layer` is the path of the layer that it comes from, `call` the call, where
    the exporter noted them.
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
        path = Path(os.path.realpath(self.folder / location.partition("\0")[0]))
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


# The nodes of an ONNX model, also those in graphs inside of nodes.


def every(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes, and those of the graphs inside of them."""
    for node in nodes:
        yield node
        for graph in _graphs(node):
            yield from every(graph.node)


def _tensors(nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    """The tensors in the nodes, and in those of the graphs inside of them."""
    for node in every(nodes):
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors) if attribute.HasField("t") else attribute.tensors
        for graph in _graphs(node):
            yield from graph.initializer


def _graphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        yield from (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs


def _text(node: onnx.NodeProto) -> str:
    return f"{node.op_type}({', '.join(node.input)}) -> {', '.join(node.output)}"


# The local functions of an ONNX model, which `onnx` inlines once it is known that none calls itself.

MOST_INLINED, MOST_INLINED_BYTES = 20_000, 1 << 26
Key = tuple[str, str, str]  # domain, name and overload


def require_calls(model: onnx.ModelProto) -> None:
    """Raise DataError for functions of one name, that call each other in a circle or have too many nodes, and for calls
    that do not fit their function."""
    functions = {(f.domain, f.name, f.overload): f for f in model.functions}
    if len(functions) < len(model.functions):
        known = [".".join(filter(None, key)) for key in functions]
        raise DataError("two functions of an ONNX file have one name", functions=some(known, 5))
    calls = {key: list(_called(f.node)) for key, f in functions.items()}
    sizes, lengths = dict[Key, int](), dict[Key, int]()
    try:
        for key in TopologicalSorter(calls).static_order():
            sizes[key] = 1 + sum(sizes.get(inner, 1) for inner in calls.get(key, []))
            own = functions[key].ByteSize() if key in functions else 0
            lengths[key] = own + sum(lengths.get(inner, 0) for inner in calls.get(key, []))
    except CycleError as error:
        names = " -> ".join(".".join(filter(None, key)) for key in error.args[1])
        raise DataError("functions of an ONNX file call each other in a circle", functions=names) from None
    total = sum(sizes.get(key, 1) for key in _called(model.graph.node))
    if functions and total > MOST_INLINED:
        rows = {"nodes": total, "allowed": f"at most {MOST_INLINED}"}
        raise DataError("the functions of an ONNX file have too many nodes", **rows)
    inlined = sum(lengths.get(key, 0) for key in _called(model.graph.node))
    if inlined > MOST_INLINED_BYTES:
        allowed = f"at most {MOST_INLINED_BYTES}"
        raise DataError(
            "the functions of an ONNX file are too large where they are called", bytes=inlined, allowed=allowed
        )
    for nodes in (model.graph.node, *(f.node for f in functions.values())):
        for node in every(nodes):
            if function := functions.get((node.domain, node.op_type, node.overload)):
                _require_call(node, function)


def _called(nodes: Iterable[onnx.NodeProto]) -> Iterator[Key]:
    return ((node.domain, node.op_type, node.overload) for node in every(nodes))


def _require_call(node: onnx.NodeProto, function: onnx.FunctionProto) -> None:
    where = {"node": node.name or None, "function": f"{function.domain}.{function.name}"}
    for label, given, declared in (("inputs", node.input, function.input), ("outputs", node.output, function.output)):
        if len(given) > len(declared):
            what = f"a function is called with other {label} than it has"
            raise DataError(what, **where, given=len(given), allowed=f"at most {len(declared)}")
    known = [*function.attribute, *(attribute.name for attribute in function.attribute_proto)]
    for attribute in node.attribute:
        if attribute.name not in known:
            rows = known_names(attribute.name, known) if known else {"allowed": "none"}
            raise ConfigError("a function has no such attribute", **where, attribute=attribute.name, **rows)


# The attributes that ONNX declares for its operators.

Kinds = onnx.AttributeProto


def require_attributes(proto: onnx.NodeProto, domain: str, opset: int, name: str) -> None:
    """Raise ConfigError for an attribute that its operator does not declare, or declares with another type, and for one
    that it needs and has not."""
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
    given = {attribute.name for attribute in proto.attribute}
    if missing := [key for key, attribute in declared.items() if attribute.required and key not in given]:
        raise ConfigError("an attribute is missing", **where, attribute=missing[0])


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


def put_in_order(graph: onnx.GraphProto) -> None:
    """Sort the nodes, also in graphs inside of them, so that each reads what is known or what earlier ones write; their
    order in the file stays where it can.

    Raises DataError for two nodes that write one name, and for nodes that read their own results.
    """
    for node in graph.node:
        for inner in _graphs(node):
            put_in_order(inner)
    writers: dict[str, int] = {}
    for k, node in enumerate(graph.node):
        for name in filter(None, node.output):
            if name in writers:
                rows = {"value": name, "first": _text(graph.node[writers[name]]), "second": _text(node)}
                raise DataError("two nodes write one value", **rows)
            writers[name] = k
    for value in (*graph.input, *graph.initializer):
        if value.name in writers:
            rows = {"value": value.name, "node": _text(graph.node[writers[value.name]])}
            raise DataError("a node writes an input or an initializer", **rows)
    order = _order(graph.node, writers)
    if order != [*range(len(order))]:
        _replace(graph.node, [graph.node[k] for k in order])


def _replace(messages: Any, kept: Iterable[Message]) -> None:
    """Replace the messages of a list by others, which may be some of them."""
    copies = deepcopy([*kept])
    del messages[:]
    messages.extend(copies)


def _order(nodes: Sequence[onnx.NodeProto], writers: Mapping[str, int]) -> list[int]:
    waits = {k: {writers[name] for name in _read(node) if name in writers} for k, node in enumerate(nodes)}
    if all(before < k for k, others in waits.items() for before in others):
        return [*waits]
    try:
        return list(TopologicalSorter(waits).static_order())
    except CycleError as error:
        rows = {"nodes": some([_text(nodes[k]) for k in reversed(error.args[1])], 6)}
        raise DataError("the graph has a cycle", **rows) from None


def _read(node: onnx.NodeProto) -> set[str]:
    """The names that a node reads, also those that its graphs read from outside."""
    found = set(filter(None, node.input))
    for graph in _graphs(node):
        written = {name for inner in graph.node for name in inner.output}
        written |= {value.name for value in (*graph.input, *graph.initializer)}
        found |= {value.name for value in graph.output}.union(*map(_read, graph.node)) - written
    return found


# What ONNX does not allow. It is refused before a file is read any further.

LARGE_BYTES = 1 << 20  # of a tensor that the checker does not get
UNKNOWN = "runner.unknown"  # the domain of operators that ONNX does not know, which are refused with their reasons
_CONTEXT = re.compile(r"Name: (.*?) OpType: (\w*)")  # of the node, in what the checker says


def valid(model: onnx.ModelProto, opsets: Mapping[str, int]) -> onnx.ModelProto:
    """The model with its nodes in order, and without local functions.

    Raises DataError and ConfigError for what ONNX does not allow.
    """
    for tensor in (*model.graph.initializer, *_tensors(model.graph.node)):
        if tensor.data_type != onnx.TensorProto.STRING:
            require_elements(tensor)
    put_in_order(model.graph)
    require_calls(model)
    for number, node in enumerate(every(model.graph.node), start=1):
        domain = _domain(node)
        require_attributes(node, domain, opsets.get(domain, 0), node.name or f"{node.op_type}_{number}")
    _check(model)
    if model.functions:
        model = onnx.inliner.inline_local_functions(model)
        _check(model)
    return model


def _check(model: onnx.ModelProto) -> None:
    """Raise DataError for what ONNX's checker refuses."""
    try:
        onnx.checker.check_model(_for_checker(model))
    except onnx.checker.ValidationError as refusal:
        reason, _, context = str(refusal).partition("\n\n")
        node, operator = found.groups() if (found := _CONTEXT.search(context)) else (None, None)
        rows = {"node": node or None, "operator": operator or None, "reason": reason, "repair": REPAIR}
        raise DataError("ONNX's checker refuses an ONNX file", **rows) from None


def _for_checker(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without what the checker refuses, or cannot know, and a file may have: the version from before
    initializers without inputs, which ONNX's converter of opsets keeps; values of unknown shape; operators that have
    refusals of their own; large tensors and those in other files, of which it gets names and types."""
    graph = onnx.GraphProto(name=model.graph.name, node=model.graph.node)
    for name in ("input", "output", "value_info", "sparse_initializer"):
        getattr(graph, name).MergeFrom(getattr(model.graph, name))
    graph.initializer.extend(map(_small, model.graph.initializer))
    for value in (*graph.input, *graph.output):
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.shape.SetInParent()
    copy = onnx.ModelProto(graph=graph, opset_import=model.opset_import, functions=model.functions)
    copy.metadata_props.MergeFrom(model.metadata_props)
    if model.HasField("ir_version"):
        copy.ir_version = 4 if model.ir_version == 3 else model.ir_version
    copy.opset_import.add(domain=UNKNOWN, version=1)
    inner = [*chain(copy.graph.node, *(function.node for function in copy.functions))]
    for node in every(inner):
        if not _domain(node) and node.op_type and not onnx.defs.has(node.op_type):
            node.domain = UNKNOWN
    for tensor in _tensors(inner):
        tensor.CopyFrom(_small(tensor))
    return copy


def _small(tensor: onnx.TensorProto) -> onnx.TensorProto:
    if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.ByteSize() > LARGE_BYTES:
        return onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=[0])
    return tensor


def _domain(node: onnx.NodeProto) -> str:
    return "" if node.domain == "ai.onnx" else str(node.domain)


# The element types that ONNX allows for the operands of its operators.


@dataclass(frozen=True)
class _Formal:
    """An input or output of an operator: its type parameter, the types allowed, and whether it stands for many values
    that need not have one type."""

    parameter: str
    types: frozenset[str]
    is_mixed: bool


def require_types(graph: OnnxGraph, outer: Mapping[str, str] = MappingProxyType({})) -> None:
    """Raise DataError for an operand of an element type that its operator does not take, or of another than those with
    which it must agree; types that do not follow from those of inputs and weights are not compared."""
    kinds = {**outer, **{name: _kind(array.dtype) for name, array in graph.initializers.items()}}
    kinds |= {value.name: _kind(value.dtype.numpy) for value in graph.inputs if value.dtype}
    for node in graph.nodes:
        for inner in node.graphs:
            require_types(inner, kinds)
        if (formal := _formal(node.op_type, node.domain, node.opset)) is None:
            continue
        bound: dict[str, str] = {}
        for name, parameter in zip(node.inputs, _repeated(formal[0]), strict=False):
            if name in kinds:
                _require_type(node, name, kinds[name], parameter, bound)
        for name, parameter in zip(node.outputs, _repeated(formal[1]), strict=False):
            if len(parameter.types) == 1:
                kinds[name] = min(parameter.types)
            elif parameter.parameter in bound and not parameter.is_mixed:
                kinds[name] = bound[parameter.parameter]


def _require_type(node: OnnxNode, name: str, kind: str, formal: _Formal, bound: dict[str, str]) -> None:
    where = {"node": node.name, "operator": f"{node.op_type}, opset {node.opset}", "value": name, "type": kind}
    if kind not in formal.types:
        allowed = ", ".join(sorted(formal.types))
        raise DataError("a node reads an element type that its operator does not take", **where, allowed=allowed)
    if not formal.is_mixed and bound.setdefault(formal.parameter, kind) != kind:
        what = "a node reads different element types where its operator needs one"
        raise DataError(what, **where, allowed=bound[formal.parameter])


def _repeated(formal: tuple[_Formal, ...]) -> Iterator[_Formal]:
    return chain(formal, repeat(formal[-1])) if formal else iter(())


@cache
def _formal(operator: str, domain: str, opset: int) -> tuple[tuple[_Formal, ...], tuple[_Formal, ...]] | None:
    """The inputs and outputs of an operator; None for one of which ONNX declares nothing."""
    try:
        schema = onnx.defs.get_schema(operator, opset, domain)
    except onnx.defs.SchemaError:
        return None
    sides = schema.inputs, schema.outputs
    made = [tuple(_Formal(x.type_str, frozenset(x.types), not x.is_homogeneous) for x in side) for side in sides]
    return made[0], made[1]


def _kind(dtype: np.dtype[Any]) -> str:
    return f"tensor({onnx.TensorProto.DataType.Name(onnx.helper.np_dtype_to_tensor_dtype(dtype)).lower()})"


# Files and their messages.

MAX_BYTES = (1 << 31) - 1  # of protobuf
MOST_NODES = 20_000
MOST_PARTS = 2_000_000  # twice those that PyTorch writes for as many nodes
OLDEST_OPSET = 9
MOST_OPSET = (1 << 31) - 1  # of a domain that `onnx` does not know
REPAIR = "export it again, or copy the file again"


def read_model(path: Path) -> OnnxGraph:
    """The main graph of an ONNX file.

    Raises DataError for a file that is missing, damaged or refers to files elsewhere, ConfigError for one that cannot
    be imported: too old, too large, or with tensors of other element types.
    """
    model = _parsed(path, read_bytes(path, MAX_BYTES))
    try:
        opsets = _opsets(model)
        graph = _Reader(path, opsets).main_graph(valid(model, opsets).graph)
        require_types(graph)
        return replace(graph, producer=model.producer_name, signature=_signature(model.graph))
    except (ConfigError, DataError) as error:
        raise error.add(file=path) from None


def with_all_outputs(path: Path, names: Sequence[str]) -> bytes:
    """The serialised model of a file that `read_model` has read, with these values as outputs, and what they need.

    Raises ConfigError when it is too large for one message.
    """
    loaded, external = _parsed(path, read_bytes(path, MAX_BYTES)), ExternalData(path)
    model = valid(loaded, _opsets(loaded))
    for tensor in (*model.graph.initializer, *_tensors(model.graph.node)):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            tensor.CopyFrom(numpy_helper.from_array(_elements(tensor, external), tensor.name))
    needed, kept = set(names), []
    for node in reversed(model.graph.node):
        if needed.intersection(node.output):
            kept.append(node)
            needed |= _read(node)
    _replace(model.graph.node, kept[::-1])
    _replace(model.graph.input, [value for value in model.graph.input if value.name in needed])
    _replace(model.graph.output, [onnx.ValueInfoProto(name=name) for name in names])
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
    count = sum(1 for _ in every(chain(model.graph.node, *(function.node for function in model.functions))))
    if count > MOST_NODES:
        raise ConfigError("an ONNX file with too many nodes", file=path, nodes=count, allowed=f"at most {MOST_NODES}")
    _require_parts(path, model)
    return model


def _require_parts(path: Path, model: onnx.ModelProto) -> None:
    """Raise ConfigError for a model of too many messages and texts, DataError for a text that is not UTF-8, which
    protobuf's fastest parser returns as bytes."""
    waiting, count = list[Message]([model]), 1
    while waiting:
        for kind, value in waiting.pop().ListFields():
            values = [value] if isinstance(value, str | bytes | Message) else value
            count += len(values) if kind.type in (kind.TYPE_STRING, kind.TYPE_MESSAGE) else 0
            if count > MOST_PARTS:
                allowed = f"at most {MOST_PARTS} messages and texts"
                raise ConfigError("an ONNX file with too many parts", file=path, allowed=allowed)
            if kind.type == kind.TYPE_MESSAGE:
                waiting += values
            if kind.type == kind.TYPE_STRING and (wrong := [text for text in values if isinstance(text, bytes)]):
                rows = {"field": kind.full_name, "value": repr(wrong[0][:80]), "repair": REPAIR}
                raise DataError("a text in an ONNX file is not UTF-8", file=path, **rows)


def _opsets(model: onnx.ModelProto) -> dict[str, int]:
    """The opset of each domain. Raises ConfigError for one of ONNX below 9, and for those that `onnx` does not know."""
    opsets: dict[str, int] = {}
    for entry in model.opset_import:
        domain = "" if entry.domain == "ai.onnx" else entry.domain
        if domain in opsets:
            raise DataError("an ONNX file has two opsets of one domain", domain=domain or "ai.onnx", repair=REPAIR)
        opsets[domain] = entry.version
    versions = onnx.defs.C.schema_version_map()
    for domain, opset in opsets.items():
        first, newest = versions.get(domain, (1, MOST_OPSET))
        first = first if domain else OLDEST_OPSET
        rows = {"domain": domain or "ai.onnx", "opset": opset}
        if opset < first:
            allowed, repair = f"{first} and newer", "onnx.version_converter.convert_version(model, 13)"
            raise ConfigError("the opset of an ONNX file is too old", **rows, allowed=allowed, repair=repair)
        if opset > newest:
            allowed, repair = f"{first} to {newest}, which onnx {onnx.__version__} knows", "pip install -U onnx"
            raise ConfigError("the opset of an ONNX file is too new", **rows, allowed=allowed, repair=repair)
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
            if tensor.data_type != onnx.TensorProto.STRING:  # which only labels of classifiers are
                arrays[tensor.name] = _elements(tensor, self.external)
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
        outputs = tuple(map(_value, proto.output))
        return OnnxGraph(proto.name, tuple(nodes), arrays, inputs, outputs, weights, self.external.files)

    def _nodes(self, protos: Sequence[onnx.NodeProto]) -> Iterator[OnnxNode]:
        for proto in protos:
            self.count += 1
            domain = _domain(proto)
            name = proto.name or f"{proto.op_type}_{self.count}"
            opset = self.opsets.get(domain, 0)
            attributes = {a.name: self._attribute(a) for a in proto.attribute}
            names = tuple(proto.input), tuple(proto.output)
            notes = {entry.key.removeprefix(TORCH): entry.value for entry in proto.metadata_props}
            call = ExportedCall.of(notes.get("onnx.fx_node", ""))
            plain = name.strip("/")
            yield OnnxNode(plain, proto.op_type, domain, opset, *names, attributes, self.count, _layer(notes), call)

    def _attribute(self, proto: onnx.AttributeProto) -> Any:
        if proto.ref_attr_name:
            rows = {"attribute": proto.name, "value": proto.ref_attr_name}
            raise DataError("an attribute refers to one of a function, outside of a function", **rows)
        match proto.type:
            case Kinds.FLOAT:
                return proto.f
            case Kinds.INT:
                return proto.i
            case Kinds.STRING:
                return proto.s.decode(errors="replace")
            case Kinds.TENSOR:
                return _elements(proto.t, self.external)
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


def _elements(tensor: onnx.TensorProto, external: ExternalData) -> np.ndarray:
    """The elements of a tensor. Raises as `require_elements`, and DataError for what another file has not."""
    kind, shape = require_elements(tensor), tuple(tensor.dims)
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        return external.array(tensor.name, kind, shape, entries)
    return np.asarray(numpy_helper.to_array(tensor))


KINDS = {int(onnx.helper.np_dtype_to_tensor_dtype(kind.numpy)): kind.numpy for kind in dt.ALL}
MOST_AXES = 32  # of an array in numpy 1
FIELDS = "float_data", "double_data", "int32_data", "int64_data", "uint64_data", "string_data"


def require_elements(tensor: onnx.TensorProto) -> np.dtype[Any]:
    """The element type of a tensor. Raises DataError when it has not the elements of its shape and type, ConfigError
    for a type that no operator here has."""
    kind = _element_type(tensor.data_type, tensor.name)
    _require_shape("a tensor has an impossible shape", tensor.dims, tensor=tensor.name)
    shape = tuple(tensor.dims)
    rows = {"tensor": tensor.name, "shape": shape}
    if tensor.HasField("segment"):
        raise DataError("a tensor in segments, which no exporter makes", **rows, repair=REPAIR)
    fields = {name: count for name in FIELDS if (count := len(getattr(tensor, name)))}
    own = onnx.helper.tensor_dtype_to_field(tensor.data_type)
    if fields and (len(fields) > 1 or own not in fields or tensor.HasField("raw_data")):
        allowed = f"raw_data, or {own}"
        raise DataError("a tensor has its elements in another field than their type has", **rows, allowed=allowed)
    found, size = fields.get(own, 0), math.prod(shape)
    if tensor.HasField("raw_data"):
        found = len(tensor.raw_data) // kind.itemsize if len(tensor.raw_data) % kind.itemsize == 0 else -1
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        if fields or tensor.HasField("raw_data"):
            raise DataError("a tensor has its elements in the file and in another one", **rows, repair=REPAIR)
    elif found != size:
        what = "a tensor has another number of elements than its shape"
        raise DataError(what, **rows, expected=size, found=found, repair=REPAIR)
    return kind


def _require_shape(what: str, shape: Sequence[int], **where: str) -> None:
    """Raise DataError for a shape that no array can have."""
    first = shape[:MOST_AXES]
    if len(shape) > MOST_AXES or any(n < 0 for n in first) or math.prod(max(n, 1) for n in first) > sys.maxsize // 16:
        rows = {"shape": tuple(first), "axes": len(shape)}
        allowed = f"at most {MOST_AXES} axes and {sys.maxsize} bytes"
        raise DataError(what, **where, **rows, allowed=allowed, repair=REPAIR)


def _element_type(code: int, name: str) -> np.dtype[Any]:
    """Raises ConfigError for element types that no operator here has."""
    if code not in KINDS:
        label = onnx.TensorProto.DataType.Name(code) if code in onnx.TensorProto.DataType.values() else code
        hint = "a model in Float32; of a quantized model, the original" if re.search("INT4|FLOAT", str(label)) else None
        allowed = ", ".join(sorted(kind.name for kind in KINDS.values()))
        raise ConfigError("an element type is not supported", tensor=name, value=label, allowed=allowed, hint=hint)
    return KINDS[code]


def _value(proto: onnx.ValueInfoProto) -> OnnxValue:
    if not proto.type.HasField("tensor_type"):
        return OnnxValue(proto.name, None, None)
    tensor = proto.type.tensor_type
    is_text = tensor.elem_type in (0, onnx.TensorProto.STRING)
    kind = None if is_text else _element_type(tensor.elem_type, proto.name)
    shape = None
    if tensor.HasField("shape"):
        dims = tensor.shape.dim
        lengths = [max(dim.dim_value, 0) for dim in dims]
        _require_shape("an input or output has an impossible shape", lengths, value=proto.name)
        # A length below 0 is a free one in old exporters, and in onnxruntime.
        is_known = [dim.HasField("dim_value") and dim.dim_value >= 0 for dim in dims]
        shape = tuple(d.dim_value if known else d.dim_param or "?" for d, known in zip(dims, is_known, strict=True))
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
