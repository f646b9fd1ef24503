"""A graph in the reference's `mindspore.irpb` (spec section 2.7), which its visual tools read.

ModelProto { GraphProto { nodes, parameters, outputs, constants } }. Nodes are named by their position, from "1";
constants `cst1`, `cst2`, ... As in the reference, the result of an operator with several outputs is a tuple, whose
items `TupleGetItem` nodes select; updates of parameters are `Assign` nodes. The package `protobuf` would not make this
shorter, because onnx does not include the schema, and its import takes 20 ms of a run in PyNative mode.
"""

from collections.abc import Iterable
from itertools import count
from typing import Any

import numpy as np

from runner import dtype as dt
from runner.core.graph import Graph
from runner.core.primitive import Node
from runner.core.value import Value
from runner.dtype import DType
from runner.host.protobuf import FIXED64, bytes_field, key, number_field, text_field
from runner.types import TensorType

IR_VERSION = 1
CONSTANT_BYTES = 1 << 16  # of larger constants only the type is written
# DataType of the schema
_INT64, _FLOAT64, _STRING, _BOOL, _TENSOR, _TUPLE, _NONE, _TYPE = 5, 12, 13, 1, 14, 31, 34, 39
_INTEGERS = dt.bool_, dt.int8, dt.int16, dt.int32, dt.int64, dt.uint8, dt.uint16, dt.uint32, dt.uint64
_KINDS: dict[DType, int] = {
    kind: number for number, kind in enumerate((*_INTEGERS, dt.float16, dt.float32, dt.float64), 1)
}


def proto(graph: Graph) -> bytes:
    """The serialised ModelProto of a graph."""
    writer = _Writer(graph)
    parts = [*writer.nodes(), text_field(2, graph.name), *writer.parameters(), *writer.outputs(), *writer.constants()]
    return number_field(1, IR_VERSION) + bytes_field(4, b"".join(parts))


class _Writer:
    """Fields of a GraphProto. `names`: the parameter, constant or node that defines each value."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.numbers = graph, count(1)
        self.names: dict[Value, str] = {s: s.name for s in (*graph.inputs, *graph.parameters.values())}
        self.extra: list[np.ndarray] = []  # constants that only the format needs: indices of tuple items
        self.names |= {symbol: f"cst{k}" for k, symbol in enumerate(graph.constants, 1)}

    def nodes(self) -> Iterable[bytes]:
        """NodeProto: one for each operation, tuple item and update."""
        for node in (*self.graph.nodes, *self.graph.effects):
            name = str(next(self.numbers))
            inputs = self.inputs(self.names[x] for x in node.inputs)
            names = text_field(2, name) + text_field(3, node.op.name) + text_field(4, node.scope)
            attributes = [bytes_field(5, _attribute(key, x)) for key, x in node.op.attributes().items()]
            parts = [inputs, names, *attributes, bytes_field(6, _results(node)), text_field(8, node.name)]
            yield bytes_field(1, b"".join(parts))
            yield from self.items(node, name)
        for parameter, symbol in self.graph.updates.items():
            inputs = self.inputs((parameter.name, self.names[symbol]))
            names = text_field(2, str(next(self.numbers))) + text_field(3, "Assign")
            yield bytes_field(1, inputs + names + bytes_field(6, type_of(symbol.type)))

    def items(self, node: Node, name: str) -> Iterable[bytes]:
        """Name the results of a node; several results need a TupleGetItem node each."""
        if len(node.outputs) == 1:
            self.names[node.outputs[0]] = name
            return
        for k, output in enumerate(node.outputs):
            self.names[output] = item = str(next(self.numbers))
            inputs = self.inputs((name, self.index(k)))
            names = text_field(2, item) + text_field(3, "TupleGetItem") + text_field(4, node.scope)
            yield bytes_field(1, inputs + names + bytes_field(6, type_of(output.type)))

    def index(self, k: int) -> str:
        """The name of the constant k."""
        while len(self.extra) <= k:
            self.extra.append(np.array(len(self.extra), np.int64))
        return f"cst{len(self.graph.constants) + k + 1}"

    def inputs(self, names: Iterable[str]) -> bytes:
        """InputProto of data edges."""
        return b"".join([bytes_field(1, text_field(1, name) + number_field(2, 0)) for name in names])

    def parameters(self) -> Iterable[bytes]:
        """ParameterProto, without values."""
        for symbol in (*self.graph.inputs, *self.graph.parameters.values()):
            yield bytes_field(3, text_field(1, symbol.name) + bytes_field(2, type_of(symbol.type)))

    def outputs(self) -> Iterable[bytes]:
        """OutputProto."""
        for symbol in self.graph.outputs:
            yield bytes_field(4, text_field(1, self.names[symbol]) + bytes_field(2, type_of(symbol.type)))

    def constants(self) -> Iterable[bytes]:
        """NamedValueProto."""
        for k, array in enumerate((*self.graph.constants.values(), *self.extra), 1):
            yield bytes_field(5, text_field(1, f"cst{k}") + bytes_field(2, _tensor_value(array)))


def type_of(type: TensorType) -> bytes:
    """TypeProto of a tensor: element type and length of each axis."""
    shape = b"".join([bytes_field(1, number_field(1, length)) for length in type.shape])
    return number_field(1, _TENSOR) + bytes_field(2, number_field(1, _KINDS[type.dtype]) + bytes_field(2, shape))


def value(x: Any) -> bytes:
    """ValueProto of an attribute."""
    if x is None:
        return number_field(1, _NONE)
    if isinstance(x, bool):
        return number_field(1, _BOOL) + number_field(2, x)
    if isinstance(x, int):
        return number_field(1, _INT64) + number_field(3, x)
    if isinstance(x, float):
        return number_field(1, _FLOAT64) + key(6, FIXED64) + np.array(x, "<f8").tobytes()
    if isinstance(x, tuple | list):
        return number_field(1, _TUPLE) + b"".join([bytes_field(18, value(item)) for item in x])
    if isinstance(x, DType):
        return number_field(1, _TYPE) + bytes_field(20, number_field(1, _KINDS[x]))
    return number_field(1, _STRING) + text_field(7, str(x))


def _attribute(name: str, x: Any) -> bytes:
    return text_field(1, name) + bytes_field(2, value(x))


def _results(node: Node) -> bytes:
    """TypeProto of a single result, or of the tuple of several results."""
    if len(node.outputs) == 1:
        return type_of(node.outputs[0].type)
    return number_field(1, _TUPLE) + bytes_field(3, b"".join([bytes_field(1, type_of(y.type)) for y in node.outputs]))


def _tensor_value(array: np.ndarray) -> bytes:
    kind = TensorType.of(array)
    tensor = b"".join([number_field(1, length) for length in kind.shape]) + number_field(2, _KINDS[kind.dtype])
    if array.nbytes <= CONSTANT_BYTES:
        tensor += bytes_field(8, np.ascontiguousarray(array).tobytes())
    return number_field(1, _TENSOR) + bytes_field(8, tensor)
