"""Pools before the activations that they follow: the activation and its gradient then compute fewer elements.

    MaxPool(ReLU(x))                            ->  ReLU(MaxPool(x))
    ReluGrad(MaxPoolGrad(y, pooled, dout), y)   ->  MaxPoolGrad(x, largest, ReluGrad(dout, pooled))

A function that never decreases may follow a maximum as well as precede it. The results are equal but for the sign of
a gradient of 0 and its place: where ReLU gives 0 everywhere in a window, 0 goes to the largest of its operands.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from runner.compile.passes.dce import dce
from runner.core.graph import Graph, as_symbol
from runner.core.operators import Node
from runner.core.values import Symbol, Value


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
