"""For inference only: an operator that scales and shifts channels goes into the weights of the one before it."""

from collections import Counter
from dataclasses import replace

import numpy as np

from runner.core.graph import Graph
from runner.core.primitive import Node
from runner.core.value import Symbol, Value
from runner.types import TensorType


def merge(graph: Graph) -> Graph:
    """Where an operator says how it merges with the one before it (`Primitive.fold_into`), give that one other weights.

    Only weights that are constants, and only where nothing else reads what is between the two: results, dumps and
    other operators see what they saw. Sums are rounded in another order, so results differ as rounding does.
    """
    merger = _Merger(graph)
    for place, node in enumerate(graph.nodes):
        merger.look(place, node)
    return replace(graph, nodes=tuple(merger.nodes), constants=merger.constants)


class _Merger:
    """`nodes` as they are now, at the places where they stood; `uses` counts who reads a value."""

    def __init__(self, graph: Graph) -> None:
        self.nodes, self.constants = list(graph.nodes), dict(graph.constants)
        self.places = {y: place for place, node in enumerate(graph.nodes) for y in node.outputs}
        self.uses: Counter[Value] = Counter(x for node in graph.nodes for x in node.inputs)
        self.uses.update(graph.results)

    def look(self, place: int, node: Node) -> None:
        """Merge a node, if it can be."""
        at = self.places.get(node.inputs[0]) if node.inputs else None
        if at is None or self.uses[node.inputs[0]] > 1 or any(self.uses[y] for y in node.outputs[1:]):
            return
        before = self.nodes[at]
        weight = self.known(before.inputs[1]) if len(before.inputs) == 2 else None
        if weight is None:
            return
        made = node.op.fold_into(before.op, weight, [self.known(x) for x in node.inputs[1:]])
        if made is not None:
            scaled, op, shift = made
            self.nodes[at] = replace(before, inputs=(before.inputs[0], self.constant(f"{node.number}.scaled", scaled)))
            inputs = (node.inputs[0], self.constant(f"{node.number}.shift", shift))
            self.nodes[place] = replace(node, op=op, inputs=inputs, outputs=node.outputs[:1])

    def known(self, value: Value) -> np.ndarray | None:
        """The array behind a value, if it is a constant."""
        return self.constants.get(value) if isinstance(value, Symbol) else None

    def constant(self, name: str, array: np.ndarray) -> Symbol:
        """A new constant."""
        symbol = Symbol(TensorType.of(array), name)
        self.constants[symbol] = array
        return symbol
