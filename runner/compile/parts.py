"""A step whose batch is divided into parts, cut where the parts meet.

Operators that say how (`Primitive.part`) are computed for each part; others once, for the whole batch. Where the two
meet, values are split, joined, or added in a binary tree: ((p0 + p2) + (p1 + p3)). How many parts there are follows
from the graph alone, never from the machine, so neither do the bits depend on it; threads compute parts at once
(`divided_session.py`). First the operators that only divided graphs have, then the number of parts, then the division.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from runner.communication.world import world
from runner.core.graph import Graph, as_symbol
from runner.core.lowering import Builder
from runner.core.operators import Collective, Node, Primitive, graph_operator, infer
from runner.core.parts import PartRule, Parts, Replacement, added, most_parts, parts_of_rank, rule_of
from runner.core.values import Symbol, Value, syntax
from runner.device import Device
from runner.errors import ConfigError
from runner.types import TensorType


@graph_operator
class SplitParts(Primitive):
    """The parts of a value along `axis`, in order."""

    computes: ClassVar = False
    on_host: ClassVar = True

    parts: Parts = Parts(1, 1)
    axis: int = 0

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        return (self.parts.of(x, self.axis),) * self.parts.count

    def kernel(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        return tuple(self.parts.split(x, self.axis))

    def lower(self, b: Builder, x: str) -> tuple[str, ...]:
        shape, count = self.parts.dealt(b.type(x).shape, self.axis), self.parts.count
        dealt = b.nodes("Split", (b.reshape(x, shape),), count, axis=self.axis + 1, num_outputs=count)
        return tuple([b.reshape(part, self.parts.of(b.type(x), self.axis).shape) for part in dealt])


@graph_operator
class JoinParts(Primitive):
    """The value with these parts along `axis`."""

    computes: ClassVar = False
    on_host: ClassVar = True

    parts: Parts = Parts(1, 1)
    axis: int = 0

    def infer(self, *parts: TensorType) -> TensorType:
        shape, axis = parts[0].shape, self.axis
        return parts[0].with_shape(*shape[:axis], shape[axis] * len(parts), *shape[axis + 1 :])

    def kernel(self, *parts: np.ndarray) -> np.ndarray:
        return self.parts.join(parts, self.axis)

    def lower(self, b: Builder, *parts: str) -> str:
        whole = self.infer(*map(b.type, parts)).shape
        shape = list(self.parts.dealt(whole, self.axis))
        shape[self.axis + 1] = 1
        return b.reshape(b.node("Concat", [b.reshape(part, shape) for part in parts], axis=self.axis + 1), whole)


@graph_operator
class AddParts(Primitive):
    """The sum of terms, added in pairs with half of their number between them, times `scale`, a power of two."""

    scale: float = 1.0

    def infer(self, *terms: TensorType) -> TensorType:
        return terms[0]

    def kernel(self, *terms: np.ndarray) -> np.ndarray:
        total = added(terms, np.add)
        return np.asarray(total if self.scale == 1 else total * total.dtype.type(self.scale))

    def lower(self, b: Builder, *terms: str) -> str:
        total = added(terms, lambda x, y: b.node("Add", (x, y)))
        return total if self.scale == 1 else b.node("Mul", (total, b.const(self.scale, like=terms[0])))


@graph_operator
class FirstPart(Primitive):
    """What every part has alike."""

    computes: ClassVar = False
    on_host: ClassVar = True

    def infer(self, *parts: TensorType) -> TensorType:
        return parts[0]

    def kernel(self, *parts: np.ndarray) -> np.ndarray:
        return parts[0]


# The number of parts.

PART_FLOPS = 30_000_000  # of a part at least: half a millisecond of one core


def parts_of(graph: Graph, device: Device, ranks: int | None = None) -> Parts | None:
    """The parts of a batch, as this process has them; None if nothing is divided.

    The batch is the first axis of most inputs of the graph. Its size and the operations for each sample say how many
    parts there are; of a data-parallel step, which `ranks` processes share, its size alone. So all of them, and one
    that has the whole batch, find the same parts. Cards compute one part.
    """
    lengths = [x.shape[0] for x in graph.inputs if x.ndim and x.shape[0]]
    batch = max(lengths, key=lengths.count) if lengths else 1
    on_cpu = device.target == "CPU" and bool(lengths)
    if ranks is not None:
        return parts_of_rank(batch, ranks, on_cpu and world().is_even)
    count = most_parts(batch) if on_cpu and device.in_parts else 1
    flops = _flops_of_samples(graph, batch) if count > 1 else 0
    while count > 1 and flops < count * PART_FLOPS:
        count //= 2
    return Parts(count, batch) if count > 1 else None


def _flops_of_samples(graph: Graph, batch: int) -> int:
    """The operations of a batch that its parts share."""
    division = DividedGraph(graph, Parts(1, batch))
    nodes = [node for segment in division.segments for node in segment.parts]
    return sum(node.op.flops([x.type for x in node.inputs], [y.type for y in node.outputs]) for node in nodes)


# The division.


@dataclass
class Segment:
    """Nodes between two meetings: `whole` ones, and then those that every part has. Then ranks exchange values."""

    whole: list[Node] = field(default_factory=list)
    parts: list[Node] = field(default_factory=list)
    exchanges: list[Node] = field(default_factory=list)


class DividedGraph:
    """The nodes of a graph, in `segments`.

    Nodes of parts compute symbols of which each part has a value, `of_parts`. `own` are the symbols of these values for
    whole nodes, one for each part, and `part_of` says of which symbol and part each of these is.
    """

    def __init__(self, graph: Graph, parts: Parts | None) -> None:
        self.graph, self.parts = graph, parts
        self.own: dict[Symbol, list[Symbol]] = {}
        self.part_of: dict[Symbol, tuple[Symbol, int]] = {}
        self.of_parts: set[Symbol] = set()
        self.constants = dict(graph.constants)
        self._segments: dict[int, Segment] = defaultdict(Segment)
        self._at: dict[Value, int] = {}  # the segment from which a value, or the value of a part, is known
        self._part: dict[Value, Symbol] = {}  # the symbol of the parts, or of the terms, of a value
        self._axis: dict[Value, int] = {}  # along which a value is divided
        self._sums: dict[Value, Primitive] = {}  # what makes a value of those of the parts
        self._divisible: set[Value] = set()  # whole values with a row for each sample
        self._is_whole: set[Value] = {*graph.inputs, *graph.parameters.values(), *graph.constants}
        self._made_by: dict[Value, Node] = {}
        self._expanded: dict[object, list[Symbol]] = {}  # results of operators that replace others
        if parts is not None:
            self._divisible.update(x for x in graph.inputs if x.ndim and x.shape[0] == parts.batch)
        for node in graph.nodes:
            self._place(node)
        for x in graph.results:
            self._whole(x)
        self.segments = [self._segments[level] for level in range(1 + max(self._segments, default=0))]
        self._drop_unneeded()

    @property
    def is_divided(self) -> bool:
        """Whether any operator is computed in parts."""
        return any(segment.parts for segment in self.segments)

    @property
    def count(self) -> int:
        """The number of parts."""
        return self.parts.count if self.parts is not None else 1

    def at(self, x: Value) -> int:
        """The segment from which a whole value, or a value of parts, is known."""
        return self._at.get(x, 0)

    def _drop_unneeded(self) -> None:
        """Drop the nodes on which no result depends: those that replace one compute all of its results."""
        needed: set[Value] = set(self.graph.results)

        def kept(nodes: Sequence[Node]) -> list[Node]:
            found = []
            for node in reversed(nodes):
                if not needed.isdisjoint(node.outputs):
                    found.append(node)
                    for x in node.inputs:
                        symbol = as_symbol(x)
                        needed.update((symbol, self.part_of.get(symbol, (symbol, 0))[0], *self.own.get(symbol, ())))
            return found[::-1]

        for segment in reversed(self.segments):
            needed.update(x for node in segment.exchanges for x in node.inputs)
            segment.parts = kept(segment.parts)
            segment.whole = kept(segment.whole)

    def _place(self, node: Node) -> None:
        self._made_by.update(dict.fromkeys(node.outputs, node))
        rule = self._rule(node)
        if isinstance(rule, Replacement):
            self._expand(node, rule)
        elif isinstance(rule, PartRule):
            self._place_part(node, rule)
        else:
            self._place_whole(node)

    def _rule(self, node: Node) -> Replacement | PartRule | None:
        if self.parts is None or node.op.graphs:
            return None
        over_all = node.op.communicates and not isinstance(node.op, Collective)
        now = [self._axis.get(x) for x in node.inputs]
        possible = [
            self._axis.get(x, 0 if x in self._divisible or (over_all and x.ndim > 1) else None) for x in node.inputs
        ]
        rule = rule_of(node.op, [x.type for x in node.inputs], now, possible, self.parts)
        if over_all and rule is None:
            what = "the batch of an operator over all ranks cannot be divided"
            raise ConfigError(what, operator=node.name, x=node.inputs[0].type)
        return rule

    def _expand(self, node: Node, divided: Replacement) -> None:
        """Place the operators that compute a node, each once for the same operands."""
        values: list[Value] = list(node.inputs)
        results = {number: as_symbol(y) for number, y in zip(divided.results, node.outputs, strict=True)}
        for op, places in divided.steps:
            operands = tuple([values[k] for k in places])
            kinds = infer(op, tuple([x.type for x in operands]))
            numbers = range(len(values), len(values) + len(kinds))
            key = None if not results.keys().isdisjoint(numbers) else (op, operands)
            if key is None or key not in self._expanded:
                name = as_symbol(node.outputs[0]).name
                made = [
                    results[k] if k in results else Symbol(kind, f"{name}.{k}")
                    for k, kind in zip(numbers, kinds, strict=True)
                ]
                self._place(_with(node, op, operands, made))
                self._expanded[key] = made
            values += self._expanded[key]

    def _place_whole(self, node: Node) -> None:
        level = max((self._whole(x) for x in node.inputs), default=0)
        is_exchange = isinstance(node.op, Collective)
        (self._segments[level].exchanges if is_exchange else self._segments[level].whole).append(node)
        of_batch = any(x in self._axis or x in self._divisible for x in node.inputs)
        for y in node.outputs:
            self._is_whole.add(y)
            self._at[y] = level + is_exchange
            if of_batch and self.parts is not None and y.ndim and y.shape[0] == self.parts.batch:
                self._divisible.add(y)

    def _place_part(self, node: Node, part: PartRule) -> None:
        assert self.parts is not None
        inputs, level = list[Symbol](), 0
        for x, axis in zip(node.inputs, part.operands, strict=True):
            at, symbol = (self._whole(x), as_symbol(x)) if axis is None else self._divided(x, axis)
            inputs.append(symbol)
            level = max(level, at)
        outputs: list[Symbol] = []
        for number, (y, axis) in enumerate(zip(node.outputs, part.results, strict=True)):
            kind = y.type if axis is None else self.parts.of(y.type, axis)
            self._part[y] = symbol = Symbol(kind, f"{as_symbol(y).name}.part")
            self._at[symbol] = level
            self.of_parts.add(symbol)
            if axis is None:
                self._sums[y] = FirstPart() if number in part.same else AddParts(part.scale)
            else:
                self._axis[y] = axis
            outputs.append(symbol)
        if part.scale == 1:
            self._segments[level].parts.append(_with(node, part.op, inputs, outputs))
            return
        pairs = zip(outputs, part.results, strict=True)
        made = [y if axis is None else Symbol(y.type, f"{y.name}.all") for y, axis in pairs]
        self._segments[level].parts.append(_with(node, part.op, inputs, made))
        for x, y in zip(made, outputs, strict=True):
            if x is not y:
                scale = self._constant(np.asarray(part.scale, y.dtype.numpy), f"{y.name}.scale")
                self._segments[level].parts.append(_with(node, syntax.mul, [x, scale], [y]))

    def _whole(self, x: Value) -> int:
        """The segment from which the whole value is known; adds what joins it, or adds its terms."""
        if x in self._is_whole:
            return self._at.get(x, 0)
        part, level = self._part[x], self._at[self._part[x]] + 1
        axis = self._axis.get(x)
        op: Primitive = JoinParts(self._given, axis) if axis is not None else self._sums[x]
        self._segments[level].whole.append(self._meeting(x, op, self._own(part), [x]))
        self._is_whole.add(x)
        self._at[x] = level
        return level

    def _divided(self, x: Value, axis: int) -> tuple[int, Symbol]:
        """The segment from which the parts of a value along an axis are known, and their symbol."""
        if self._axis.get(x) == axis:
            return self._at[self._part[x]], self._part[x]
        level = self._whole(x)
        if isinstance(x, Symbol) and x in self.constants and _is_uniform(self.constants[x]):
            kind = self._given.of(x.type, axis)
            return 0, self._constant(np.broadcast_to(self.constants[x].ravel()[0], kind.shape), f"{x.name}.part")
        symbol = Symbol(self._given.of(x.type, axis), f"{as_symbol(x).name}.part")
        self._segments[level].whole.append(self._meeting(x, SplitParts(self._given, axis), [x], self._own(symbol)))
        self._at[symbol] = level
        if x not in self._axis:
            self._axis[x], self._part[x] = axis, symbol
        return level, symbol

    def _own(self, part: Symbol) -> list[Symbol]:
        if part not in self.own:
            self.own[part] = [Symbol(part.type, f"{part.name}{k}") for k in range(self._given.count)]
            self.part_of.update((own, (part, k)) for k, own in enumerate(self.own[part]))
            self.of_parts.add(part)
        return self.own[part]

    def _constant(self, array: np.ndarray, name: str) -> Symbol:
        symbol = Symbol(TensorType.of(array), name)
        self.constants[symbol] = np.ascontiguousarray(array).reshape(array.shape)
        return symbol

    @property
    def _given(self) -> Parts:
        assert self.parts is not None
        return self.parts

    def _meeting(self, x: Value, op: Primitive, inputs: Sequence[Value], outputs: Sequence[Value]) -> Node:
        """A node beside the one that made the value."""
        node = self._made_by.get(x)
        scope, number, source = (node.scope, node.number, node.source) if node else ("Default", 0, ())
        return Node(op, tuple(inputs), tuple(outputs), scope, number, source)


def _with(node: Node, op: Any, inputs: Sequence[Value], outputs: Sequence[Value]) -> Node:
    """A node in the place of another one."""
    return replace(node, op=op, inputs=tuple(inputs), outputs=tuple(outputs), lowering=None)


def _is_uniform(array: np.ndarray) -> bool:
    return bool(array.size) and bool((array == array.ravel()[0]).all())
