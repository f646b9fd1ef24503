"""Errors point home: what fails behind the tracer tells the operator, its scope and the line of the user.

ONNX and onnxruntime name nodes, and nodes are named after the operator that they were lowered from; so the name is
looked for in whatever they say.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from runner.core.graph import Graph
from runner.core.observers import NO_GRAPHS, GraphObserver
from runner.core.primitive import Node
from runner.core.source import user_line
from runner.errors import DeviceError, InternalError, RunnerError

_FULL_NAME = re.compile(r"[\w/-]+-op\d+")


class Operators:
    """The operators of a graph by full name."""

    def __init__(self, graph: Graph) -> None:
        self._nodes = {node.name: node for node in (*graph.nodes, *graph.effects)}

    def named_in(self, text: str) -> Node | None:
        """The first one whose full name, or the name of an ONNX node of it, stands in a text."""
        found = (self._nodes.get(name) for name in _FULL_NAME.findall(text))
        return next((node for node in found if node is not None), None)


def located(error: RunnerError, graph: Graph) -> RunnerError:
    """Tell an error which operator it is about, when it names one of the graph."""
    node = Operators(graph).named_in("\n".join((error.what, *error.rows.values())))
    if node is not None:
        error.rows["operator"] = node.name  # onnxruntime says which of its nodes, or only that it was in a loop
        error.add(scope=node.scope, line=user_line(node.source))
    return error


@contextmanager
def at_home(graph: Graph, observer: GraphObserver = NO_GRAPHS, step: str | None = None) -> Iterator[None]:
    """Locate the errors of a block that works on a graph, and tell the observer. `step` is the pass that works.

    Raises InternalError for what a pass did not foresee. A device that is not usable is no fault of a graph.
    """
    try:
        yield
    except DeviceError:
        raise
    except RunnerError as error:
        observer.failed(graph)
        located(error.add(**{"pass": step}), graph)
        raise
    except Exception as error:
        observer.failed(graph)
        if step is None:
            raise
        reason = f"{type(error).__name__}: {error}"
        trouble = InternalError("a pass failed", **{"pass": step}, graph=graph.name, reason=reason)
        raise located(trouble, graph) from error
