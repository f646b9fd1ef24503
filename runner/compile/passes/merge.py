"""For inference only: operators that scale and shift channels are merged into the weights of the operator before."""

from collections import Counter
from dataclasses import replace

import numpy as np

from runner.core.graph import Graph
from runner.core.operators import Node
from runner.core.values import Symbol, Value
from runner.types import TensorType


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
