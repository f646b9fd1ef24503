"""Other orders of nodes: updates directly after their gradients, which frees memory; pools before activations."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from runner.compile.onnx.fuse import operand_types
from runner.compile.passes.simplify import dce
from runner.core.graph import Graph, Pass, as_symbol
from runner.core.lowering import PLAIN, TILED, Layout, Lowering, with_layouts
from runner.core.operators import Node
from runner.core.values import Symbol, Value
from runner.device import Device

# Scheduling of updates directly after their gradients, so that gradients and their operands are freed early.
#
# The optimizer is traced after the last gradient. The product that computes a gradient is fused with its update
# (`compile/onnx/fuse.py`); at the end of the graph, the operands of all gradients would stay alive: 400 MB for
# ResNet-50 with a batch of 32.


def schedule_updates(graph: Graph) -> Graph:
    """Move each node that computes an update, with the nodes that only it needs, behind its last shared operand.

    The function's name is also the name of the stage in the files of `save_graphs`.
    """
    order = _Order(graph)
    moved_to: dict[int, list[Node]] = defaultdict(list)
    moved: set[Node] = set()
    for node in graph.nodes:
        if order.is_update(node):
            group = order.private(node)
            moved_to[order.last_before(group)] += sorted(group, key=order.places.__getitem__)
            moved |= group
    ordered: dict[Node, None] = {}
    for place, node in enumerate(graph.nodes):
        if node not in moved:
            ordered[node] = None
        for update in moved_to[place]:
            ordered.update(dict.fromkeys(order.producers(update)))  # only early ones can still be missing
            ordered[update] = None
    return replace(graph, nodes=tuple(ordered))


class _Order:
    """The producer and the readers of each value, and the positions of the nodes."""

    def __init__(self, graph: Graph) -> None:
        self.producer = {y: node for node in graph.nodes for y in node.outputs}
        self.places = {node: place for place, node in enumerate(graph.nodes)}
        self.readers: dict[Value, set[Node]] = defaultdict(set)
        for node in graph.nodes:
            for x in node.inputs:
                self.readers[x].add(node)
        self.updates, self.outputs = set(graph.updates.values()), set(graph.outputs)
        self.early = {node for node in graph.nodes if not self.needs_data(node)}

    def needs_data(self, node: Node) -> bool:
        """Whether a node depends on others; nodes that only change scalars of the optimizer can run at any time."""
        return any(x in self.producer for x in node.inputs) or any(y.size > 1 for y in node.outputs)

    def is_update(self, node: Node) -> bool:
        """Whether a node computes new values of parameters and nothing else."""
        return not any(self.readers[y] for y in node.outputs) and not self.updates.isdisjoint(node.outputs)

    def private(self, node: Node) -> set[Node]:
        """The node and the nodes before it that no other node needs."""
        group, waiting = {node}, [node]
        while waiting:
            for producer in self.producers(waiting.pop()):
                unread = self.outputs.isdisjoint(producer.outputs) and self.updates.isdisjoint(producer.outputs)
                if producer not in group and unread and all(self.readers[y] <= group for y in producer.outputs):
                    group.add(producer)
                    waiting.append(producer)
        return group

    def last_before(self, group: set[Node]) -> int:
        """The position of the last node that the group depends on; its own position if there is none."""
        before = {producer for node in group for producer in self.producers(node)} - group - self.early
        return max((self.places[node] for node in before), default=max(self.places[node] for node in group))

    def producers(self, node: Node) -> Iterator[Node]:
        """The nodes that compute the operands of a node."""
        return (self.producer[x] for x in node.inputs if x in self.producer)


# Pools before the activations that they follow: the activation and its gradient then compute fewer elements.
#
#     MaxPool(ReLU(x))                            ->  ReLU(MaxPool(x))
#     ReluGrad(MaxPoolGrad(y, pooled, dout), y)   ->  MaxPoolGrad(x, largest, ReluGrad(dout, pooled))
#
# A function that never decreases may follow a maximum as well as precede it. The results are equal but for the sign of
# a gradient of 0 and its place: where ReLU gives 0 everywhere in a window, 0 goes to the largest of its operands.


def pool_first(graph: Graph) -> Graph:
    """Exchange each activation that never decreases with a pool that is the only operator to read it.

    What effects read is computed as well.
    """
    kept = {*graph.outputs, *graph.updates.values()}
    readers: dict[Value, list[Node]] = defaultdict(list)
    for node in graph.nodes:
        for x in dict.fromkeys(node.inputs):
            readers[x].append(node)
    changed: dict[Node, tuple[Node, ...]] = {}
    for node in graph.nodes:
        if node.op.never_decreases and kept.isdisjoint(node.outputs):
            for found, nodes in _exchanged(node, readers):
                changed[found] = nodes
    if not changed:
        return graph
    return dce(replace(graph, nodes=tuple(new for node in graph.nodes for new in changed.get(node, (node,)))))


def _exchanged(activation: Node, readers: Mapping[Value, Sequence[Node]]) -> Iterator[tuple[Node, tuple[Node, ...]]]:
    """Nodes, each with those that replace it; none when something else reads the activation or its gradient."""
    (x,), (y,) = activation.inputs, activation.outputs
    pools = [node for node in readers[y] if node.op.takes_largest]
    if len(pools) != 1 or pools[0].outputs[0].size >= y.size:
        return
    (pool,), (pooled,) = pools, pools[0].outputs
    spreads = [node for node in readers[y] if _is_gradient(node, pool) and _same(node.inputs[:2], (y, pooled))]
    masks = [node for spread in spreads for node in readers[spread.outputs[0]]]
    if not all(_is_gradient(mask, activation) and mask.inputs[1] is y for mask in masks):
        return
    if {*readers[y]} != {pool, *spreads, *masks}:
        return
    largest = Symbol(pooled.type, f"{as_symbol(pooled).name}.largest")
    after = replace(activation, inputs=(largest,), outputs=(pooled,))
    yield pool, (replace(pool, inputs=(x,), outputs=(largest,)), after)
    for spread in spreads:
        for mask in readers[spread.outputs[0]]:
            masked = Symbol(pooled.type, f"{as_symbol(mask.outputs[0]).name}.masked")
            first = replace(mask, inputs=(spread.inputs[2], pooled), outputs=(masked,))
            yield mask, (first, replace(spread, inputs=(x, largest, masked), outputs=mask.outputs))


def _same(values: Sequence[Value], others: Sequence[Value]) -> bool:
    return all(x is y for x, y in zip(values, others, strict=True))  # values have an == of their own


def _is_gradient(node: Node, of: Node) -> bool:
    return node.op.gradient_of == of.op.name and node.op.attributes() == of.op.attributes()


# Layouts: the memory layout of every value on the CPU, and the lowering of every operator.
#
# Convolutions and pools run about twice as fast when the batch is the innermost axis (BENCHMARKS.md); most other
# operators support both layouts. So one walk in graph order is enough: each operator gets the lowering that converts
# the fewest elements, and operators without a preference follow those that have one. Tiles pay off only if the producer
# writes them, so a walk backwards first finds the values that should be tiled: operands of pools, and of elementwise
# operators before pools.


def layout_for(device: Device) -> Pass:
    """The pass that chooses the form of every node: that of the tuning where there is one, else the best by rule.

    Operands in another layout than a lowering requires are converted before it.
    """
    tuned = dict(device.tuning.forms)

    def layout(graph: Graph) -> Graph:
        candidates = [(node, _allowed(node, device, tuned)) for node in graph.nodes]
        assignment = _Assignment(_preferably_tiled(candidates))
        return replace(graph, nodes=tuple(assignment.place(node, lowerings) for node, lowerings in candidates))

    return layout


layout = layout_for(Device())


def signature(node: Node) -> str:
    """The operator with its attributes and operand types. Nodes with the same signature have the same form."""
    return f"{node.op!r} of {', '.join(map(str, operand_types(node)))}"


def lowerings_of(node: Node, device: Device) -> tuple[Lowering, ...]:
    """The lowerings that a node supports and the device allows, the best one first."""
    lowerings = node.op.lowerings(*operand_types(node))
    return tuple(lowering for lowering in lowerings if not lowering.winograd or device.winograd == "auto")


def _allowed(node: Node, device: Device, tuned: Mapping[str, str]) -> tuple[Lowering, ...]:
    lowerings = lowerings_of(node, device)
    name = tuned.get(signature(node)) if tuned else None
    return tuple(lowering for lowering in lowerings if str(lowering) == name) or lowerings


def _preferably_tiled(candidates: Sequence[tuple[Node, tuple[Lowering, ...]]]) -> set[Value]:
    """The values that should be tiled."""
    tiled: set[Value] = set()
    for node, lowerings in reversed(candidates):
        required = not tiled.isdisjoint(node.outputs)
        lowering = next((f for f in lowerings if TILED in f.results), lowerings[0]) if required else lowerings[0]
        tiled.update(x for x, layout in with_layouts(node.inputs, lowering.operands) if layout is TILED)
    return tiled


class _Assignment:
    """The layouts in which each value is available so far: that of its producer, and those it was converted to."""

    def __init__(self, tiled: set[Value]) -> None:
        self.tiled = tiled
        self.layouts: dict[Value, set[Layout]] = {}

    def place(self, node: Node, lowerings: Sequence[Lowering]) -> Node:
        best = min(lowerings, key=lambda lowering: self.cost(node, lowering))
        for x, layout in self.conversions(node, best):
            self.layouts.setdefault(x, {PLAIN}).add(layout)
        self.layouts.update((y, {layout}) for y, layout in with_layouts(node.outputs, best.results))
        return replace(node, lowering=best)

    def cost(self, node: Node, lowering: Lowering) -> int:
        """The number of elements that are copied because of a lowering, before this node or later."""
        later = [
            y for y, layout in with_layouts(node.outputs, lowering.results) if y in self.tiled and layout is not TILED
        ]
        return lowering.penalty + sum(x.size for x, _ in self.conversions(node, lowering)) + sum(y.size for y in later)

    def conversions(self, node: Node, lowering: Lowering) -> list[tuple[Value, Layout]]:
        """The operands that must be converted for this lowering, with their new layout."""
        pairs = with_layouts(node.inputs, lowering.operands)
        return [(x, layout) for x, layout in pairs if x.ndim > 1 and layout not in self.layouts.get(x, {PLAIN})]
