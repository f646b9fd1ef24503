"""Passes: each takes a graph and gives one that computes the same results."""

from collections.abc import Sequence

from runner.compile.blame import at_home
from runner.compile.passes.cse import cse
from runner.compile.passes.dce import dce
from runner.compile.passes.fold import fold
from runner.compile.passes.freeze import freeze
from runner.compile.passes.layout import layout
from runner.compile.passes.merge import merge
from runner.compile.passes.soon import soon
from runner.core.graph import Graph, Pass, verify
from runner.core.observer import SILENT, GraphObserver

PASSES: tuple[Pass, ...] = (fold, cse, dce, soon)
ON_HOST: tuple[Pass, ...] = (*PASSES, layout)  # the layout that pays on a CPU; cards choose their own
INFERENCE: tuple[Pass, ...] = (freeze, merge, *PASSES)  # weights stay as they are; the rest is onnxruntime's work


def optimize(graph: Graph, passes: Sequence[Pass] = PASSES, observer: GraphObserver = SILENT) -> Graph:
    """Apply passes in order, check the graph after each, and tell the observer.

    Raises InternalError, with the pass and the operator, when a pass fails or leaves a graph that is not well formed.
    """
    for apply in passes:
        with at_home(graph, observer, apply.__name__):
            graph = verify(apply(graph))
        observer.stage(apply.__name__, graph)
    return graph
