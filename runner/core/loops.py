"""Loops on values: an operator with two graphs, its test and its body, and the function that makes it from Python."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Any, ClassVar

from runner.core.gradients import pull_back
from runner.core.graph import Graph, as_symbol, verify
from runner.core.interpreter import current
from runner.core.operators import Collective, Gradient, Primitive, Types, graph_operator
from runner.core.precision import OperandPrecision
from runner.core.source import user_line
from runner.core.trace import Tracer, Unknown, captured, graph_flops, trace_inner
from runner.core.values import Tensor, Value, syntax
from runner.core.while_statement import REPAIR, UNBOUND
from runner.errors import ConfigError, NotDifferentiable, ShapeError
from runner.types import TensorType


@graph_operator
class While(Primitive):
    """The first `count` operands, replaced by the results of `body` for as long as `test` gives anything but 0.

    The other operands are the same in every iteration. Both graphs have all operands as inputs.
    """

    precision: ClassVar = OperandPrecision.NOTHING
    computes: ClassVar = False

    test: Graph
    body: Graph
    count: int
    step: Callable[..., Sequence[Value]] = field(compare=False)  # one iteration of Python's loop

    @property
    def graphs(self) -> tuple[Graph, ...]:
        return self.test, self.body

    def with_graphs(self, graphs: Sequence[Graph]) -> "While":
        test, body = graphs
        return While(test, body, self.count, self.step)

    def infer(self, *types: TensorType) -> Types:
        return types[: self.count]

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return sum(map(graph_flops, self.graphs))

    def attributes(self) -> dict[str, Any]:
        return {"test": self.test.name, "body": self.body.name, "count": self.count}

    def grad(self, inputs: Sequence[Value], outputs: Sequence[Value], douts: Sequence[Value]) -> Sequence[Gradient]:
        """The gradients of one iteration, which runs backwards through a history of the variables."""
        operands = [k for k, x in enumerate(inputs) if x.dtype.is_float]
        floats = [k for k in operands if k < self.count]
        pull = self._pull_graph(inputs, floats, operands)
        made: list[Value] = []

        def gradient(place: int) -> Value:
            if not made:
                op = WhileGrad(self.test, self.body, pull, self.count, tuple(operands))
                made.extend(current().bind(op, (*inputs, *[douts[k] for k in floats])))
            return made[place]

        rules: list[Gradient] = [None] * len(inputs)
        for place, k in enumerate(operands):
            rules[k] = partial(gradient, place)
        return rules

    def _pull_graph(self, inputs: Sequence[Value], floats: Sequence[int], operands: Sequence[int]) -> Graph:
        """From the variables at the beginning of an iteration and the adjoints of those at its end: the adjoints at the
        beginning, and the gradients of the other operands."""

        def pulled(*values: Value) -> list[Value]:
            tracer, state = current(), values[: self.count]
            begin = tracer.mark()
            ends = self.step(*state)
            adjoint: dict[Value, Value] = {}
            for k, value in zip(floats, values[self.count :], strict=True):
                end = tracer.lift(ends[k])
                adjoint[end] = syntax.add(adjoint[end], value) if end in adjoint else value
            targets = [tracer.tape.original(state[k] if k < self.count else inputs[k]) for k in operands]
            found = pull_back(adjoint, [(x,) for x in targets], begin)
            return [tracer.with_dtype(x, inputs[k].dtype) for x, k in zip(found, operands, strict=True)]

        tracer = current()
        assert isinstance(tracer, Tracer)
        types = [x.type for x in (*inputs[: self.count], *[inputs[k] for k in floats])]
        graph = trace_inner(pulled, types, f"{self.body.name}.gradient", tracer)
        others = tuple(map(as_symbol, inputs[self.count :]))
        if not set(captured(graph)) <= set(others):
            reason = "a value or a parameter that its body reads is assigned between the loop and its gradient"
            raise NotDifferentiable("the gradient of this while is not known", reason=reason, repair=REPAIR)
        return verify(replace(graph, inputs=(*graph.inputs, *others)))

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


@graph_operator
class WhileGrad(Primitive):
    """The gradients of the float operands of a `While`, numbers `operands`, from its operands and the adjoints of its
    float results. `pull` goes back through one iteration."""

    precision: ClassVar = OperandPrecision.NOTHING
    computes: ClassVar = False

    test: Graph
    body: Graph
    pull: Graph
    count: int
    operands: tuple[int, ...]

    @property
    def graphs(self) -> tuple[Graph, ...]:
        return self.test, self.body, self.pull

    def with_graphs(self, graphs: Sequence[Graph]) -> "WhileGrad":
        test, body, pull = graphs
        return WhileGrad(test, body, pull, self.count, self.operands)

    def infer(self, *types: TensorType) -> Types:
        return tuple([types[k] for k in self.operands])

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return sum(map(graph_flops, self.graphs))

    def attributes(self) -> dict[str, Any]:
        return {"test": self.test.name, "body": self.body.name, "pull": self.pull.name, "count": self.count}

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


def loop(
    test: Callable[..., Any], body: Callable[..., tuple[Any, ...]], state: tuple[Any, ...], names: Sequence[str]
) -> tuple[Any, ...]:
    """The state after `while test(*state): state = body(*state)`; `names` are those of its variables.

    While a test does not depend on data, this is Python's loop. Raises ShapeError when a variable changes its type, and
    ConfigError for what a loop of a graph cannot do.
    """
    tracer = current()
    if not isinstance(tracer, Tracer) or tracer.beyond is None:
        while test(*state):
            state = body(*state)
        return state
    while (outcome := _known(tracer, test, state)) is True:
        state = body(*state)
    return _Loop(tracer, test, body, names).bind(state) if outcome is None else state


def _known(tracer: Tracer, test: Callable[..., Any], state: tuple[Any, ...]) -> bool | None:
    """The outcome of a test; None, without operators in the record, if it depends on data."""
    mark = tracer.mark()
    try:
        with tracer.known_branches():
            return bool(test(*state))
    except Unknown:
        tracer.forget(mark)
        return None


def state_of(variables: Mapping[str, Any], names: Sequence[str]) -> tuple[Any, ...]:
    """The values of these variables; UNBOUND for one that has none."""
    return tuple([variables.get(name, UNBOUND) for name in names])


class _Loop:
    """A loop that becomes an operator."""

    def __init__(
        self,
        tracer: Tracer,
        test: Callable[..., Any],
        body: Callable[..., tuple[Any, ...]],
        names: Sequence[str],
    ) -> None:
        self.tracer, self.test, self.body, self.names = tracer, test, body, names
        self.line = user_line(tracer.source())

    def bind(self, state: tuple[Any, ...]) -> tuple[Any, ...]:
        """The state after the loop."""
        carried = [k for k, x in enumerate(state) if isinstance(x, Value)]
        types = [state[k].type for k in carried]
        ends: list[tuple[Any, ...]] = []

        def once(*values: Value) -> tuple[Value, ...]:
            ends.append(self.body(*_with(state, carried, values)))
            return tuple([_as_value(ends[-1][k], state[k]) for k in carried])

        body = self._graph(once, types, "body")
        if changed := self._changed(state, ends, carried):
            return self.bind(tuple([Tensor(x) if k in changed else x for k, x in enumerate(state)]))
        self._check(types, body, carried)
        test = self._graph(lambda *values: self.test(*_with(state, carried, values)), types, "test")
        if len(test.outputs) != 1 or test.outputs[0].size != 1:
            given = ", ".join(str(x.type) for x in test.outputs)
            raise ShapeError("a while needs a test with one element", given=given, line=self.line)
        outer = tuple(dict.fromkeys(x for graph in (test, body) for x in captured(graph)))
        graphs = [verify(replace(graph, inputs=(*graph.inputs, *outer))) for graph in (test, body)]
        made = self.tracer.bind(While(graphs[0], graphs[1], len(types), once), (*[state[k] for k in carried], *outer))
        return _with(state, carried, made)

    def _graph(self, function: Callable[..., Any], types: Sequence[TensorType], kind: str) -> Graph:
        graph = trace_inner(function, types, f"while{self.tracer.count}.{kind}", self.tracer)
        if graph.updates or graph.effects or any(isinstance(node.op, Collective) for node in graph.all_nodes):
            what = "graph mode has no loop in which parameters are assigned, values are printed or ranks communicate"
            raise ConfigError(what, line=self.line, repair=REPAIR)
        return graph

    def _changed(self, state: tuple[Any, ...], ends: Sequence[tuple[Any, ...]], carried: Sequence[int]) -> set[int]:
        """The numbers that the body changes, which have to be values."""
        changed = set()
        for end in ends:
            for k, (before, after) in enumerate(zip(state, end, strict=True)):
                if k in carried or before is UNBOUND or before is after:
                    continue
                if isinstance(before, bool | int | float) and isinstance(after, Value | bool | int | float):
                    if isinstance(after, Value) or (type(before), before) != (type(after), after):
                        changed.add(k)
                elif before != after:
                    what = "a variable of a while that depends on data is neither a tensor nor a number"
                    rows = {"variable": self.names[k], "given": type(after).__name__, "line": self.line}
                    raise ConfigError(what, **rows, repair=REPAIR)
        return changed

    def _check(self, types: Sequence[TensorType], body: Graph, carried: Sequence[int]) -> None:
        for before, after, k in zip(types, body.outputs, carried, strict=True):
            if before != after.type:
                rows = {"variable": self.names[k], "before": before, "after": after.type, "line": self.line}
                repair = "give it this shape and element type before the loop"
                raise ShapeError("a variable changes its type in a while that depends on data", **rows, repair=repair)


def _with(state: tuple[Any, ...], carried: Sequence[int], values: Sequence[Value]) -> tuple[Any, ...]:
    new = dict(zip(carried, values, strict=True))
    return tuple([new.get(k, x) for k, x in enumerate(state)])


def _as_value(end: Any, like: Value) -> Any:
    """The end of an iteration as a value; a number gets the element type that its variable has."""
    if isinstance(end, bool | int | float) and not isinstance(end, Value):
        return Tensor(end).astype(like.dtype) if not like.shape else Tensor(end)
    return end
