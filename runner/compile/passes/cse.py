"""Common subexpression elimination: the same operator on the same operands is computed once."""

from runner.core.graph import Graph
from runner.core.operators import Node, Primitive
from runner.core.values import Symbol, Value


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
