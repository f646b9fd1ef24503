"""A graph in MindSpore's `mindspore.irpb`, which its visual tools read.

ModelProto { GraphProto { nodes, parameters, outputs, constants } }. Nodes are named by their position, from "1";
constants `cst1`, `cst2`, ... As in MindSpore, the result of an operator with several outputs is a tuple, whose
items `TupleGetItem` nodes select; updates of parameters are `Assign` nodes. The package `protobuf` would not make this
shorter, because onnx does not include the schema, and its import takes 20 ms of a run in PyNative mode.
"""

from collections.abc import Iterable
from itertools import count
from typing import Any

import numpy as np

from runner import dtype as dt
from runner.core.graph import Graph
from runner.core.operators import Node
from runner.core.values import Value
from runner.dtype import DType
from runner.host.protobuf import message
from runner.types import TensorType

IR_VERSION = 1
CONSTANT_BYTES = 1 << 16  # of larger constants only the type is written
# DataType of the schema
_INT64, _FLOAT64, _STRING, _BOOL, _TENSOR, _TUPLE, _NONE, _TYPE = 5, 12, 13, 1, 14, 31, 34, 39
_INTEGERS = dt.bool_, dt.int8, dt.int16, dt.int32, dt.int64, dt.uint8, dt.uint16, dt.uint32, dt.uint64
Fields = Iterable[tuple[int, str | bytes]]
_KINDS: dict[DType, int] = {
    kind: number for number, kind in enumerate((*_INTEGERS, dt.float16, dt.float32, dt.float64), 1)
}


def proto(graph: Graph) -> bytes:
    """The serialised ModelProto of a graph."""
    writer = _Writer(graph)
    nodes = [(1, node) for node in writer.nodes()]
    content = message(*nodes, (2, graph.name), *writer.parameters(), *writer.outputs(), *writer.constants())
    return message((1, IR_VERSION), (4, content))


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
            inputs = _inputs(self.names[x] for x in node.inputs)
            attributes = [(5, message((1, key), (2, value(x)))) for key, x in node.listed_attributes().items()]
            names = (2, name), (3, node.op.name), (4, node.scope)
            yield message(*inputs, *names, *attributes, (6, _results(node)), (8, node.name))
            yield from self.items(node, name)
        for parameter, symbol in self.graph.updates.items():
            inputs = _inputs((parameter.name, self.names[symbol]))
            yield message(*inputs, (2, str(next(self.numbers))), (3, "Assign"), (6, type_of(symbol.type)))

    def items(self, node: Node, name: str) -> Iterable[bytes]:
        """Name the results of a node; several results need a TupleGetItem node each."""
        if len(node.outputs) == 1:
            self.names[node.outputs[0]] = name
            return
        for k, output in enumerate(node.outputs):
            self.names[output] = item = str(next(self.numbers))
            inputs = _inputs((name, self.index(k)))
            yield message(*inputs, (2, item), (3, "TupleGetItem"), (4, node.scope), (6, type_of(output.type)))

    def index(self, k: int) -> str:
        """The name of the constant k."""
        while len(self.extra) <= k:
            self.extra.append(np.array(len(self.extra), np.int64))
        return f"cst{len(self.graph.constants) + k + 1}"

    def parameters(self) -> Fields:
        """ParameterProto, without values."""
        for symbol in (*self.graph.inputs, *self.graph.parameters.values()):
            yield 3, message((1, symbol.name), (2, type_of(symbol.type)))

    def outputs(self) -> Fields:
        """OutputProto."""
        for symbol in self.graph.outputs:
            yield 4, message((1, self.names[symbol]), (2, type_of(symbol.type)))

    def constants(self) -> Fields:
        """NamedValueProto."""
        for k, array in enumerate((*self.graph.constants.values(), *self.extra), 1):
            yield 5, message((1, f"cst{k}"), (2, _tensor_value(array)))


def type_of(type: TensorType) -> bytes:
    """TypeProto of a tensor: element type and length of each axis."""
    shape = message(*((1, message((1, length))) for length in type.shape))
    return message((1, _TENSOR), (2, message((1, _KINDS[type.dtype]), (2, shape))))


def value(x: Any) -> bytes:
    """ValueProto of an attribute."""
    if x is None:
        return message((1, _NONE))
    if isinstance(x, bool):
        return message((1, _BOOL), (2, x))
    if isinstance(x, int):
        return message((1, _INT64), (3, x))
    if isinstance(x, float):
        return message((1, _FLOAT64), (6, x))
    if isinstance(x, tuple | list):
        return message((1, _TUPLE), *((18, value(item)) for item in x))
    if isinstance(x, DType):
        return message((1, _TYPE), (20, message((1, _KINDS[x]))))
    return message((1, _STRING), (7, str(x)))


def _inputs(names: Iterable[str]) -> Fields:
    """InputProto of data edges."""
    return ((1, message((1, name), (2, 0))) for name in names)


def _results(node: Node) -> bytes:
    """TypeProto of a single result, or of the tuple of several results."""
    if len(node.outputs) == 1:
        return type_of(node.outputs[0].type)
    return message((1, _TUPLE), (3, message(*((1, type_of(y.type)) for y in node.outputs))))


def _tensor_value(array: np.ndarray) -> bytes:
    kind = TensorType.of(array)
    content = [(8, np.ascontiguousarray(array).tobytes())] if array.nbytes <= CONSTANT_BYTES else []
    tensor = message(*((1, length) for length in kind.shape), (2, _KINDS[kind.dtype]), *content)
    return message((1, _TENSOR), (8, tensor))
