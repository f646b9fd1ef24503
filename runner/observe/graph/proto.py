"""A graph in the reference's `mindspore.irpb` (spec section 2.7), which its visual tools read.

ModelProto { GraphProto { nodes, parameters, outputs, constants } }. Nodes are called by their place in the list, from
"1"; constants `cst1`, `cst2`, ... As there, an operator with several results gives a tuple, of which `TupleGetItem`
nodes take one each; new values of parameters are `Assign` nodes.
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
from runner.host.protobuf import FIXED64, VARINT, key, prefixed, varint
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
    parts = [*writer.nodes(), text(2, graph.name), *writer.parameters(), *writer.outputs(), *writer.constants()]
    return number(1, IR_VERSION) + prefixed(4, b"".join(parts))


def number(field: int, value: int) -> bytes:
    """An integer field; a negative one takes ten bytes."""
    return key(field, VARINT) + varint(value & (1 << 64) - 1)


def text(field: int, value: str) -> bytes:
    """A string field."""
    return prefixed(field, value.encode())


class _Writer:
    """Fields of a GraphProto. `names` knows what makes a value: a parameter, a constant or a node."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.numbers = graph, count(1)
        self.names: dict[Value, str] = {s: s.name for s in (*graph.inputs, *graph.parameters.values())}
        self.extra: list[np.ndarray] = []  # constants that only the format needs: which item of a tuple
        self.names |= {symbol: f"cst{k}" for k, symbol in enumerate(graph.constants, 1)}

    def nodes(self) -> Iterable[bytes]:
        """NodeProto, one for each operation, and more where the format has no other words."""
        for node in (*self.graph.nodes, *self.graph.effects):
            made = str(next(self.numbers))
            attributes = [
                prefixed(5, text(1, name) + prefixed(2, value(x))) for name, x in node.op.attributes().items()
            ]
            given = self.inputs(self.names[x] for x in node.inputs)
            yield prefixed(
                1, b"".join([given, _node(made, node), *attributes, prefixed(6, _results(node)), text(8, node.name)])
            )
            yield from self.items(node, made)
        for parameter, symbol in self.graph.updates.items():
            given = self.inputs((parameter.name, self.names[symbol]))
            named = text(2, str(next(self.numbers))) + text(3, "Assign")
            yield prefixed(1, given + named + prefixed(6, type_of(symbol.type)))

    def items(self, node: Node, made: str) -> Iterable[bytes]:
        """Tell what the results of a node are called; several need a node each."""
        if len(node.outputs) == 1:
            self.names[node.outputs[0]] = made
            return
        for k, output in enumerate(node.outputs):
            self.names[output] = item = str(next(self.numbers))
            given = self.inputs((made, self.item_number(k)))
            named = text(2, item) + text(3, "TupleGetItem") + text(4, node.scope)
            yield prefixed(1, given + named + prefixed(6, type_of(output.type)))

    def item_number(self, k: int) -> str:
        """The constant k."""
        while len(self.extra) <= k:
            self.extra.append(np.array(len(self.extra), np.int64))
        return f"cst{len(self.graph.constants) + k + 1}"

    def inputs(self, names: Iterable[str]) -> bytes:
        """InputProto, each a data edge."""
        return b"".join([prefixed(1, text(1, name) + number(2, 0)) for name in names])

    def parameters(self) -> Iterable[bytes]:
        """ParameterProto, without values."""
        for symbol in (*self.graph.inputs, *self.graph.parameters.values()):
            yield prefixed(3, text(1, symbol.name) + prefixed(2, type_of(symbol.type)))

    def outputs(self) -> Iterable[bytes]:
        """OutputProto."""
        for symbol in self.graph.outputs:
            yield prefixed(4, text(1, self.names[symbol]) + prefixed(2, type_of(symbol.type)))

    def constants(self) -> Iterable[bytes]:
        """NamedValueProto."""
        for k, array in enumerate((*self.graph.constants.values(), *self.extra), 1):
            yield prefixed(5, text(1, f"cst{k}") + prefixed(2, _tensor_value(array)))


def type_of(type: TensorType) -> bytes:
    """TypeProto of a tensor: element type and length of each axis."""
    shape = b"".join([prefixed(1, number(1, length)) for length in type.shape])
    return number(1, _TENSOR) + prefixed(2, number(1, _KINDS[type.dtype]) + prefixed(2, shape))


def value(x: Any) -> bytes:
    """ValueProto of an attribute."""
    if x is None:
        return number(1, _NONE)
    if isinstance(x, bool):
        return number(1, _BOOL) + number(2, x)
    if isinstance(x, int):
        return number(1, _INT64) + number(3, x)
    if isinstance(x, float):
        return number(1, _FLOAT64) + key(6, FIXED64) + np.array(x, "<f8").tobytes()
    if isinstance(x, tuple | list):
        return number(1, _TUPLE) + b"".join([prefixed(18, value(item)) for item in x])
    if isinstance(x, DType):
        return number(1, _TYPE) + prefixed(20, number(1, _KINDS[x]))
    return number(1, _STRING) + text(7, str(x))


def _node(made: str, node: Node) -> bytes:
    return text(2, made) + text(3, node.op.name) + text(4, node.scope)


def _results(node: Node) -> bytes:
    """TypeProto: of the one result, or of the tuple of several."""
    if len(node.outputs) == 1:
        return type_of(node.outputs[0].type)
    return number(1, _TUPLE) + prefixed(3, b"".join([prefixed(1, type_of(y.type)) for y in node.outputs]))


def _tensor_value(array: np.ndarray) -> bytes:
    kind = TensorType.of(array)
    tensor = b"".join([number(1, length) for length in kind.shape]) + number(2, _KINDS[kind.dtype])
    if array.nbytes <= CONSTANT_BYTES:
        tensor += prefixed(8, np.ascontiguousarray(array).tobytes())
    return number(1, _TENSOR) + prefixed(8, tensor)
