"""New values of parameters: what a step assigns, and what its operators read.

The order, which is the same in both modes and in sinks:

1. An operator reads the latest value: that of the last assignment that the step has made before, in the order in which
   Python executes `construct`, or else the value from before the step.
2. A gradient is that of the values that the differentiated function has read.
3. Parameters have their new values after the step. If it raises, they keep their old ones.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from runner.core.conversion import require_writable
from runner.core.precision import OperandCasting
from runner.core.value import OPERATORS, Parameter, Value
from runner.errors import ShapeError


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
