"""Tracing for graph mode: a network is executed with symbols, and the operators it applies form its graph.

`trace(function, types, name)` is the entrance, at the end of this file. `Tracer` is the interpreter of one path of the
function: it gives each operator a symbol for each output, and parameters and other tensors become inputs and constants.
`if x > 0:` has Python call `bool(x > 0)`, which a trace answers with one outcome (`Tracer.decide`). The function is
executed again for the other outcome, and so on until every path is known; `join` makes them one graph, in which each
branch is an operator `If` with two graphs. A `while` on values is found here, and handled by `while_statement.py` and
`loops.py`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from math import inf
from typing import Any, ClassVar, NamedTuple

import numpy as np

from runner.core.graph import NO_GRAPHS, Graph, GraphObserver, as_symbol, verify
from runner.core.interpreter import Interpreter, Mark, current, evaluate
from runner.core.lowering import Builder
from runner.core.operators import Collective, Effect, Node, Primitive, Types, graph_operator
from runner.core.precision import OperandPrecision
from runner.core.source import Source, user_line
from runner.core.values import Operand, Parameter, Symbol, Tensor, Value, flatten, static_parts
from runner.core.while_statement import REPAIR, WhileFound, convert, is_in_while_test, user_frame
from runner.errors import ConfigError, RunnerError, ShapeError
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
        scope, instance = self.current_scope(), op.attrs.get("instance_name", "")
        self.tape.nodes.append(Node(op, inputs, outputs, scope, self.count, self.source(), instance=instance))
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
        self.replace_version(target, former, value)
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


# What a graph has for a branch on a value of the step: operators that no network applies.


@graph_operator
class If(Primitive):
    """`then` if the first operand, which has one element, is not 0, or else `other`.

    Both are graphs with constants, without parameters and effects. Their inputs are the other operands, and their
    outputs, which have the same types, the results.
    """

    precision: ClassVar = OperandPrecision.NOTHING
    computes: ClassVar = False

    then: Graph
    other: Graph

    @property
    def graphs(self) -> tuple[Graph, ...]:
        return self.then, self.other

    def with_graphs(self, graphs: Sequence[Graph]) -> "If":
        return If(*graphs)

    def infer(self, predicate: TensorType, *operands: TensorType) -> Types:
        return tuple([x.type for x in self.then.outputs])

    def flops(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
        return max(map(graph_flops, self.graphs))

    def attributes(self) -> dict[str, Any]:
        return {"then": self.then.name, "other": self.other.name}

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


def graph_flops(graph: Graph) -> int:
    """Floating-point operations of one execution of a graph."""
    return sum(node.op.flops([x.type for x in node.inputs], [y.type for y in node.outputs]) for node in graph.nodes)


@graph_operator
class Absent(Primitive):
    """The result of a graph that stands for a value of the other one; nothing reads it."""

    precision: ClassVar = OperandPrecision.NOTHING
    computes: ClassVar = False

    type: TensorType

    def infer(self) -> TensorType:
        return self.type

    def kernel(self) -> np.ndarray:
        return np.zeros(self.type.shape, self.type.dtype.numpy)

    def lower(self, b: Builder) -> str:
        shape = b.const(list(self.type.shape))
        return b.node("Expand", (b.const(np.zeros((), self.type.dtype.numpy)), shape))


@graph_operator
class Guarded(Effect):
    """An effect of one path: it is emitted if the first operand is not 0, or with `when=False` if it is 0."""

    effect: Effect
    when: bool

    @property
    def name(self) -> str:
        return self.effect.name

    def infer(self, predicate: TensorType, *operands: TensorType) -> Types:
        return self.effect.infer(*operands)

    def emit(self, *arrays: np.ndarray) -> None:
        """Output the operands, without the first one, if this path was taken."""
        predicate, *operands = arrays
        if bool(predicate) is self.when:
            self.effect.emit(*operands)


# The graph of all paths. The part before a branch is the same in both paths; what follows it, with gradients and
# updates, becomes the two graphs of an `If`: each path is exactly what PyNative mode would have executed.


class Path(NamedTuple):
    """The graph of one path, which is not verified, and the branches on it."""

    graph: Graph
    forks: list[Fork]


@dataclass
class _Part:
    """A part of a graph: nodes, effects after them, and its results."""

    nodes: list[Node]
    effects: list[Node]
    results: list[Symbol]


def join(paths: Sequence[Path]) -> Graph:
    """The graph of all paths of a function, in the order in which they were explored.

    Raises ShapeError when two paths return other types, and ConfigError when they begin differently.
    """
    first = paths[0].graph
    joiner = _Joiner(first)
    unified = [paths[0]]
    for path in paths[1:]:
        unified.append(joiner.unify(path, unified))
    part = joiner.tail(unified, 0, -1, first.name)
    outputs = len(part.results) - len(joiner.assigned)
    return replace(
        first,
        parameters=joiner.parameters,
        constants=joiner.constants,
        nodes=tuple(part.nodes),
        outputs=tuple(part.results[:outputs]),
        updates=dict(zip(joiner.assigned, part.results[outputs:], strict=True)),
        effects=tuple(part.effects),
    )


class _Joiner:
    """Joins paths, from their ends to their first branch. All have the symbols of the first one for what they share."""

    def __init__(self, first: Graph) -> None:
        self.name, self.inputs = first.name, first.inputs
        self.parameters, self.constants = dict(first.parameters), dict(first.constants)
        self.contents = {_content(symbol, array): symbol for symbol, array in first.constants.items()}
        self.assigned = dict.fromkeys(first.updates)
        self.numbers: Iterator[int] = count(1_000_000)  # of nodes that no path has

    def unify(self, path: Path, earlier: Sequence[Path]) -> Path:
        """The path with the inputs, parameters and constants of the others, and the first nodes of the nearest one."""
        graph, forks = path
        shared, like = max(((_shared(path, other), k) for k, other in enumerate(earlier)), key=lambda pair: pair[0])
        renamed: dict[Value, Symbol] = dict(zip(graph.inputs, self.inputs, strict=True))
        for parameter, symbol in graph.parameters.items():
            renamed[symbol] = self.parameters.setdefault(parameter, symbol)
        for symbol, array in graph.constants.items():
            renamed[symbol] = self.contents.setdefault(_content(symbol, array), symbol)
            self.constants.setdefault(renamed[symbol], array)
        end = forks[shared].applied
        nodes = self._begin(graph.nodes, earlier[like].graph.nodes, end, renamed)
        effects = self._begin(graph.effects, earlier[like].graph.effects, end, renamed)
        self.assigned |= dict.fromkeys(graph.updates)
        updates = {p: renamed.get(x, x) for p, x in graph.updates.items()}
        outputs = tuple([renamed.get(x, x) for x in graph.outputs])
        unified = replace(graph, nodes=nodes, effects=effects, outputs=outputs, updates=updates)
        renamed_forks = [fork._replace(predicate=renamed.get(fork.predicate, fork.predicate)) for fork in forks]
        return Path(unified, renamed_forks)

    def _begin(
        self, nodes: Sequence[Node], earlier: Sequence[Node], end: int, renamed: dict[Value, Symbol]
    ) -> tuple[Node, ...]:
        """The nodes with the values in `renamed`, and before number `end` those of the earlier path."""
        made = []
        first = [node for node in earlier if node.number < end]
        for k, node in enumerate(nodes):
            inputs = tuple([renamed.get(x, x) for x in node.inputs])
            if node.number < end:
                if k >= len(first) or not _is_alike(first[k], node, inputs):
                    raise _differs(node)
                renamed.update(zip(node.outputs, map(as_symbol, first[k].outputs), strict=True))
                made.append(first[k])
            else:
                made.append(replace(node, inputs=inputs))
        return tuple(made)

    def tail(self, paths: Sequence[Path], depth: int, start: int, name: str) -> _Part:
        """What these paths, whose first `depth` branches have the same outcomes, have from operator `start` on.

        `name` is that of the graph which they become.
        """
        graph, forks = paths[0]
        if len(forks) == depth:
            updates = [graph.updates.get(p, self.parameters[p]) for p in self.assigned]
            return _Part(_between(graph.nodes, start), _between(graph.effects, start), [*graph.outputs, *updates])
        fork = forks[depth]
        sides = [[path for path in paths if path.forks[depth].taken is taken] for taken in (True, False)]
        self._check_results(fork, *(side[0].graph.outputs for side in sides))
        names = [f"{name}.{fork.applied}.{kind}" for kind in ("then", "else")]
        then, other = (self.tail(x, depth + 1, fork.applied, y) for x, y in zip(sides, names, strict=True))
        nodes, effects = (_between(each, start, fork.applied) for each in (graph.nodes, graph.effects))
        return self._branch(_Part(nodes, effects, []), fork, then, other, names)

    def _check_results(self, fork: Fork, then: Sequence[Symbol], other: Sequence[Symbol]) -> None:
        if [x.type for x in then] != [x.type for x in other]:
            taken, otherwise = (", ".join(str(x.type) for x in each) or "nothing" for each in (then, other))
            where = {"network": self.name, "if_true": taken, "if_false": otherwise, "line": fork.place}
            repair = "the same shapes and element types after both, or run this network with mode=pynative"
            raise ShapeError("what a network returns depends on a branch", **where, repair=repair)

    def _branch(self, trunk: _Part, fork: Fork, then: _Part, other: _Part, names: Sequence[str]) -> _Part:
        """The trunk with an `If` of both parts at its end."""
        effects = self._joined_effects(fork, then, other)
        pairs = [
            *zip(then.results, other.results, strict=True),
            *(pair for _, operands in effects for pair in operands),
        ]
        chosen = [k for k, (a, b) in enumerate(pairs) if a is not b]
        results = [a for a, _ in pairs]
        if chosen:
            columns = [a for a, _ in (pairs[k] for k in chosen)], [b for _, b in (pairs[k] for k in chosen)]
            graphs = [
                self._graph(name, part.nodes, column)
                for name, part, column in zip(names, (then, other), columns, strict=True)
            ]
            inputs = tuple(dict.fromkeys(x for graph in graphs for x in captured(graph)))
            op = If(*[verify(replace(graph, inputs=inputs)) for graph in graphs])
            outputs = symbols([pairs[k][0].type for k in chosen], fork.applied)
            trunk.nodes.append(Node(op, (fork.predicate, *inputs), outputs, fork.scope, fork.applied, fork.source))
            for k, symbol in zip(chosen, outputs, strict=True):
                results[k] = symbol
        rest = iter(results[len(then.results) :])
        joined = [replace(e, inputs=(*e.inputs, *[next(rest) for _ in operands])) for e, operands in effects]
        return _Part(trunk.nodes, [*trunk.effects, *joined], results[: len(then.results)])

    def _graph(self, name: str, nodes: Sequence[Node], outputs: Sequence[Symbol]) -> Graph:
        used = {x for node in nodes for x in node.inputs}.union(outputs)
        constants = {x: array for x, array in self.constants.items() if x in used}
        return Graph(name, (), {}, constants, tuple(nodes), tuple(outputs))

    def _joined_effects(self, fork: Fork, then: _Part, other: _Part) -> list[tuple[Node, list[tuple[Symbol, Symbol]]]]:
        """The effects of both parts, and their operands in each. Equal ones at the ends are joined, others guarded."""
        shared = 0
        for a, b in zip(reversed(then.effects), reversed(other.effects), strict=False):
            if a.op != b.op or [x.type for x in a.inputs] != [x.type for x in b.inputs]:
                break
            shared += 1
        joined: list[tuple[Node, list[tuple[Symbol, Symbol]]]] = []
        for part, absent, taken in ((then, other, True), (other, then, False)):
            own = {y for node in part.nodes for y in node.outputs}
            for effect in part.effects[: len(part.effects) - shared]:
                assert isinstance(effect.op, Effect)
                scope = f"{effect.scope}/{'then' if taken else 'else'}{fork.applied}"
                guarded = replace(effect, op=Guarded(effect.op, taken), inputs=(fork.predicate,), scope=scope)
                operands = [
                    (x, self._absent(absent, x, fork) if x in own else x) for x in map(as_symbol, effect.inputs)
                ]
                joined.append((guarded, operands if taken else [(b, a) for a, b in operands]))
        last = zip(
            then.effects[len(then.effects) - shared :], other.effects[len(other.effects) - shared :], strict=True
        )
        for a, b in last:
            pairs = zip(map(as_symbol, a.inputs), map(as_symbol, b.inputs), strict=True)
            joined.append((replace(a, inputs=()), list(pairs)))
        return joined

    def _absent(self, part: _Part, like: Symbol, fork: Fork) -> Symbol:
        number = next(self.numbers)
        (symbol,) = symbols([like.type], number)
        part.nodes.append(Node(Absent(like.type), (), (symbol,), fork.scope, number, fork.source))
        return symbol


def _shared(path: Path, other: Path) -> int:
    """The number of branches with the same outcomes at the beginning of two paths."""
    pairs = zip(path.forks, other.forks, strict=False)
    return next((k for k, (a, b) in enumerate(pairs) if a.taken is not b.taken), 0)


def _is_alike(first: Node, node: Node, inputs: Sequence[Value]) -> bool:
    """Whether a node of another trace, with these inputs instead of its own, is the same as the first one."""
    graphs = [list(map(str, x.op.graphs)) for x in (first, node)]
    same = graphs[0] == graphs[1] if graphs[0] else first.op == node.op
    return same and first.op.name == node.op.name and list(map(id, first.inputs)) == list(map(id, inputs))


def _between(nodes: Sequence[Node], start: int, end: float = inf) -> list[Node]:
    return [node for node in nodes if start <= node.number < end]


def _content(symbol: Symbol, array: np.ndarray) -> tuple[object, bytes]:
    return symbol.type, array.tobytes()


def _differs(node: Node) -> ConfigError:
    what = "construct does something else each time it is executed"
    reason = "graph mode executes it once for each branch"
    repair = "in construct, change no attributes or lists, and draw no random numbers of Python or numpy"
    return ConfigError(what, reason=reason, operator=node.name, line=user_line(node.source), repair=repair)


def captured(graph: Graph) -> Iterator[Symbol]:
    """The values that a part reads and does not define."""
    own = {y for node in graph.nodes for y in node.outputs}.union(graph.inputs, graph.constants)
    used = dict.fromkeys([*(x for node in graph.nodes for x in node.inputs), *graph.outputs])
    return (as_symbol(x) for x in used if x not in own)


# All traces of a function.

MOST_PATHS = 64


def trace(
    function: Callable[..., object],
    types: Sequence[TensorType],
    name: str,
    root: str = "Default",
    observer: GraphObserver = NO_GRAPHS,
) -> Graph:
    """Execute `function` with a symbol for each type, and return its verified graph.

    Raises ConfigError when it returns anything but tensors, ShapeError when paths return other types, and ConfigError
    for too many paths. On failure the observer receives the part traced so far.
    """
    paths = _Traces(function, types, name, root, observer).explore()
    graph = verify(join(paths) if len(paths) > 1 else paths[0].graph)
    observer.traced(graph)
    return graph


def trace_path(
    function: Callable[..., object], types: Sequence[TensorType], name: str, root: str, decisions: Sequence[bool]
) -> tuple[Graph, list[Fork]]:
    """The graph of the path with these outcomes, and its branches; it ends at the first branch after them."""
    path = _Traces(function, types, name, root, NO_GRAPHS).run(decisions, beyond=None)
    return verify(path.graph), path.forks


def trace_inner(function: Callable[..., object], types: Sequence[TensorType], name: str, outer: Tracer) -> Graph:
    """The graph of a part of a function that `outer` is executing; what it reads of the outer graph is not declared."""
    paths = _Traces(function, types, name, outer.scope[0], NO_GRAPHS, outer).explore()
    return join(paths) if len(paths) > 1 else paths[0].graph


class _Traces:
    """The traces of a function for inputs of these types."""

    def __init__(
        self,
        function: Callable[..., object],
        types: Sequence[TensorType],
        name: str,
        root: str,
        observer: GraphObserver,
        outer: Tracer | None = None,
    ) -> None:
        self.outer = outer
        self.function, self.types, self.name, self.root, self.observer = function, types, name, root, observer
        self.paths: list[Path] = []

    def explore(self, decisions: tuple[bool, ...] = ()) -> list[Path]:
        """All paths that begin with these outcomes; of two, that where the branch is taken comes first."""
        path = self.run(decisions, beyond=True)
        self.paths.append(path)
        if len(self.paths) > MOST_PATHS:
            raise too_many_branches(path.forks, path.forks[-1].place)
        outcomes = tuple([fork.taken for fork in path.forks])
        for k in reversed(range(len(decisions), len(outcomes))):
            self.explore((*outcomes[:k], False))
        return self.paths

    def run(self, decisions: Sequence[bool], beyond: bool | None) -> Path:
        """One trace. A function with a loop on values gets its new code first."""
        while True:
            try:
                return self._run(decisions, beyond)
            except WhileFound as found:
                if self.outer is not None:
                    raise
                convert(found.frame)

    def _run(self, decisions: Sequence[bool], beyond: bool | None) -> Path:
        inputs = tuple(Symbol(type, f"input{k}") for k, type in enumerate(self.types))
        outputs: tuple[Symbol, ...] = ()
        with Tracer(self.root, decisions, beyond, self.outer, inputs) as tracer:
            if self.outer is not None:
                tracer.scope, tracer.count = list(self.outer.scope), self.outer.count
                tracer.precision = self.outer.precision
            try:
                outputs = _output_symbols(tracer, as_returned(self.function(*inputs)), self.name)
            except Undecided:
                pass
            except Exception as error:
                self.observer.failed(tracer.graph(self.name, inputs, ()))
                if not tracer.forks or isinstance(error, RunnerError):
                    raise
                what, repair = "a path raises an exception while graph mode traces it", "leave it out, or mode=pynative"
                reason, line = f"{type(error).__name__}: {error}", tracer.forks[-1].place
                raise ConfigError(what, reason=reason, line=line, repair=repair) from error
        return Path(tracer.graph(self.name, inputs, outputs), tracer.forks)


def _output_symbols(tracer: Tracer, returned: object, name: str) -> tuple[Symbol, ...]:
    flat = flatten(returned)
    if isinstance(returned, tuple | list | Value | bool):
        others = [x for x in static_parts(flat.layout) if not isinstance(x, bool | int | float | None)]
    else:
        others = [returned]
    if others:
        raise ConfigError("a network must return tensors", network=name, returned=type(others[0]).__name__)
    return tuple(as_symbol(tracer.lift(value)) for value in flat.values)
