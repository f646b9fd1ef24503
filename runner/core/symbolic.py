"""The interpreter of graph mode, which executes one path of a function with symbols."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from runner.core.graph import Graph, as_symbol
from runner.core.interpreter import Interpreter, Mark, current, evaluate
from runner.core.operators import Collective, Effect, Node, Primitive
from runner.core.source import Source, user_line
from runner.core.values import Operand, Parameter, Symbol, Tensor, Value
from runner.core.while_statement import REPAIR, WhileFound, is_in_while_test, user_frame
from runner.errors import ConfigError, ShapeError
from runner.types import TensorType

MOST_FORKS = 64  # of one path


class Fork(NamedTuple):
    """A branch on a value that is only known when the graph runs: after `applied` operators."""

    predicate: Symbol
    taken: bool
    applied: int
    scope: str
    source: Source

    @property
    def place(self) -> str:
        """The user's line."""
        return str(user_line(self.source) or self.scope)


class Unknown(BaseException):
    """A branch depends on data, where only known ones are accepted; no `except Exception` of construct catches it."""


class Undecided(BaseException):
    """A trace has come to a branch whose outcome it was not given."""


class Tracer(Interpreter):
    """Infers types, and appends nodes to the record.

    `decisions` are the outcomes of its first branches on values; those after them are `beyond`, or end the trace with
    Undecided.
    """

    def __init__(
        self,
        root: str = "Default",
        decisions: Sequence[bool] = (),
        beyond: bool | None = True,
        outer: "Tracer | None" = None,
        inputs: Sequence[Symbol] = (),
    ) -> None:
        super().__init__(root)
        self.inputs = inputs
        self.outer, self.accepts_unknown = outer, True
        self.parameters: dict[Parameter, Symbol] = {}
        self.constants: dict[Symbol, np.ndarray] = {}
        self._constants: dict[tuple[TensorType, bytes], Symbol] = {}
        self.decisions, self.beyond = decisions, beyond
        self._rebound: dict[Tensor, Symbol] = {}  # constants that were given elements of the graph
        self.forks: list[Fork] = []
        self._decided: dict[int, bool] = {}  # by content
        self._contents: dict[Value, int] = {}
        # With a value each, which must live for as long as its id is a key.
        self._numbers: dict[tuple[object, ...], tuple[int, Value]] = {}
        self._producers: dict[Value, Node] = {}  # of the values of the first `_indexed` nodes
        self._indexed = 0
        self._known: dict[Value, np.ndarray | None] = {}

    def lift(self, operand: Operand) -> Value:
        """Parameters become inputs of the graph until the step assigns them, other tensors constants."""
        if isinstance(operand, Symbol):
            return operand
        if isinstance(operand, Parameter):
            if operand in self.assignments.latest and self.reads_latest:
                return self.assignments.latest[operand]
            return self.entry(operand) if self.outer is None else self.outer.lift(operand)
        assert isinstance(operand, Tensor)
        if (rebound := self._rebound_value(operand)) is not None:
            return rebound
        key = operand.type, operand.array.tobytes()
        if key not in self._constants:
            symbol = self._constants[key] = Symbol(operand.type, f"cst{len(self._constants) + 1}")
            self.constants[symbol] = operand.array
        return self._constants[key]

    def _rebound_value(self, tensor: Tensor) -> Symbol | None:
        found = self._rebound.get(tensor)
        return found if found is not None or self.outer is None else self.outer._rebound_value(tensor)

    def entry(self, parameter: Parameter) -> Value:
        if parameter not in self.parameters:
            self.parameters[parameter] = Symbol(parameter.type, parameter.name)
        return self.parameters[parameter]

    def apply(self, op: Primitive, inputs: tuple[Value, ...], types: tuple[TensorType, ...]) -> tuple[Value, ...]:
        outputs = symbols(types, self.count)
        self.tape.nodes.append(Node(op, inputs, outputs, self.current_scope(), self.count, self.source()))
        return outputs

    def rebind(self, target: Value, value: Value) -> None:
        """A symbol takes the name of its new value, and one of its former name its place in the graph so far."""
        self._contents.clear()
        self._producers.clear()
        self._known.clear()
        self._indexed = 0
        value = as_symbol(value)
        own = any(target is x for x in self.inputs) or self._producer(target) is not None
        if self.outer is not None and not own:
            what = "graph mode has no loop on values that assigns elements of what is no variable of the loop"
            raise ConfigError(what, value=target.type, line=user_line(self.source()), repair=REPAIR)
        if isinstance(target, Tensor):
            self._rebound[target] = value
            return
        former = Symbol(target.type, as_symbol(target).name)
        self.replace_handles(target, former, value)
        self.parameters = {p: former if s is target else s for p, s in self.parameters.items()}
        self.constants = {former if s is target else s: array for s, array in self.constants.items()}
        self._constants = {key: former if s is target else s for key, s in self._constants.items()}
        as_symbol(target).name = value.name
        self._producers.clear()
        self._indexed = 0

    def decide(self, predicate: Symbol) -> bool:
        """The outcome of a branch on a value in this trace.

        A value that does not depend on data has one outcome, and equal values have the same. Raises ShapeError for more
        than one element, and ConfigError for too many branches.
        """
        if predicate.size != 1:
            repair = ".all() or .any(), or ops.Select to choose for each element"
            where = {"value": predicate.type, "line": user_line(self.source()), "repair": repair}
            raise ShapeError("a branch needs one element", **where)
        known = self.known(predicate)
        if known is not None:
            return bool(known)
        if not self.accepts_unknown:
            raise Unknown
        content = self._content(predicate)
        if content not in self._decided:
            self._decided[content] = self._fork(predicate)
        return self._decided[content]

    def _fork(self, predicate: Symbol) -> bool:
        number = len(self.forks)
        frame = user_frame() if self.beyond is not None else None
        if frame is not None and is_in_while_test(frame):
            raise WhileFound(frame)
        if number == MOST_FORKS and self.beyond is not None:
            raise too_many_branches(self.forks, user_line(self.source()))
        taken = self.decisions[number] if number < len(self.decisions) else self.beyond
        place = self.count, self.current_scope(), self.source()
        self.forks.append(Fork(predicate, bool(taken), *place))
        if taken is None:
            raise Undecided
        return taken

    @contextmanager
    def known_branches(self) -> Iterator[None]:
        """Context in which a branch that depends on data raises Unknown."""
        before, self.accepts_unknown = self.accepts_unknown, False
        try:
            yield
        finally:
            self.accepts_unknown = before

    def forget(self, mark: Mark) -> None:
        """Remove the operators since a point of the step."""
        del self.tape.nodes[mark.position :]
        self.count = mark.applied
        self._indexed = min(self._indexed, mark.position)

    def known(self, value: Value) -> np.ndarray | None:
        """The elements of a value that depends on constants only; None for others."""
        if value in self.constants:
            return self.constants[as_symbol(value)]
        if value not in self._known:
            node = self._producer(value)
            self._known[value] = None
            if node is not None and not isinstance(node.op, Collective):
                operands = [self.known(x) for x in node.inputs]
                if all(x is not None for x in operands):
                    self._known.update(zip(node.outputs, evaluate(node, operands), strict=True))  # type: ignore[arg-type]
        return self._known[value]

    def _content(self, value: Value) -> int:
        """A number, the same for values that the same operators compute from the same operands."""
        if value not in self._contents:
            node = self._producer(value)
            key: tuple[object, ...] = (id(value),)
            if node is not None:
                output = next(k for k, y in enumerate(node.outputs) if y is value)
                key = node.op, output, *map(self._content, node.inputs)
            self._contents[value], _ = self._numbers.setdefault(key, (len(self._numbers), value))
        return self._contents[value]

    def _producer(self, value: Value) -> Node | None:
        for node in self.tape.nodes[self._indexed :]:
            self._producers.update(dict.fromkeys(node.outputs, node))
        self._indexed = len(self.tape.nodes)
        return self._producers.get(value)

    def graph(self, name: str, inputs: tuple[Symbol, ...], outputs: tuple[Symbol, ...]) -> Graph:
        """The graph of the record so far."""
        latest = self.assignments.latest
        for parameter in latest:
            self.entry(parameter)
        updates = {p: as_symbol(self.lift(v)) for p, v in latest.items()}
        nodes = tuple(node for node in self.tape.nodes if not isinstance(node.op, Effect))
        effects = tuple(node for node in self.tape.nodes if isinstance(node.op, Effect))
        inputs = tuple([as_symbol(self.tape.original(x)) for x in inputs])
        return Graph(name, inputs, self.parameters, self.constants, nodes, outputs, updates, effects)


