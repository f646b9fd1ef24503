"""The record of a step: which nodes belong to which call, and when their values may be freed."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from runner.core.assignments import Assigning, Mark
from runner.errors import ConfigError


class Call(NamedTuple):
    """A finished call of a cell: its operands and results, and the points of the step before and after it."""

    inputs: tuple[Any, ...]
    outputs: Any
    begin: Mark
    end: Mark


class Recording(Assigning):
    """The part of an interpreter that records the applied nodes.

    `tape` says whether it does, `depth` how many functions are being executed that will be differentiated. `calls` has
    the last call of each cell while its nodes are kept: a differentiation of that call does not execute it again.
    """

    def __init__(self) -> None:
        super().__init__()
        self.nodes: list[Any] = []
        self.calls: dict[object, Call] = {}
        self.tape = True
        self.depth = 0
        self.count = 0  # number of applied operators
        self.released = -1  # their number when a part of the record was handed over

    def mark(self) -> Mark:
        """The present point of the step."""
        return Mark(len(self.nodes), self.count, self.assignments)

    @contextmanager
    def differentiation(self) -> Iterator[Mark]:
        """Context of a function that is differentiated afterwards; the mark of its beginning."""
        self.depth += 1
        try:
            yield self.mark()
        finally:
            self.depth -= 1

    @contextmanager
    def unrecorded(self) -> Iterator[None]:
        """Context of operators that no later gradient of the step depends on, unless a function is differentiated."""
        before, self.tape = self.tape, self.tape and self.depth > 0
        try:
            yield
        finally:
            self.tape = before

    def record(self, since: Mark, last: bool = False) -> list[Any]:
        """The nodes since a point of the step, in order. `last` hands them over: the interpreter no longer keeps them.

        Raises ConfigError when some of them were handed over before.
        """
        if since.applied < self.released:
            reason = "gradients(..., last=True) or an outermost GradOperation has released the nodes that it passed"
            hint = "leave out last=True when gradients are computed more than once in a step"
            raise ConfigError("the record of this step was released", reason=reason, hint=hint)
        if last:
            self.released = self.count
            self.calls.clear()
        return self.nodes[since.position :]
