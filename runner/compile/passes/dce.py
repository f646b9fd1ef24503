"""Dead code elimination: nodes that no result depends on are removed."""

from dataclasses import replace

from runner.core.graph import Graph
from runner.core.operators import Node
from runner.core.values import Value


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
