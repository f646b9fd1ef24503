"""`Graph`: the immutable record of one traced step, and its verification."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import partialmethod
from itertools import chain
from typing import NamedTuple

import numpy as np

from runner.core.lowering import PLAIN, Layout
from runner.core.operators import Node, infer
from runner.core.values import Parameter, Symbol, Value
from runner.errors import InternalError
from runner.types import TensorType
from runner.validation.rules import Frozen


class Graph(Frozen):
    """A program in static single assignment form: nodes, in order, compute outputs and parameter updates from inputs,
    parameters and constants.

    Passes return a new graph. `effects` are separate from the nodes: they have no outputs and emit their operands after
    each run of the graph.
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
    def effect_operands(self) -> dict[str, Symbol]:
        """The operands of the effects, in order, by their names as results: `Default/Print-op3:0`."""
        return {f"{effect.name}:{k}": as_symbol(x) for effect in self.effects for k, x in enumerate(effect.inputs)}

    @property
    def results(self) -> tuple[Symbol, ...]:
        """All that must be computed: the outputs, the new values of parameters, the operands of effects."""
        return (*self.outputs, *self.updates.values(), *self.effect_operands.values())

    @property
    def all_nodes(self) -> list[Node]:
        """The nodes, and after an `If` those of its graphs."""
        inner = ((node, *(graph.all_nodes for graph in node.op.graphs)) for node in self.nodes)
        return [node for first, *graphs in inner for node in (first, *chain.from_iterable(graphs))]

    def without_effects(self) -> "Graph":
        """The graph without its effects, for exported models."""
        return replace(self, effects=())

    @property
    def has_lowerings(self) -> bool:
        """Whether the layout pass has chosen a lowering for any node."""
        return any(node.lowering is not None for node in self.all_nodes)

    def replace_nodes(
        self,
        nodes: Sequence[Node],
        renamed: Mapping[Value, Symbol],
        constants: Mapping[Symbol, np.ndarray] | None = None,
    ) -> "Graph":
        """The graph with other nodes; `renamed` maps each value that was removed to its replacement."""

        def follow(symbol: Symbol) -> Symbol:
            while symbol in renamed:
                symbol = renamed[symbol]
            return symbol

        def with_replacements(node: Node) -> Node:
            return replace(node, inputs=tuple(follow(as_symbol(x)) for x in node.inputs))

        return replace(
            self,
            nodes=tuple(map(with_replacements, nodes)),
            effects=tuple(map(with_replacements, self.effects)),
            outputs=tuple(map(follow, self.outputs)),
            updates={p: follow(s) for p, s in self.updates.items()},
            constants=self.constants if constants is None else constants,
        )

    def __str__(self) -> str:
        lines = [f"graph {self.name}({', '.join(map(repr, (*self.inputs, *self.parameters.values())))})"]
        for symbol, array in self.constants.items():
            lines.append(f"  {symbol!r} = {array.tolist() if array.size <= 4 else '...'}")
        for node in self.nodes:
            outputs = ", ".join(map(repr, node.outputs))
            lines.append(f"  {outputs} = {_call_text(node)}")
        lines += [f"  {_call_text(effect)}" for effect in self.effects]
        updates = [f"{p.name} <- %{s.name}" for p, s in self.updates.items()]
        lines.append(f"  return {', '.join([*(f'%{s.name}' for s in self.outputs), *updates])}")
        return "\n".join(lines)


def joined(first: Graph, then: Graph) -> Graph:
    """The graph whose inputs are those of the first one, whose outputs are the inputs of the other."""
    own = {x: _named_in(first, x) for x in (*first.inputs, *first.constants)}
    nodes = []
    for node in first.nodes:
        own |= {as_symbol(y): _named_in(first, as_symbol(y)) for y in node.outputs}
        inputs, outputs = (tuple([own[as_symbol(x)] for x in side]) for side in (node.inputs, node.outputs))
        nodes.append(replace(node, inputs=inputs, outputs=outputs))
    given: dict[Value, Symbol] = {x: own[y] for x, y in zip(then.inputs, first.outputs, strict=True)}
    constants = {**{own[x]: array for x, array in first.constants.items()}, **then.constants}
    inputs = tuple([own[x] for x in first.inputs])
    return replace(then.replace_nodes((*nodes, *then.nodes), given, constants), inputs=inputs)


def _named_in(graph: Graph, x: Symbol) -> Symbol:
    return Symbol(x.type, f"{graph.name}.{x.name}")


def verify(graph: Graph) -> Graph:
    """Return the graph if it is well formed.

    Raises InternalError when a value is used before its definition, is defined twice, differs from the type that its
    operator infers, or when an update does not fit its parameter.
    """
    known: set[Value] = set()
    for symbol in (*graph.inputs, *graph.parameters.values(), *graph.constants):
        _require(symbol not in known, "a value is defined twice", graph, symbol)
        known.add(symbol)
    for symbol, array in graph.constants.items():
        fits = (symbol.dtype.numpy, symbol.shape) == (array.dtype, array.shape)
        _require(fits, "a constant has another type", graph, symbol)
    for node in (*graph.nodes, *graph.effects):
        _verify_node(graph, node, known)
    for symbol in graph.results:
        _require(symbol in known, "a result is never defined", graph, symbol)
    for parameter, symbol in graph.updates.items():
        known_parameter = parameter in graph.parameters
        _require(known_parameter, "an update of a parameter that is not in the graph", graph, parameter.name)
        _require(symbol.type == parameter.type, "an update has another type than its parameter", graph, parameter.name)
    return graph


