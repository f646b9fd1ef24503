"""Tracing for graph mode: a network is executed once with symbols, and the operators it applies form its graph."""

from collections.abc import Callable, Sequence

import numpy as np

from runner.core.effect import Effect
from runner.core.graph import Graph, as_symbol, verify
from runner.core.observers import NO_GRAPHS, GraphObserver
from runner.core.primitive import Interpreter, Node, Primitive
from runner.core.structure import flatten, static_parts
from runner.core.value import Operand, Parameter, Symbol, Tensor, Value
from runner.errors import ConfigError
from runner.types import TensorType


class Tracer(Interpreter):
    """Infers types, and appends nodes to the record."""

    def __init__(self, root: str = "Default") -> None:
        super().__init__(root)
        self.parameters: dict[Parameter, Symbol] = {}
        self.constants: dict[Symbol, np.ndarray] = {}
        self._constants: dict[tuple[TensorType, bytes], Symbol] = {}
        self._rebound: dict[Tensor, Symbol] = {}  # constants that were given elements of the graph

    def lift(self, operand: Operand) -> Value:
        """Parameters become inputs of the graph until the step assigns them, other tensors constants."""
        if isinstance(operand, Symbol):
            return operand
        if isinstance(operand, Parameter):
            return self.updates[operand] if operand in self.updates and self.reads_latest else self.entry(operand)
        assert isinstance(operand, Tensor)
        if operand in self._rebound:
            return self._rebound[operand]
        key = operand.type, operand.data.tobytes()
        if key not in self._constants:
            symbol = self._constants[key] = Symbol(operand.type, f"cst{len(self._constants) + 1}")
            self.constants[symbol] = operand.data
        return self._constants[key]

    def entry(self, parameter: Parameter) -> Value:
        """The input of the graph."""
        if parameter not in self.parameters:
            self.parameters[parameter] = Symbol(parameter.type, parameter.name)
        return self.parameters[parameter]

    def apply(self, op: Primitive, inputs: tuple[Value, ...], types: tuple[TensorType, ...]) -> tuple[Value, ...]:
        """Create a symbol for each output."""
        outputs = symbols(types, self.count)
        self.nodes.append(Node(op, inputs, outputs, self.current_scope(), self.count, self.source()))
        return outputs

    def rebind(self, target: Value, value: Value) -> None:
        """A symbol takes the name of its new value, and one of its former name its place in the graph so far."""
        value = as_symbol(value)
        if isinstance(target, Tensor):
            self._rebound[target] = value
            return
        former = Symbol(target.type, as_symbol(target).name)
        self.replace_handles(target, former, value)
        self.parameters = {p: former if s is target else s for p, s in self.parameters.items()}
        self.constants = {former if s is target else s: array for s, array in self.constants.items()}
        self._constants = {key: former if s is target else s for key, s in self._constants.items()}
        as_symbol(target).name = value.name

    def graph(self, name: str, inputs: tuple[Symbol, ...], outputs: tuple[Symbol, ...]) -> Graph:
        """The graph of the record so far."""
        for parameter in self.updates:
            self.entry(parameter)
        updates = {p: as_symbol(self.lift(v)) for p, v in self.updates.items()}
        nodes = tuple(node for node in self.nodes if not isinstance(node.op, Effect))
        effects = tuple(node for node in self.nodes if isinstance(node.op, Effect))
        inputs = tuple([as_symbol(self.original(x)) for x in inputs])
        return Graph(name, inputs, self.parameters, self.constants, nodes, outputs, updates, effects)


def symbols(types: Sequence[TensorType], number: int) -> tuple[Symbol, ...]:
    """A symbol for each output of operator `number`."""
    names = [f"{number}"] if len(types) == 1 else [f"{number}.{k}" for k in range(len(types))]
    return tuple([Symbol(type, name) for type, name in zip(types, names, strict=True)])


def trace(
    function: Callable[..., object],
    types: Sequence[TensorType],
    name: str,
    root: str = "Default",
    observer: GraphObserver = NO_GRAPHS,
) -> Graph:
    """Execute `function` with a symbol for each type, and return its verified graph.

    Raises ConfigError when it returns anything but tensors. On failure the observer receives the part traced so far.
    """
    inputs = tuple(Symbol(type, f"input{k}") for k, type in enumerate(types))
    with Tracer(root) as tracer:
        try:
            outputs = _output_symbols(tracer, function(*inputs), name)
        except Exception:
            observer.failed(tracer.graph(name, inputs, ()))
            raise
    graph = verify(tracer.graph(name, inputs, outputs))
    observer.traced(graph)
    return graph


def _output_symbols(tracer: Tracer, returned: object, name: str) -> tuple[Symbol, ...]:
    flat = flatten(returned)
    if isinstance(returned, tuple | list | Value | bool):
        others = [x for x in static_parts(flat.layout) if not isinstance(x, bool | int | float | None)]
    else:
        others = [returned]
    if others:
        raise ConfigError("a network must return tensors", network=name, returned=type(others[0]).__name__)
    return tuple(as_symbol(tracer.lift(value)) for value in flat.values)
