"""The graph of a function with branches on values, from the traces of all its paths.

The part before a branch is the same in both paths. What follows it, with gradients and updates, becomes the two graphs
of an `If`: each path is exactly what PyNative mode would have executed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Literal

from runner.core.branch import Absent, Guarded, If
from runner.core.effect import Effect
from runner.core.graph import Graph, as_symbol, verify
from runner.core.primitive import Node
from runner.core.structure import flatten, static_parts
from runner.core.symbolic import Fork, Tracer, as_returned, symbols
from runner.core.value import Parameter, Symbol, Value
from runner.errors import ConfigError, ShapeError


@dataclass
class Path:
    """A trace and what it returned."""

    tracer: Tracer
    returned: object = ()

    def graph(self, name: str, inputs: tuple[Symbol, ...]) -> Graph:
        """The graph of this path alone."""
        return self.tracer.graph(name, inputs, self.outputs(name))

    def outputs(self, name: str) -> tuple[Symbol, ...]:
        """The values that were returned. Raises ConfigError for anything else but numbers and None."""
        returned = as_returned(self.returned, self.tracer)
        flat = flatten(returned)
        if isinstance(returned, tuple | list | Value | bool):
            others = [x for x in static_parts(flat.layout) if not isinstance(x, bool | int | float | None)]
        else:
            others = [returned]
        if others:
            raise ConfigError("a network must return tensors", network=name, returned=type(others[0]).__name__)
        return tuple(as_symbol(self.tracer.lift(value)) for value in flat.values)


@dataclass
class _Part:
    """A part of a graph: nodes, effects after them, and its results."""

    nodes: list[Node]
    effects: list[Node]
    results: list[Symbol]


def join(paths: Sequence[Path], name: str, inputs: tuple[Symbol, ...]) -> Graph:
    """The graph of all paths of a function. Raises ShapeError when two paths return other types."""
    tracer = paths[0].tracer
    assigned = list(dict.fromkeys(p for path in paths for p in path.tracer.updates))
    part = _Joiner(name, paths, assigned).tail(paths, 0, 0)
    outputs = len(part.results) - len(assigned)
    return Graph(
        name,
        inputs,
        tracer.parameters,
        tracer.constants,
        tuple(part.nodes),
        tuple(part.results[:outputs]),
        dict(zip(assigned, part.results[outputs:], strict=True)),
        tuple(part.effects),
    )


class _Joiner:
    """Joins paths, from their ends to their first branch."""

    def __init__(self, name: str, paths: Sequence[Path], assigned: Sequence[Parameter]) -> None:
        self.name, self.assigned, self.tracer = name, assigned, paths[0].tracer
        self.outputs = {id(path): path.outputs(name) for path in paths}
        self.numbers: Iterator[int] = count(max(path.tracer.count for path in paths))  # of nodes that no path has

    def tail(self, paths: Sequence[Path], depth: int, start: int) -> _Part:
        """What these paths, whose first `depth` branches have the same outcomes, have from node `start` on."""
        tracer = paths[0].tracer
        if len(tracer.forks) == depth:
            updates = [tracer.updates.get(p, self.tracer.entry(p)) for p in self.assigned]
            results = [*self.outputs[id(paths[0])], *[as_symbol(tracer.lift(value)) for value in updates]]
            return _part(tracer.nodes[start:], results)
        fork = tracer.forks[depth]
        sides = [[path for path in paths if path.tracer.forks[depth].taken is taken] for taken in (True, False)]
        self._check_results(fork, *(self.outputs[id(side[0])] for side in sides))
        then, other = (self.tail(side, depth + 1, fork.position) for side in sides)
        return self._branch(_part(tracer.nodes[start : fork.position], []), fork, then, other)

    def _check_results(self, fork: Fork, then: Sequence[Symbol], other: Sequence[Symbol]) -> None:
        if [x.type for x in then] != [x.type for x in other]:
            taken, otherwise = (", ".join(str(x.type) for x in each) or "nothing" for each in (then, other))
            where = {"network": self.name, "if_true": taken, "if_false": otherwise, "line": fork.place}
            repair = "the same shapes and element types after both, or run this network with mode=pynative"
            raise ShapeError("what a network returns depends on a branch", **where, repair=repair)

    def _branch(self, trunk: _Part, fork: Fork, then: _Part, other: _Part) -> _Part:
        """The trunk with an `If` of both parts at its end."""
        effects = self._joined_effects(fork, then, other)
        pairs = [
            *zip(then.results, other.results, strict=True),
            *(pair for _, operands in effects for pair in operands),
        ]
        chosen = [k for k, (a, b) in enumerate(pairs) if a is not b]
        results = [a for a, _ in pairs]
        if chosen:
            sides: tuple[tuple[_Part, Literal[0, 1], str], ...] = (then, 0, "then"), (other, 1, "else")
            graphs = [
                self._graph(f"{self.name}.{fork.applied}.{kind}", part.nodes, [pairs[k][side] for k in chosen])
                for part, side, kind in sides
            ]
            inputs = tuple(dict.fromkeys(x for graph in graphs for x in _captured(graph)))
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
        constants = {x: array for x, array in self.tracer.constants.items() if x in used}
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


def _part(nodes: Sequence[Node], results: list[Symbol]) -> _Part:
    effects = [node for node in nodes if isinstance(node.op, Effect)]
    return _Part([node for node in nodes if not isinstance(node.op, Effect)], effects, results)


def _captured(graph: Graph) -> Iterator[Symbol]:
    """The values that a part reads and does not define."""
    own = {y for node in graph.nodes for y in node.outputs}.union(graph.constants)
    used = dict.fromkeys([*(x for node in graph.nodes for x in node.inputs), *graph.outputs])
    return (as_symbol(x) for x in used if x not in own)
