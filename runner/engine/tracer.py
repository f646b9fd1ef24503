"""Graph mode, first half: a network is executed once with symbols, and what it did is its graph."""

from collections.abc import Callable, Sequence

import numpy as np

from runner.core.effect import Effect
from runner.core.graph import Graph, verify
from runner.core.primitive import Interpreter, Node, Primitive
from runner.core.value import Operand, Parameter, Symbol, Tensor, Value
from runner.errors import ConfigError
from runner.types import TensorType


class Tracer(Interpreter):
    """Infers types, and appends to the record."""

    def __init__(self, root: str = "Default") -> None:
        super().__init__(root)
        self.parameters: dict[Parameter, Symbol] = {}
        self.constants: dict[Symbol, np.ndarray] = {}
        self._constants: dict[tuple[TensorType, bytes], Symbol] = {}

    def lift(self, operand: Operand) -> Value:
        """Parameters become inputs of the graph, other tensors become constants."""
        if isinstance(operand, Symbol):
            return operand
        if isinstance(operand, Parameter):
            if operand not in self.parameters:
                self.parameters[operand] = Symbol(operand.type, operand.name)
            return self.parameters[operand]
        assert isinstance(operand, Tensor)
        key = operand.type, operand.data.tobytes()
        if key not in self._constants:
            symbol = self._constants[key] = Symbol(operand.type, f"cst{len(self._constants) + 1}")
            self.constants[symbol] = operand.data
        return self._constants[key]

    def apply(self, op: Primitive, inputs: tuple[Value, ...], types: tuple[TensorType, ...]) -> tuple[Value, ...]:
        """Make a symbol per output."""
        names = [f"{self.count}"] if len(types) == 1 else [f"{self.count}.{k}" for k in range(len(types))]
        outputs = tuple([Symbol(type, name) for type, name in zip(types, names, strict=True)])
        self.nodes.append(Node(op, inputs, outputs, self.where(), self.count, self.source()))
        return outputs


def trace(function: Callable[..., object], types: Sequence[TensorType], name: str, root: str = "Default") -> Graph:
    """Execute `function` with a symbol per type, and return what it did as a verified graph.

    Raises ConfigError when it returns something other than tensors.
    """
    inputs = tuple(Symbol(type, f"input{k}") for k, type in enumerate(types))
    with Tracer(root) as tracer:
        made = function(*inputs)
        returned = made if isinstance(made, tuple | list) else (made,)
        for value in returned:
            if not isinstance(value, Value):
                raise ConfigError("a network must return tensors", network=name, returned=type(value).__name__)
        outputs = tuple(_symbol(tracer.lift(value)) for value in returned)
        for parameter in tracer.updates:
            tracer.lift(parameter)
        updates = {p: _symbol(tracer.lift(v)) for p, v in tracer.updates.items()}
    nodes = tuple(node for node in tracer.nodes if not isinstance(node.op, Effect))
    effects = tuple(node for node in tracer.nodes if isinstance(node.op, Effect))
    return verify(Graph(name, inputs, tracer.parameters, tracer.constants, nodes, outputs, updates, effects))


def _symbol(value: Value) -> Symbol:
    assert isinstance(value, Symbol)
    return value
