"""Passes: each takes a graph and gives one that computes the same results."""

from collections.abc import Sequence

from runner.compile.onnx.locate_error import at_home
from runner.compile.passes.cse import cse
from runner.compile.passes.dce import dce
from runner.compile.passes.fold import fold
from runner.compile.passes.freeze import freeze
from runner.compile.passes.layout import layout_with
from runner.compile.passes.merge import merge
from runner.compile.passes.schedule_updates import soon
from runner.core.graph import Graph, Pass, verify
from runner.core.observers import NO_GRAPHS, GraphObserver
from runner.device import Device

PASSES: tuple[Pass, ...] = (fold, cse, dce, soon)
INFERENCE: tuple[Pass, ...] = (freeze, merge, *PASSES)  # weights stay as they are; the rest is onnxruntime's work


def usual(device: Device) -> tuple[Pass, ...]:
    """The passes for a device: on a CPU they end with the layout that pays there; cards choose their own."""
    return (*PASSES, *placing(device))


def placing(device: Device) -> tuple[Pass, ...]:
    """The pass that chooses the layout for a device, if there is one."""
    return (layout_with(device.tuning),) if device.target == "CPU" and device.tuning.placed else ()


def optimize(graph: Graph, passes: Sequence[Pass] = PASSES, observer: GraphObserver = NO_GRAPHS) -> Graph:
    """Apply passes in order, check the graph after each, and tell the observer.

    Raises InternalError, with the pass and the operator, when a pass fails or leaves a graph that is not well formed.
    """
    for apply in passes:
        with at_home(graph, observer, apply.__name__):
            graph = verify(apply(graph))
        observer.stage(apply.__name__, graph)
    return graph
