"""Updates as soon as their gradients are there, so that gradients and what they are made of die early.

The optimizer is traced after the last gradient. An update takes the product of its gradient along (`compile/fuse.py`);
left at the end, it would keep alive what all gradients are computed from: 400 MB for ResNet-50 with a batch of 32.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from runner.core.graph import Graph
from runner.core.primitive import Node
from runner.core.value import Value


def soon(graph: Graph) -> Graph:
    """Move each node that makes an update, with what only it needs, behind the last value that others need too."""
    order = _Order(graph)
    following: dict[int, list[Node]] = defaultdict(list)
    moved: set[Node] = set()
    for node in graph.nodes:
        if order.is_update(node):
            group = order.private(node)
            following[order.last_before(group)] += sorted(group, key=order.places.__getitem__)
            moved |= group
    made: dict[Node, None] = {}
    for place, node in enumerate(graph.nodes):
        if node not in moved:
            made[node] = None
        for late in following[place]:
            made.update(dict.fromkeys(order.makers_of(late)))  # only early ones can still be missing
            made[late] = None
    return replace(graph, nodes=tuple(made))


class _Order:
    """Who makes a value, who reads it, and where nodes stand."""

    def __init__(self, graph: Graph) -> None:
        self.makers = {y: node for node in graph.nodes for y in node.outputs}
        self.places = {node: place for place, node in enumerate(graph.nodes)}
        self.readers: dict[Value, set[Node]] = defaultdict(set)
        for node in graph.nodes:
            for x in node.inputs:
                self.readers[x].add(node)
        self.updates, self.outputs = set(graph.updates.values()), set(graph.outputs)
        self.early = {node for node in graph.nodes if not self.needs_data(node)}

    def needs_data(self, node: Node) -> bool:
        """Whether a node waits for others: those that only change scalars of the optimizer can run at any time."""
        return any(x in self.makers for x in node.inputs) or any(y.size > 1 for y in node.outputs)

    def is_update(self, node: Node) -> bool:
        """Whether a node makes new values of parameters, and nothing else."""
        return not any(self.readers[y] for y in node.outputs) and not self.updates.isdisjoint(node.outputs)

    def private(self, node: Node) -> set[Node]:
        """The node, and the nodes before it that nothing else needs."""
        group, waiting = {node}, [node]
        while waiting:
            for maker in self.makers_of(waiting.pop()):
                unread = self.outputs.isdisjoint(maker.outputs) and self.updates.isdisjoint(maker.outputs)
                if maker not in group and unread and all(self.readers[y] <= group for y in maker.outputs):
                    group.add(maker)
                    waiting.append(maker)
        return group

    def last_before(self, group: set[Node]) -> int:
        """Where the last node stands that the group waits for; its own place if there is none."""
        before = {maker for node in group for maker in self.makers_of(node)} - group - self.early
        return max((self.places[node] for node in before), default=max(self.places[node] for node in group))

    def makers_of(self, node: Node) -> Iterator[Node]:
        """The nodes that make what a node reads."""
        return (self.makers[x] for x in node.inputs if x in self.makers)
