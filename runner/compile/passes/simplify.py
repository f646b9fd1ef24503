"""Passes that remove what need not be computed: constants, repetitions, unread values; parameters, for inference."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from runner.core.graph import Graph
from runner.core.interpreter import evaluate
from runner.core.operators import Collective, Node, Primitive
from runner.core.values import Symbol, Value
from runner.errors import TrainingError
from runner.types import TensorType

# Constant folding: compute values that do not depend on data, and remove operators that change nothing.

LIMIT = 1 << 16  # elements; larger results are cheaper to recompute than to store in the model


def fold(graph: Graph) -> Graph:
    """Replace nodes with constant operands by their value, and identities by their operand."""
    constants: dict[Symbol, np.ndarray] = dict(graph.constants)
    renamed: dict[Value, Symbol] = {}
    kept: list[Node] = []
    for node in graph.nodes:
        inputs = [renamed.get(x, x) for x in node.inputs]
        values = [constants.get(x) for x in inputs]  # type: ignore[call-overload]
        operand = _identity_operand(node, inputs, values)
        if operand is not None:
            renamed[node.outputs[0]] = operand
        elif _is_constant(node, values):
            constants.update(_compute(node, values))
        else:
            kept.append(node)
    return graph.replace_nodes(kept, renamed, constants)


def _is_constant(node: Node, values: Sequence[np.ndarray | None]) -> bool:
    """Whether to compute a node now. A collective has to run with the other ranks, in every step."""
    small = sum(y.size for y in node.outputs) <= LIMIT
    return small and not isinstance(node.op, Collective) and all(value is not None for value in values)


def _identity_operand(node: Node, inputs: Sequence[Value], values: Sequence[np.ndarray | None]) -> Symbol | None:
    number = node.op.identity([x.type for x in inputs], values)
    symbol = None if number is None else inputs[number]
    return symbol if isinstance(symbol, Symbol) else None


def _compute(node: Node, values: Sequence[np.ndarray | None]) -> dict[Symbol, np.ndarray]:
    try:
        return dict(zip(node.outputs, evaluate(node, values), strict=True))  # type: ignore[arg-type]
    except (ArithmeticError, IndexError, ValueError) as error:
        raise TrainingError(f"{node.op.name}: {error}", operator=node.name) from error


# Common subexpression elimination: the same operator on the same operands is computed once.


def cse(graph: Graph) -> Graph:
    """Replace nodes by an earlier equal one. Operators are pure, so equal fields and operands suffice."""
    first: dict[tuple[Primitive, tuple[Value, ...]], Node] = {}
    renamed: dict[Value, Symbol] = {}
    kept: list[Node] = []
    for node in graph.nodes:
        key = node.op, tuple(renamed.get(x, x) for x in node.inputs)
        earlier = first.setdefault(key, node)
        if earlier is node:
            kept.append(node)
        else:
            renamed.update(zip(node.outputs, earlier.outputs, strict=True))  # type: ignore[arg-type]
    return graph.replace_nodes(kept, renamed)


# Dead code elimination: nodes that no result depends on are removed.


def dce(graph: Graph) -> Graph:
    """Keep the nodes, constants and parameters that a result depends on, and all inputs: they are the interface."""
    needed: set[Value] = set(graph.results)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if not needed.isdisjoint(node.outputs):
            kept.append(node)
            needed.update(node.inputs)
    return replace(
        graph,
        nodes=tuple(reversed(kept)),
        constants={s: a for s, a in graph.constants.items() if s in needed},
        parameters={p: s for p, s in graph.parameters.items() if s in needed or p in graph.updates},
    )


# For inference only: parameters become constants with their current values.


def freeze(graph: Graph) -> Graph:
    """The graph without parameters; a graph with updates is returned unchanged."""
    if graph.updates:
        return graph
    values = {symbol: np.asarray(parameter.array) for parameter, symbol in graph.parameters.items()}
    return replace(graph, parameters={}, constants={**graph.constants, **values})


# For inference only: operators that scale and shift channels are merged into the weights of the operator before.


def merge(graph: Graph) -> Graph:
    """Merge operators that define `Primitive.fold_into` into the weights of the operator before them.

    Only constant weights are changed, and only where the value between the two operators has no other reader. Sums are
    computed in another order, so results differ by rounding errors.
    """
    merger = _Merger(graph)
    for place, node in enumerate(graph.nodes):
        merger.try_merge(place, node)
    return replace(graph, nodes=tuple(merger.nodes), constants=merger.constants)


class _Merger:
    """`nodes` at their original positions; `uses` counts the readers of each value."""

    def __init__(self, graph: Graph) -> None:
        self.nodes, self.constants = list(graph.nodes), dict(graph.constants)
        self.places = {y: place for place, node in enumerate(graph.nodes) for y in node.outputs}
        self.uses: Counter[Value] = Counter(x for node in graph.nodes for x in node.inputs)
        self.uses.update(graph.results)

    def try_merge(self, place: int, node: Node) -> None:
        """Merge a node with the one before it, if possible."""
        at = self.places.get(node.inputs[0]) if node.inputs else None
        if at is None or self.uses[node.inputs[0]] > 1 or any(self.uses[y] for y in node.outputs[1:]):
            return
        before = self.nodes[at]
        weight = self.array(before.inputs[1]) if len(before.inputs) == 2 else None
        if weight is None:
            return
        merged = node.op.fold_into(before.op, weight, [self.array(x) for x in node.inputs[1:]])
        if merged is not None:
            scaled, op, shift = merged
            self.nodes[at] = replace(before, inputs=(before.inputs[0], self.constant(f"{node.number}.scaled", scaled)))
            inputs = (node.inputs[0], self.constant(f"{node.number}.shift", shift))
            self.nodes[place] = replace(node, op=op, inputs=inputs, outputs=node.outputs[:1])

    def array(self, value: Value) -> np.ndarray | None:
        """The array of a constant; None for other values."""
        return self.constants.get(value) if isinstance(value, Symbol) else None

    def constant(self, name: str, array: np.ndarray) -> Symbol:
        """Add a constant."""
        symbol = Symbol(TensorType.of(array), name)
        self.constants[symbol] = array
        return symbol