def _verify_node(graph: Graph, node: Node, known: set[Value]) -> None:
    for x in node.inputs:
        _require(x in known, "a value is used before it is defined", graph, x, node)
    declared = tuple([y.type for y in node.outputs])
    inferred = infer(node.op, tuple([x.type for x in node.inputs]))
    _require(inferred == declared, "a node has the wrong type", graph, node)
    for y in node.outputs:
        _require(y not in known, "a value is defined twice", graph, y, node)
        known.add(y)


def _require(holds: bool, what: str, graph: Graph, *values: object) -> None:
    """Places are formatted only on failure: a graph makes several thousand of these checks."""
    if not holds:
        places = [place.name if isinstance(place, Node) else str(place) for place in values]
        raise InternalError(what, graph=graph.name, at=" in ".join(places))


def _call_text(node: Node) -> str:
    return f"{node.op}({', '.join(f'%{as_symbol(x).name}' for x in node.inputs)})  # {node.name}"


def as_symbol(value: Value) -> Symbol:
    """The value, which must be a symbol."""
    assert isinstance(value, Symbol)
    return value


Pass = Callable[[Graph], Graph]
NO_LOSS = "a training step returns no tensor"
RETURN_LOSS = "return the loss, such as ops.depend(loss, self.optimizer(grads))"


# Observers of graphs while they are compiled, and of the values of a step while it runs.


class GraphObserver:
    """Base of graph observers, which ignores every event. For each program: `traced`, a `stage` per pass, `lowered`,
    `compiled`, and finally `executed` or `failed`.
    """

    records_steps = False  # whether the first step of PyNative mode is recorded and reported
    disables_optimization = False  # whether neither passes nor the device may change the traced graph

    def traced(self, graph: Graph) -> None:
        """The complete program, as traced."""

    def stage(self, name: str, graph: Graph) -> None:
        """The graph after a pass, which may be unchanged."""

    def lowered(self, graph: Graph, describe: Callable[[int], object]) -> None:
        """The graph was lowered to an ONNX model; `describe` returns the listing of that model under a number."""

    def compiled(self, graph: Graph, model: object) -> None:
        """The ONNX model (a ModelProto) for the device."""

    def executed(self, graph: Graph) -> None:
        """The program is ready to run."""

    def failed(self, graph: Graph) -> None:
        """Tracing (`graph` is then the part traced so far), a pass, lowering or the device failed."""


NO_GRAPHS = GraphObserver()


class GraphObservers(GraphObserver):
    """Forwards every event to its observers. What one of them requires applies to all."""

    def __init__(self, *observers: GraphObserver) -> None:
        self.observers = observers
        self.records_steps = any(x.records_steps for x in observers)
        self.disables_optimization = any(x.disables_optimization for x in observers)

    def fire(self, event: str, *arguments: object) -> None:
        """Call this method of every observer."""
        for observer in self.observers:
            getattr(observer, event)(*arguments)


for _event, _method in vars(GraphObserver).items():
    if callable(_method):
        setattr(GraphObservers, _event, partialmethod(GraphObservers.fire, _event))


class ObservedValue(NamedTuple):
    """A value in memory: an array, which must not be changed, and its layout."""

    array: np.ndarray
    layout: Layout = PLAIN


class ValueObserver:
    """Base of value observers, which requests no step. Observers receive the inputs and outputs of operators in the
    iterations that they request: `begin`, `operator` for each in the order of execution, `end`, which comes before
    parameters have their new values. Iterations count from 0 over all trainings, evaluations and calls of cells that
    have this observer.
    """

    device_layout = False  # whether values come in the layout of the device, or else plain
    supports_sinks = True  # whether it may request steps inside of a sink
    iterations = 0  # the number of the next iteration

    def count(self, steps: int = 1) -> int:
        """The number of the first of so many iterations that are executed now."""
        first, self.iterations = self.iterations, self.iterations + steps
        return first

    def next_step(self, step: int) -> int | None:
        """The first requested step that is not before `step`; None when there is none."""
        return None

    def selects(self, node: Node) -> bool:
        """Whether the inputs and outputs of this operator are requested."""
        return True

    def begin(self, step: int, types: tuple[TensorType, ...], owner: object) -> None:
        """A step with inputs of these types begins, of the graph that the cell `owner` has for them."""

    def operator(
        self, step: int, node: Node, inputs: Sequence[ObservedValue], outputs: Sequence[ObservedValue]
    ) -> None:
        """An operator that was selected."""

    def failed(self, step: int, node: Node, inputs: Sequence[ObservedValue], graph: Graph) -> None:
        """An operator of PyNative mode that could not be computed, the last one of `graph`. An error follows."""

    def end(self, step: int, graph: Graph) -> None:
        """The step is complete; `graph` has all its operators, and its parameters the values that the step used."""

    def rewind(self, step: int) -> None:
        """Discard what is left of the steps from number `step` on: a resumed run executes them again."""

    def flush(self) -> None:
        """Return when everything that was observed is stored."""

    def close(self) -> None:
        """No more steps follow."""


NO_VALUES = ValueObserver()
