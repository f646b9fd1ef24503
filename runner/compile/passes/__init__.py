"""Passes: each takes a graph and gives one that computes the same results."""

from collections.abc import Sequence

from runner.compile.passes.cse import cse
from runner.compile.passes.dce import dce
from runner.compile.passes.fold import fold
from runner.compile.passes.layout import layout
from runner.compile.passes.soon import soon
from runner.core.graph import Graph, Pass, verify

PASSES: tuple[Pass, ...] = (fold, cse, dce, soon)
ON_HOST: tuple[Pass, ...] = (*PASSES, layout)  # the layout that pays on a CPU; cards choose their own


def optimize(graph: Graph, passes: Sequence[Pass] = PASSES) -> Graph:
    """Apply passes in order, and check the graph after each.

    Raises InternalError when a pass leaves a graph that is not well formed.
    """
    for apply in passes:
        graph = verify(apply(graph))
    return graph
