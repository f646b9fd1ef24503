"""`Graph`: the closed record of one traced step, and the check that it is well formed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from runner.core.primitive import Node, infer
from runner.core.value import Parameter, Symbol, Value
from runner.errors import InternalError


@dataclass(frozen=True)
class Graph:
    """Inputs, parameters and constants lead through nodes, in order, to outputs and updated parameters.

    Every value is made once. Passes give a new graph; none is ever changed. `effects` stand apart from the nodes: they
    make nothing, and tell their operands after each time that the graph has run.
    """

    name: str
    inputs: tuple[Symbol, ...]
    parameters: Mapping[Parameter, Symbol]
    constants: Mapping[Symbol, np.ndarray]
    nodes: tuple[Node, ...]
    outputs: tuple[Symbol, ...]
    updates: Mapping[Parameter, Symbol] = field(default_factory=dict)
    effects: tuple[Node, ...] = ()

    @property
    def told(self) -> dict[str, Symbol]:
        """The operands of the effects, in order, under the names that they have as results: `Default/Print-op3:0`."""
        return {f"{effect.name}:{k}": _symbol(x) for effect in self.effects for k, x in enumerate(effect.inputs)}

    @property
    def results(self) -> tuple[Symbol, ...]:
        """What must be computed: the outputs, then the new values of parameters, then what effects tell."""
        return (*self.outputs, *self.updates.values(), *self.told.values())

    def silent(self) -> "Graph":
        """The graph without its effects: for files that others run."""
        return replace(self, effects=())

    @property
    def is_placed(self) -> bool:
        """Whether the layout pass has chosen forms for the CPU."""
        return any(node.form is not None for node in self.nodes)

    def rewritten(
        self,
        nodes: Sequence[Node],
        renamed: Mapping[Value, Symbol],
        constants: Mapping[Symbol, np.ndarray] | None = None,
    ) -> "Graph":
        """The graph with other nodes, where values that disappeared go by the name of those that replace them."""

        def follow(symbol: Symbol) -> Symbol:
            while symbol in renamed:
                symbol = renamed[symbol]
            return symbol

        def renew(node: Node) -> Node:
            return replace(node, inputs=tuple(follow(_symbol(x)) for x in node.inputs))

        return replace(
            self,
            nodes=tuple(map(renew, nodes)),
            effects=tuple(map(renew, self.effects)),
            outputs=tuple(map(follow, self.outputs)),
            updates={p: follow(s) for p, s in self.updates.items()},
            constants=self.constants if constants is None else constants,
        )

    def __str__(self) -> str:
        lines = [f"graph {self.name}({', '.join(map(repr, (*self.inputs, *self.parameters.values())))})"]
        for symbol, array in self.constants.items():
            lines.append(f"  {symbol!r} = {array.tolist() if array.size <= 4 else '...'}")
        for node in self.nodes:
            made = ", ".join(map(repr, node.outputs))
            lines.append(f"  {made} = {_applied(node)}")
        lines += [f"  {_applied(effect)}" for effect in self.effects]
        updates = [f"{p.name} <- %{s.name}" for p, s in self.updates.items()]
        lines.append(f"  return {', '.join([*(f'%{s.name}' for s in self.outputs), *updates])}")
        return "\n".join(lines)


def verify(graph: Graph) -> Graph:
    """Return the graph if it is well formed.

    Raises InternalError when a value is used before it is made, made twice, has a type other than its operator's rule
    gives, or when an update does not fit its parameter.
    """
    known: set[Value] = set()
    for symbol in (*graph.inputs, *graph.parameters.values(), *graph.constants):
        _require(symbol not in known, "a value is defined twice", graph, symbol)
        known.add(symbol)
    for symbol, array in graph.constants.items():
        _require(
            (symbol.dtype.numpy, symbol.shape) == (array.dtype, array.shape),
            "a constant has another type",
            graph,
            symbol,
        )
    for node in (*graph.nodes, *graph.effects):
        _verify_node(graph, node, known)
    for symbol in graph.results:
        _require(symbol in known, "a result is never made", graph, symbol)
    for parameter, symbol in graph.updates.items():
        _require(
            parameter in graph.parameters,
            "an update of a parameter that the graph does not take",
            graph,
            parameter.name,
        )
        _require(symbol.type == parameter.type, "an update has another type than its parameter", graph, parameter.name)
    return graph


def _verify_node(graph: Graph, node: Node, known: set[Value]) -> None:
    for x in node.inputs:
        _require(x in known, "a value is used before it is made", graph, x, node)
    declared = tuple([y.type for y in node.outputs])
    made = infer(node.op, tuple([x.type for x in node.inputs]))
    _require(made == declared, "a node has the wrong type", graph, node)
    for y in node.outputs:
        _require(y not in known, "a value is defined twice", graph, y, node)
        known.add(y)


def _require(holds: bool, what: str, graph: Graph, *where: object) -> None:
    """The places are put into words only when something is wrong: a whole graph asks this several thousand times."""
    if not holds:
        places = [place.name if isinstance(place, Node) else str(place) for place in where]
        raise InternalError(what, graph=graph.name, at=" in ".join(places))


def _applied(node: Node) -> str:
    return f"{node.op}({', '.join(f'%{_symbol(x).name}' for x in node.inputs)})  # {node.name}"


def _symbol(value: Value) -> Symbol:
    assert isinstance(value, Symbol)
    return value


Pass = Callable[[Graph], Graph]
