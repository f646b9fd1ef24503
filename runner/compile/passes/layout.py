"""Layout: which way every value lies in the memory of the CPU, and in which form every operator is lowered.

Convolutions and pools run about twice as fast when the batch is the innermost axis (BENCHMARKS.md); most other
operators can do either. So one walk in the order of the graph is enough: an operator takes the form that turns the
fewest elements around, and those that gain nothing follow the ones that do.
"""

from collections.abc import Sequence
from dataclasses import replace

from runner.core.graph import Graph
from runner.core.lowering import Form
from runner.core.primitive import Node
from runner.core.value import Value


def layout(graph: Graph) -> Graph:
    """Give every node its form. Values that lie the other way than a form wants them are turned around before it."""
    walk = _Walk()
    return replace(graph, nodes=tuple(map(walk.place, graph.nodes)))


class _Walk:
    """Remembers which way the values lie that were made so far, and which of them were turned around already."""

    def __init__(self) -> None:
        self.last: dict[Value, bool] = {}
        self.turned: set[Value] = set()

    def place(self, node: Node) -> Node:
        forms: Sequence[Form] = node.op.forms(*[x.type for x in node.inputs])
        best = min(forms, key=lambda form: form.penalty + sum(x.size for x in self.against(node, form)))
        self.turned.update(self.against(node, best))
        self.last.update(zip(node.outputs, best.results, strict=False))
        return replace(node, form=best)

    def against(self, node: Node, form: Form) -> list[Value]:
        """The operands that must be turned around for this form."""
        wanted = (*form.operands, *[False] * len(node.inputs))
        pairs = [(x, last) for x, last in zip(node.inputs, wanted, strict=False) if x.ndim > 1]
        return [x for x, last in pairs if last != self.last.get(x, False) and x not in self.turned]
