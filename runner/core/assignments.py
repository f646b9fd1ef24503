"""New values of parameters: what a step assigns, and what its operators read.

The order, which is the same in both modes and in sinks:

1. An operator reads the latest value: that of the last assignment that the step has made before, in the order in which
   Python executes `construct`, or else the value from before the step.
2. A gradient is that of the values that the differentiated function has read.
3. Parameters have their new values after the step. If it raises, they keep their old ones.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from runner.core.precision import OperandCasting
from runner.core.values import OPERATORS, Parameter, Value, require_writable
from runner.errors import ConfigError, ShapeError


class Mark(NamedTuple):
    """A point of a step: the numbers of recorded nodes, of applied operators and of assignments up to it."""

    position: int = 0
    applied: int = 0
    assignments: int = 0


START = Mark()


class Assigning(OperandCasting):
    """The part of an interpreter that assigns parameters. `updates` has the latest value of each assigned one."""

    def __init__(self) -> None:
        super().__init__()
        self.updates: dict[Parameter, Value] = {}
        self.reads_latest = True
        self.assignments = 0  # number of assignments of the step
        self._assigned: dict[Parameter, list[tuple[int, Value]]] = {}  # their numbers and values

    def handles(self, values: tuple[Value, ...]) -> tuple[Value, ...]:
        """What operators read for these values."""
        raise NotImplementedError

    def entry(self, parameter: Parameter) -> Value:
        """The handle of a parameter's value before the step."""
        raise NotImplementedError

    def assign(self, parameter: Parameter, value: Value) -> None:
        """Assign a parameter a new value: later operators of the step read it, and the parameter has it afterwards.

        Raises ShapeError for another shape, and for an element type that is not converted to that of the parameter.
        """
        (value,) = self.handles((value,))
        is_cast = self.precision is not None and value.dtype.is_float and parameter.dtype.is_float
        if not is_cast:
            require_writable(parameter.name, parameter.type, value.type)
        value = self.with_dtype(value, parameter.dtype)
        if value.type != parameter.type:
            raise ShapeError(
                "a parameter keeps its type", parameter=parameter.name, has=parameter.type, given=value.type
            )
        self.updates[parameter] = value
        self._assigned.setdefault(parameter, []).append((self.assignments, value))
        self.assignments += 1

    @contextmanager
    def values_before(self) -> Iterator[None]:
        """Context of operators that read parameters as they were before the step."""
        self.reads_latest = False
        try:
            yield
        finally:
            self.reads_latest = True

    def at(self, parameter: Parameter, mark: Mark) -> Value:
        """The value that operators read at an earlier point of the step."""
        before = [value for number, value in self._assigned.get(parameter, ()) if number < mark.assignments]
        return before[-1] if before else self.entry(parameter)

    def assigned_since(self, parameter: Parameter, mark: Mark) -> list[Value]:
        """The values that were assigned after a point of the step, in order."""
        return [value for number, value in self._assigned.get(parameter, ()) if number >= mark.assignments]

    def replace_assigned(self, target: Value, former: Value) -> None:
        """A value that was assigned has another handle from now on."""
        self.updates = {p: former if value is target else value for p, value in self.updates.items()}
        for p, history in self._assigned.items():
            self._assigned[p] = [(number, former if value is target else value) for number, value in history]

    def restore_unless(self, condition: Value, mark: Mark) -> None:
        """Assign what was assigned since a point of the step its value at that point, unless a Bool scalar is true."""
        select, assigned = OPERATORS["Select"], [p for p in self.updates if self.assigned_since(p, mark)]
        with self.values_before():
            kept = [(p, select(condition, self.updates[p], self.at(p, mark))) for p in assigned]
        for parameter, value in kept:
            self.assign(parameter, value)


# The record of a step: which nodes belong to which call, and when their values may be freed.


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


# `x[key] = v` gives a value that has been used other elements, while the record keeps the former ones.
#
# The user's object stands for the new value from then on. In the record of nodes, whose gradient rules read operands, a
# new handle takes its former place.


class Rebinding(Recording):
    """The part of an interpreter that replaces values; `originals` has the first handle of each one replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.originals: dict[Value, Value] = {}

    def rebind(self, target: Value, value: Value) -> None:
        """Give `target` the value of `value`, the output of the last node, which has the same type."""
        raise NotImplementedError

    def original(self, handle: Value) -> Value:
        """The handle of the value that `handle` had at first."""
        return self.originals.get(handle, handle)

    def replace_handles(self, target: Value, former: Value, value: Value) -> None:
        """In the record, `former` takes the place of `target`, and `target` that of `value`."""
        self.originals.setdefault(target, former)
        self.calls.clear()  # whose operands and results would have other values now
        self.replace_assigned(target, former)
        for node in self.nodes:
            if any(x is target for x in node.inputs):
                node.inputs = tuple([former if x is target else x for x in node.inputs])
            node.outputs = tuple([former if y is target else target if y is value else y for y in node.outputs])
