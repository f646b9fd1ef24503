"""Errors of passes, ONNX and onnxruntime get the operator that they concern, its scope and the user's source line.

ONNX and onnxruntime name nodes in their messages, and nodes are named after the operator that they were lowered from.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from runner.core.graph import NO_GRAPHS, Graph, GraphObserver
from runner.core.operators import Node
from runner.core.source import user_line
from runner.errors import DeviceError, InternalError, RunnerError

_FULL_NAME = re.compile(r"[\w/-]+-op\d+")


class OperatorIndex:
    """The operators of a graph by full name."""

    def __init__(self, graph: Graph) -> None:
        self._nodes = {node.name: node for node in (*graph.all_nodes, *graph.effects)}

    def find_in(self, text: str) -> Node | None:
        """The first operator whose full name, or the name of an ONNX node of it, occurs in a text."""
        found = (self._nodes.get(name) for name in _FULL_NAME.findall(text))
        return next((node for node in found if node is not None), None)


def add_location(error: RunnerError, graph: Graph) -> RunnerError:
    """Add operator, scope and source line to an error that names an operator of the graph."""
    node = OperatorIndex(graph).find_in("\n".join((error.what, *error.rows.values())))
    if node is not None:
        error.rows["operator"] = node.name  # onnxruntime names the node, or only the loop around it
        error.add(scope=node.scope, line=user_line(node.source))
    return error


@contextmanager
def locate_errors(graph: Graph, observer: GraphObserver = NO_GRAPHS, step: str | None = None) -> Iterator[None]:
    """Add locations to the errors of a block that processes a graph, and notify the observer; `step` is the pass.

    Raises InternalError for an unexpected exception in a pass. Errors of the device are not attributed to the graph.
    """
    try:
        yield
    except DeviceError:
        raise
    except RunnerError as error:
        observer.failed(graph)
        add_location(error.add(**{"pass": step}), graph)
        raise
    except Exception as error:
        observer.failed(graph)
        if step is None:
            raise
        reason = f"{type(error).__name__}: {error}"
        internal = InternalError("a pass failed", **{"pass": step}, graph=graph.name, reason=reason)
        raise add_location(internal, graph) from error
