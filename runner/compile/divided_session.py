"""Runs a graph that is cut into segments: what is computed once, what each part of the batch computes, and between
them what ranks exchange.

A session has one thread; threads of this process run several sessions at once. So neither their number nor the load of
the machine can change how a sum is added.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from runner.compile.onnx.cut import Cut
from runner.compile.onnx.lower import lower
from runner.compile.parts import AddParts, DividedGraph, Segment
from runner.compile.passes import layout_passes
from runner.compile.passes.simplify import dce
from runner.compile.session import Session
from runner.core.graph import Graph, as_symbol
from runner.core.interpreter import evaluate
from runner.core.lowering import LAST, Layout
from runner.core.operators import Node
from runner.core.source import user_line
from runner.core.values import Parameter, Symbol, Value, syntax
from runner.device import Device
from runner.errors import ConfigError
from runner.types import Shape

if TYPE_CHECKING:
    from runner.compile.onnx.model import ModelProto

T = TypeVar("T")
Key = tuple[Symbol | str, int | None]  # a value, or that of one part; what only its model knows has a name


def has_collectives(graph: Graph) -> bool:
    """Whether the graph must be cut. Raises ConfigError for collectives that only one path of a branch has."""
    for node in graph.nodes:
        if any(x.op.communicates for inner in node.op.graphs for x in inner.all_nodes):
            what = "in a data-parallel run, graph mode cannot branch on a value before the ranks communicate"
            repair = "ops.Select to choose between values, or run this network with mode=pynative"
            raise ConfigError(what, branch=node.name, line=user_line(node.source), repair=repair)
    return any(node.op.communicates for node in graph.nodes)


@dataclass
class Task:
    """A session to run, and the places of its inputs and outputs among all values. `views` are outputs in another
    shape: their place, that of the output, and the shape."""

    session: Session
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    views: tuple[tuple[int, int, Shape], ...] = ()

    def run(self, known: list[Any]) -> None:
        """Compute the outputs."""
        results = self.session.step([known[place] for place in self.inputs])
        for place, result in zip(self.outputs, results, strict=True):
            known[place] = result
        for place, source, shape in self.views:
            known[place] = known[source].reshape(shape)


Kernel = tuple[Node, tuple[int, ...], tuple[int, ...]]  # what numpy computes, and the places of operands and results


@dataclass
class Turn:
    """Kernels of numpy, one after the other, which may exchange values with other ranks; then tasks that can run at
    once; then the places of values that nothing reads any more."""

    kernels: list[Kernel] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    released: tuple[int, ...] = ()


class DividedSession:
    """Runs a divided graph; it has the interface of `Session`, and sessions for its segments.

    Inputs and results are in the order of the graph: inputs and parameters; outputs, updates, operands of effects.
    `layouts` selects the results that are returned batch last. Raises as `Session`, and what collectives raise.
    """

    def __init__(
        self, division: DividedGraph, device: Device, optimize: bool, layouts: Mapping[Value, Layout] | None = None
    ) -> None:
        self.division, self.graph, self.layouts = division, division.graph, layouts or {}
        self._optimize, self._single = optimize, with_one_thread(device)
        self._places: dict[Key, int] = {}
        self._constants: dict[int, np.ndarray] = {}
        self._first: Session | None = None
        self.nodes = tuple([node for segment in division.segments for node in segment.whole])  # as they are executed
        self.turns = self._turns()
        first = self._first or self._session(lower(self._copy_of_operand()), self._single, self._optimize)
        self.device, self.providers, self.notes = (
            replace(first.device, threads=device.threads),
            first.providers,
            first.notes,
        )
        self.optimization_level, self.put, self.fetch = first.optimization_level, first.put, first.fetch
        self._threads = min(device.workers, max([len(turn.tasks) for turn in self.turns], default=1))
        self._pool: ThreadPoolExecutor | None = None
        given = (*self.graph.inputs, *self.graph.parameters.values())
        self._given = [self._places.get((x, None)) for x in given]
        self._results = [self._place((as_symbol(x), None)) for x in self.graph.results]
        self._constants = {
            self._place((x, None)): put for x, put in self.division.constants.items() if (x, None) in self._places
        }

    def step(self, values: Sequence[Any]) -> list[Any]:
        """Run once, as `Session.step`."""
        known: list[Any] = [None] * len(self._places)
        for place, array in self._constants.items():
            known[place] = array
        for given, value in zip(self._given, values, strict=True):
            if given is not None:
                known[given] = value
        for turn in self.turns:
            with np.errstate(all="ignore") if turn.kernels else nullcontext():
                for kernel in turn.kernels:
                    self._compute(*kernel, known)
            self._run(turn.tasks, known)
            for place in turn.released:
                known[place] = None
        return [self._in_layout(x, known[place]) for x, place in zip(self.graph.results, self._results, strict=True)]

    def _run(self, tasks: Sequence[Task], known: list[Any]) -> None:
        """Run tasks, several at once if there are threads for them."""
        waiting = deque(tasks)

        def work() -> None:
            while True:
                try:
                    task = waiting.popleft()
                except IndexError:
                    return
                task.run(known)

        count = min(self._threads, len(tasks)) - 1
        if count > 0 and self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads - 1, "runner-part")
        others = [self._pool.submit(work) for _ in range(count)] if self._pool is not None and count > 0 else []
        try:
            work()
        finally:
            waiting.clear()  # after an error
            problems = [other.exception() for other in others]
        for problem in problems:
            if problem is not None:
                raise problem

    def _compute(self, node: Node, inputs: Sequence[int], outputs: Sequence[int], known: list[Any]) -> None:
        """Compute an operator in numpy."""
        arrays = [known[k] if isinstance(known[k], np.ndarray) else self.fetch(known[k]) for k in inputs]
        results = node.op.kernel(*arrays) if node.op.on_host else tuple(evaluate(node, arrays))
        for place, array in zip(outputs, results if isinstance(results, tuple) else (results,), strict=True):
            known[place] = self.put(array)

    def _in_layout(self, symbol: Symbol, value: Any) -> Any:
        if self.layouts.get(symbol) is not LAST:
            return value
        return self.put(np.ascontiguousarray(np.moveaxis(self.fetch(value), 0, -1)))

    # How it is made.

    def _turns(self) -> list[Turn]:
        self._readers: dict[Value, set[Node]] = defaultdict(set)
        for segment in self.division.segments:
            for node in (*segment.whole, *segment.parts, *segment.exchanges):
                for x in node.inputs:
                    for y in (x, *self.division.own.get(as_symbol(x), ())):
                        self._readers[y].add(node)
        of_parts, turns = self._part_tasks(), list[Turn]()
        for number, segment in enumerate(self.division.segments):
            turns += self._turns_of(segment, of_parts.get(number, []))
        return self._with_releases([turn for turn in turns if turn.tasks or turn.kernels])

    def _turns_of(self, segment: Segment, of_parts: list[Task]) -> list[Turn]:
        """What is computed once, then by parts; what no part needs now runs beside them, where threads are idle."""
        kernels, rest = self._on_host(segment.whole)
        tasks = self._whole_tasks(rest)
        needed = {place for task in of_parts for place in task.inputs}
        before = [task for task in tasks if not needed.isdisjoint(task.outputs)]
        beside = [task for task in tasks if needed.isdisjoint(task.outputs)]
        exchanges = sorted(segment.exchanges, key=lambda node: node.number)  # in the order of their trace
        return [
            Turn(self._kernels(kernels), before),
            Turn(tasks=of_parts + beside),
            Turn(self._kernels(exchanges)),
        ]

    def _on_host(self, nodes: Sequence[Node]) -> tuple[list[Node], list[Node]]:
        """The nodes that numpy computes before the others, and these: small work for which a session takes longer."""
        kernels, rest = list[Node](), list[Node]()
        made = set[Value]()  # by the others
        only_sums = all(node.op.on_host or isinstance(node.op, AddParts) for node in nodes)
        for node in nodes:
            is_last = only_sums and not any(self._readers[y] for y in node.outputs)
            if (node.op.on_host or is_last) and made.isdisjoint(node.inputs):
                kernels.append(node)
            else:
                rest.append(node)
                made.update(node.outputs)
        return kernels, rest

    def _kernels(self, nodes: Sequence[Node]) -> list[Kernel]:
        return [(node, self._keys(node.inputs), self._keys(node.outputs)) for node in nodes]

    def _part_tasks(self) -> dict[int, list[Task]]:
        """By segment a task for each part. All parts have one model, cut into the segments."""
        graph = self._graph_of_parts()
        if not graph.nodes:
            return {}
        names: dict[str, Symbol] = {f"value:{x.name}": x for x in graph.inputs}
        made: dict[str, Symbol] = {f"made:{y.name}": y for y in graph.outputs}
        levels = {name: self.division.at(x) for name, x in (*names.items(), *made.items())}
        cut = Cut(lower(graph, list(names), list(made)), levels, views=self._single.target == "CPU")
        values: dict[str, Symbol] = {**names, **made}
        tasks: dict[int, list[Task]] = {}
        for piece in cut.pieces:
            session = self._session(piece.model, self._single, self._optimize)
            views = [(name, source) for name, source in cut.sources.items() if source in piece.outputs]
            for part in range(self.division.count):
                inputs, outputs = (
                    tuple([self._place(self._key(values.get(name, name), part)) for name in side])
                    for side in (piece.inputs, piece.outputs)
                )
                shaped = [
                    (self._place((made[name], part)), self._place((source, part)), made[name].shape)
                    for name, source in views
                ]
                tasks.setdefault(piece.level, []).append(Task(session, inputs, outputs, tuple(shaped)))
        return tasks

    def _graph_of_parts(self) -> Graph:
        """What every part computes, with the layouts that suit it; results are what the parts meet with."""
        nodes = [node for segment in self.division.segments for node in segment.parts]
        graph = self._graph(nodes, self.division.own)
        for choose in layout_passes(self._single) if not self._optimize else ():
            graph = choose(graph)
        self.nodes += graph.nodes
        return graph

    def _whole_tasks(self, nodes: Sequence[Node]) -> list[Task]:
        """Tasks that need nothing of each other and compute nodes of a segment for the whole batch."""
        most = MOST_TASKS if self.division.is_divided else 1
        tasks = []
        for group in _groups(nodes, most):
            graph = self._graph(group, self._read_by_others(group))
            names = [f"value:{x.name}" for x in graph.inputs], [f"made:{x.name}" for x in graph.outputs]
            session = self._session(lower(graph, *names), self._single, self._optimize)
            tasks.append(Task(session, self._keys(graph.inputs), self._keys(graph.outputs)))
        return tasks

    def _read_by_others(self, nodes: Sequence[Node]) -> set[Value]:
        """The results of nodes that others read, or the caller."""
        inside, results = set(nodes), set(self.graph.results)
        made = [y for node in nodes for y in node.outputs]
        return {y for y in made if y in results or not self._readers[y] <= inside}

    def _graph(self, nodes: Sequence[Node], needed: Collection[Value]) -> Graph:
        """The nodes as a graph with these results, whose inputs are values of others."""
        rest: dict[str, Any] = {"parameters": {}, "updates": {}, "effects": (), "constants": self.division.constants}
        outputs = tuple([as_symbol(y) for node in nodes for y in node.outputs if y in needed])
        graph = dce(replace(self.graph, inputs=(), nodes=tuple(nodes), outputs=outputs, **rest))
        made = {y for node in graph.nodes for y in node.outputs}.union(graph.constants)
        read = dict.fromkeys(as_symbol(x) for node in graph.nodes for x in node.inputs if x not in made)
        return replace(graph, inputs=tuple(read))

    def _session(self, model: ModelProto, device: Device, optimize: bool) -> Session:
        session = self._make_session(model, device, optimize)
        self._first = self._first or session
        return session

    def _make_session(self, model: ModelProto, device: Device, optimize: bool) -> Session:
        return Session(model.SerializeToString(), device, optimize=optimize)

    def _copy_of_operand(self) -> Graph:
        """A graph whose session has the device and its memory, where collectives are all that is computed."""
        x = next(x for segment in self.division.segments for node in segment.exchanges for x in node.inputs)
        y = Symbol(x.type, "copy")
        node = Node(syntax.identity, (x,), (y,), "Default", 0, ())  # type: ignore[arg-type]
        rest: dict[str, Any] = {"parameters": {}, "constants": {}, "updates": {}, "effects": ()}
        return replace(self.graph, inputs=(as_symbol(x),), nodes=(node,), outputs=(y,), **rest)

    def _place(self, key: Key) -> int:
        return self._places.setdefault(key, len(self._places))

    def _key(self, value: Symbol | str, part: int) -> Key:
        """The key of a value that a part reads or computes."""
        return value, part if isinstance(value, str) or value in self.division.of_parts else None

    def _keys(self, values: Iterable[Value]) -> tuple[int, ...]:
        """The places of values that are computed once: whole ones, and those of one part."""
        return tuple([self._place(self.division.part_of.get(as_symbol(x), (as_symbol(x), None))) for x in values])

    def _with_releases(self, turns: list[Turn]) -> list[Turn]:
        """The turns, of which each releases what it reads last."""
        kept = {self._place((as_symbol(x), None)) for x in self.graph.results}
        for turn in reversed(turns):
            read = {k for task in turn.tasks for k in (*task.inputs, *task.outputs, *[view[0] for view in task.views])}
            read.update(k for _, inputs, outputs in turn.kernels for k in (*inputs, *outputs))
            turn.released = tuple(sorted(read - kept))
            kept |= read
        return turns


class SunkSession:
    """Runs the steps of a sink one after the other; it has the interface of a session whose model runs all of them.

    Inputs are those of the graph of a step, the first `scanned` ones stacked; then the parameters in `fed`, stacked;
    then the other parameters. Results are the outputs, stacked; the updates; the operands of effects, stacked.
    """

    def __init__(self, inner: DividedSession, scanned: int, fed: Sequence[Parameter]) -> None:
        self.inner, self.scanned, self.fed = inner, scanned, fed
        self.device, self.providers, self.notes = inner.device, inner.providers, inner.notes
        self.optimization_level, self.put, self.fetch = inner.optimization_level, inner.put, inner.fetch
        self.lengths: list[int] = []  # the number of steps of each call

    def by_call(self, steps: list[T]) -> Iterator[list[T]]:
        """What belongs to steps, for each call."""
        ends = list(accumulate(self.lengths))
        return (steps[end - length : end] for end, length in zip(ends, self.lengths, strict=True))

    def step(self, values: Sequence[Any]) -> list[Any]:
        """Run once, as `Session.step`."""
        self.lengths.append(len(values[0]))
        graph, own = self.inner.graph, len(self.inner.graph.inputs)
        columns, stacked = values[self.scanned : own], values[own : own + len(self.fed)]
        fed = set(self.fed)  # a list compares values, and parameters have an == of their own
        others = [parameter for parameter in graph.parameters if parameter not in fed]
        known = dict(zip(others, values[own + len(self.fed) :], strict=True))
        outputs, last = len(graph.outputs), len(graph.outputs) + len(graph.updates)
        made = []
        for step in range(len(values[0])):
            known |= {parameter: self.put(rows[step]) for parameter, rows in zip(self.fed, stacked, strict=True)}
            entries = [self.put(rows[step]) for rows in values[: self.scanned]]
            results = self.inner.step([*entries, *columns, *(known[parameter] for parameter in graph.parameters)])
            known |= zip(graph.updates, results[outputs:last], strict=True)
            made.append([*results[:outputs], *results[last:]])
        rows = [np.stack(column) for column in zip(*made, strict=True)]
        return [*rows[:outputs], *(known[parameter] for parameter in graph.updates), *rows[outputs:]]


MOST_TASKS = 8  # of what is computed once
TASK_BYTES = 1 << 20  # of operands and results of a task at least


def _groups(nodes: Sequence[Node], most: int) -> list[list[Node]]:
    """The nodes in groups that need nothing of each other, of about the same size."""
    group_of: dict[Value, int] = {}
    groups: dict[int, list[Node]] = {}
    for number, node in enumerate(nodes):
        found = {group_of[x] for x in node.inputs if x in group_of}
        groups[number] = [*(x for k in sorted(found) for x in groups.pop(k)), node]
        group_of.update((y, number) for x in groups[number] for y in x.outputs)
    sizes = {
        number: sum(x.type.nbytes for node in group for x in (*node.inputs, *node.outputs))
        for number, group in groups.items()
    }
    count = max(1, min(most, len(groups), sum(sizes.values()) // TASK_BYTES))
    bins: list[list[Node]] = [[] for _ in range(count)]
    loads = [0] * count
    for number in sorted(groups, key=lambda number: (-sizes[number], number)):
        least = loads.index(min(loads))
        bins[least] += groups[number]
        loads[least] += sizes[number]
    order = {node: place for place, node in enumerate(nodes)}
    return [sorted(group, key=order.__getitem__) for group in bins if group]


def with_one_thread(device: Device) -> Device:
    """The device, with one thread for each session of the CPU, unless its number of threads may change bits."""
    return replace(device, threads=1) if device.target == "CPU" and device.in_parts else device