def symbols(types: Sequence[TensorType], number: int) -> tuple[Symbol, ...]:
    """A symbol for each output of operator `number`."""
    names = [f"{number}"] if len(types) == 1 else [f"{number}.{k}" for k in range(len(types))]
    return tuple([Symbol(type, name) for type, name in zip(types, names, strict=True)])


def as_returned(returned: Any) -> Any:
    """What a function has returned; numbers are values if it has branches, since other paths may return other ones.

    A `map` or `zip` of Python is the tuple of its elements, which have to be computed while the function is traced.
    """
    tracer = current()
    returned = tuple(returned) if isinstance(returned, map | zip) else returned
    has_branches = isinstance(tracer, Tracer) and bool(tracer.forks)
    return _numbers_as_values(returned) if has_branches else returned


def _numbers_as_values(returned: Any) -> Any:
    if isinstance(returned, dict):
        return {name: _numbers_as_values(part) for name, part in returned.items()}
    if isinstance(returned, tuple | list):
        parts = [_numbers_as_values(part) for part in returned]
        return parts if isinstance(returned, list) else tuple(parts)
    return Tensor(returned) if isinstance(returned, bool | int | float) else returned


def too_many_branches(forks: Sequence[Fork], line: object) -> ConfigError:
    """The error of a step with too many branches in a row, or of a loop whose end depends on data."""
    lines = ", ".join(dict.fromkeys(fork.place.split("  ")[0] for fork in forks))
    repair = "ops.Select to choose between values, or run this network with mode=pynative"
    what = "graph mode follows every combination of outcomes, and these are too many"
    return ConfigError(what, line=line, branches=lines, repair=repair)
