"""Which operators of a run depend on the C library, noted where kernels are computed and programs are compiled.

Elsewhere their results may have other bits (docs/design/exactness.md). A run has notes of its own, since a process may
execute several; threads share them.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from runner.core.graph import Graph, GraphObserver
from runner.core.operators import LOWERING, Effect, Primitive

OWN = "own operator "  # what begins the note of a user's operator, which no test of ours has seen


class Notes:
    """The names of the operators noted so far; a user's has `OWN` before it."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def add(self, op: Primitive) -> None:
        """Note an operator. An effect has no results."""
        if not isinstance(op, Effect):
            self.names.add(f"{OWN}{op.name}" if op.is_users else op.name)

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Context with notes of its own: those of a run, or of what no run depends on."""
        before, self.names = self.names, set()
        try:
            yield
        finally:
            self.names = before


NOTES = Notes()


class LoweringNotes(GraphObserver):
    """Notes the operators of compiled graphs whose lowering depends on the C library."""

    def compiled(self, graph: Graph, model: object) -> None:
        for node in graph.all_nodes:
            if LOWERING in node.op.depends_on_libc:
                NOTES.add(node.op)


NOTE_LOWERINGS = LoweringNotes()
