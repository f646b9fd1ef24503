"""A graph as the ModelProto of a `.mindir` file.

All values share one space of names. MindSpore shows a name without what precedes its first colon, so that the prefix
makes names different: `network:conv1.weight` is the parameter `conv1.weight`. The full name of a node is its `domain`.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any

from runner import __version__
from runner.compile.mindir import values
from runner.compile.mindir.free_batch import Types
from runner.compile.mindir.operators import form_of
from runner.core.graph import Graph
from runner.core.operators import Node
from runner.core.values import Value
from runner.host.protobuf import message
from runner.types import TensorType

IR_VERSION = "0.1.0"
MIND_IR_VERSION = 2  # the first one in which the attributes of most operators are operands
CONSTANT = "Constant"


def model(graph: Graph, types: Types, input_names: Sequence[str]) -> bytes:
    """The serialised ModelProto of a graph without updates, with the current values of its parameters.

    `types` are those of values with free axes, which have the length -1.
    """
    content = _Writer(graph, types, input_names).graph_proto()
    versions = (1, IR_VERSION), (2, "runner"), (3, __version__), (5, __version__)
    return message(*versions, (7, content), (10, True), (13, MIND_IR_VERSION))


class _Writer:
    """`names`: of the input, parameter, constant or node that defines each value."""

    def __init__(self, graph: Graph, types: Types, input_names: Sequence[str]) -> None:
        self.graph, self.types, self.numbers = graph, types, count()
        self.nodes: list[bytes] = []
        self.names: dict[Value, str] = {
            x: f"{graph.name}:{name}" for x, name in zip(graph.inputs, input_names, strict=True)
        }
        self.names |= {x: f"{graph.name}:{p.name}" for p, x in graph.parameters.items()}

    def graph_proto(self) -> bytes:
        """GraphProto: nodes, name, parameters, inputs, outputs."""
        graph = self.graph
        for symbol, array in graph.constants.items():
            self.names[symbol] = self.constant(array)
        for node in graph.nodes:
            self.write(node)
        inputs = [(5, _described(self.names[x], self.type(x))) for x in graph.inputs]
        outputs = [(6, _described(self.names[y], self.type(y))) for y in graph.outputs]
        weights = [(3, values.tensor(self.names[x], p.array)) for p, x in graph.parameters.items()]
        return message(*((1, node) for node in self.nodes), (2, graph.name), *weights, *inputs, *outputs)

    def type(self, value: Value) -> TensorType:
        """The type of a value, perhaps with free axes."""
        return self.types.get(value, value.type)

    def write(self, node: Node) -> None:
        """The node of an operator, after those of its arguments and before those of its results."""
        form = form_of(node.op)
        operands = [self.names[x] for x in node.inputs]
        if form.before:
            more = [self.constant(value) for value in form.before.arguments]
            operands[0] = self.node(form.before.name, [operands[0], *more], (), node.scope, form.before.attributes)
        if form.is_tuple:
            operands = [self.node("MakeTuple", operands, map(self.type, node.inputs), node.scope)]
        at = len(operands) if form.operands is None else form.operands
        operands[at:at] = [self.constant(value) for value in form.arguments]
        result = self.node(form.name, operands, map(self.type, node.outputs), node.name, form.attributes)
        if len(node.outputs) == 1:
            self.names[node.outputs[0]] = result
            return
        for k, y in enumerate(node.outputs):
            self.names[y] = self.node("TupleGetItem", [result, self.constant(k)], [self.type(y)], node.scope)

    def node(
        self,
        kind: str,
        operands: Sequence[str],
        types: Iterable[TensorType],
        full: str,
        attributes: Mapping[str, Any] | None = None,
    ) -> str:
        """Add a NodeProto, and return the name of its result."""
        name = f"{self.graph.name}:{kind}-op{next(self.numbers)}:"
        inputs = [(1, operand) for operand in operands]
        described = [values.attribute(key, value) for key, value in (attributes or {}).items()]
        described += [values.types("shape", *given)] if (given := tuple(types)) else []
        self.nodes.append(message(*inputs, (2, name), (3, name), (4, kind), *((5, x) for x in described), (7, full)))
        return name

    def constant(self, value: Any) -> str:
        """Add a constant, and return its name."""
        name = f"{self.graph.name}:constant{next(self.numbers)}"
        self.nodes.append(message((2, name), (4, CONSTANT), (5, values.attribute("value", value))))
        return name


def _described(name: str, type: TensorType) -> bytes:
    """ValueInfoProto of an input or an output."""
    return message((1, name), (2, values.tensor_type(name, type)))
