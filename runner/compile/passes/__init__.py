"""Passes: each transforms a graph into one that computes the same results."""

from collections.abc import Sequence
from dataclasses import replace

from runner.compile.onnx.describe import locate_errors
from runner.compile.passes.order import layout_for, pool_first, schedule_updates
from runner.compile.passes.simplify import cse, dce, fold, freeze, merge
from runner.core.graph import NO_GRAPHS, Graph, GraphObserver, Pass, verify
from runner.core.operators import Node
from runner.device import Device

PASSES: tuple[Pass, ...] = (fold, cse, dce, pool_first, schedule_updates)
# Weights are constant; onnxruntime does the rest, such as an activation within a convolution.
INFERENCE: tuple[Pass, ...] = (freeze, merge, fold, cse, dce, schedule_updates)


def default_passes(device: Device) -> tuple[Pass, ...]:
    """The passes for a device. On a CPU the last one selects layouts; accelerators choose their own."""
    return (*PASSES, *layout_passes(device))


def layout_passes(device: Device) -> tuple[Pass, ...]:
    """The pass that selects the layouts on a device, if there is one."""
    return (layout_for(device),) if device.target == "CPU" and device.tuning.placed else ()


def optimize(graph: Graph, passes: Sequence[Pass] = PASSES, observer: GraphObserver = NO_GRAPHS) -> Graph:
    """Apply passes in order, verify the graph after each, and notify the observer.

    Raises InternalError, with the pass and the operator, when a pass fails or returns a graph that is not well formed.
    """
    for apply in passes:
        with locate_errors(graph, observer, apply.__name__):
            graph = everywhere(apply, graph)
        observer.stage(apply.__name__, graph)
    return graph


def everywhere(apply: Pass, graph: Graph) -> Graph:
    """Apply a pass to a graph and to those of its branches, and verify each."""
    graph = verify(apply(graph))
    if not any(node.op.graphs for node in graph.nodes):
        return graph

    def with_branches(node: Node) -> Node:
        graphs = [everywhere(apply, inner) for inner in node.op.graphs]
        return replace(node, op=node.op.with_graphs(graphs)) if graphs else node

    return replace(graph, nodes=tuple(map(with_branches, graph.nodes)))
