"""What a graph has for a branch on a value of the step: an operator with two graphs, of which one is computed.

`runner/core/branches.py` makes them from what was traced; no network applies them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from math import inf
from typing import Any, ClassVar, NamedTuple

import numpy as np

from runner.core.graph import Graph, as_symbol, verify
from runner.core.lowering import Builder
from runner.core.operators import Effect, Node, Primitive, Types, graph_operator
from runner.core.precision import Needs
from runner.core.source import user_line
from runner.core.symbolic import Fork, symbols
from runner.core.values import Symbol, Value
from runner.errors import ConfigError, ShapeError
from runner.types import TensorType


@graph_operator
class If(Primitive):
    """`then` if the first operand, which has one element, is not 0, or else `other`.

    Both are graphs with constants, without parameters and effects. Their inputs are the other operands, and their
    outputs, which have the same types, the results.
    """

    needs: ClassVar = Needs.NOTHING
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

    needs: ClassVar = Needs.NOTHING
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


# The graph of a function with branches on values, from the traces of all its paths.
#
# The part before a branch is the same in both paths. What follows it, with gradients and updates, becomes the two
# graphs of an `If`: each path is exactly what PyNative mode would have executed.


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
