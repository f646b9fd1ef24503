"""Large batches in parts whose values stay in the second-level cache, one part after the other.

Convolutions, pools and what is between them compute every image separately. With 256 images each of their values is
larger than the cache, so every operator waits for memory; with 32 it reads what the operator before it has left there.
First the two operators that only such graphs have: they split a value into parts and join them again; then the pass.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from runner.core.graph import Graph, Pass, as_symbol
from runner.core.lowering import LAST, Builder, Lowering
from runner.core.operators import BatchRule, Node, Primitive, graph_operator
from runner.core.values import Symbol, Value, syntax
from runner.device import UNTUNED, Tuning
from runner.types import TensorType


@graph_operator
class SplitBatch(Primitive):
    """`count` equal parts of a value (N, ...) along its first axis."""

    computes: ClassVar = False

    count: int = 1

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        return (x.with_shape(x.shape[0] // self.count, *x.shape[1:]),) * self.count

    def kernel(self, x: np.ndarray) -> tuple[np.ndarray, ...]:
        return tuple(np.split(x, self.count))

    def lower(self, b: Builder, x: str) -> tuple[str, ...]:
        return b.nodes("Split", (x,), self.count, axis=0, num_outputs=self.count)

    def lowerings(self, x: TensorType) -> Sequence[Lowering]:
        return Lowering("plain", self.lower), Lowering("last", self._lower_last, (LAST,), (LAST,) * self.count)

    def _lower_last(self, b: Builder, x: str) -> tuple[str, ...]:
        return b.nodes("Split", (x,), self.count, axis=-1, num_outputs=self.count)


@graph_operator
class JoinBatch(Primitive):
    """Parts (n, ...) of a batch, one after the other along their first axis."""

    computes: ClassVar = False

    def infer(self, *parts: TensorType) -> TensorType:
        return parts[0].with_shape(sum(part.shape[0] for part in parts), *parts[0].shape[1:])

    def kernel(self, *parts: np.ndarray) -> np.ndarray:
        return np.concatenate(parts)

    def lower(self, b: Builder, *parts: str) -> str:
        return b.node("Concat", parts, axis=0)

    def lowerings(self, *parts: TensorType) -> Sequence[Lowering]:
        return Lowering("plain", self.lower), Lowering("last", self._lower_last, (LAST,) * len(parts), (LAST,))

    def _lower_last(self, b: Builder, *parts: str) -> str:
        return b.node("Concat", parts, axis=-1)


# The pass.

CACHE_BYTES = 2 << 20  # of operands and results of one operator: 32 images of LeNet-5, 0.93 of the time with 64
LARGE_BYTES = 1 << 20  # of an operator that is split when others do not fit the cache
MIN_IMAGES = 32  # in a part: rows of 128 bytes in batch-last layout
PROFIT = 2  # bytes of values that remain in parts, for each byte that is copied because it is split or joined


def in_parts_by(tuning: Tuning) -> Pass:
    """The pass with the number of images of the tuning where there is one, else with as many as fit the cache."""

    def in_parts(graph: Graph) -> Graph:
        plan = _Plan(graph, tuning.images)
        return _Emitter(graph, plan).graph() if plan.chosen else graph

    return in_parts


in_parts = in_parts_by(UNTUNED)


class _Plan:
    """The operators of a graph to compute in parts, and the number of parts.

    `batched` has those that could be, with the batch of an input of the graph; `chosen` those that should be. `readers`
    are the nodes that read a value.
    """

    def __init__(self, graph: Graph, images: int) -> None:
        lengths = {x.shape[0] for x in graph.inputs if x.ndim}
        self.batched = {node: found for node in graph.nodes if (found := _batched(node))}
        self.batched = {node: found for node, found in self.batched.items() if self.length(node) in lengths}
        self.readers: dict[Value, list[Node]] = defaultdict(list)
        for node in graph.nodes:
            for x in node.inputs:
                self.readers[x].append(node)
        self.results = set(graph.results)
        self.count, self.chosen = 1, set[Node]()
        for node in self.batched:
            self.count = max(self.count, self._parts_of(node, images))
        if self.count > 1:
            self.chosen = self._connected(images)
            if self._gain() <= 0:
                self.chosen = set()

    def length(self, node: Node) -> int:
        """The number of images."""
        return self.divided(node)[0].shape[0]

    def divided(self, node: Node) -> list[Value]:
        """The operands of which a part reads a part."""
        return [x for x, each in zip(node.inputs, self.batched[node].operands, strict=True) if each]

    def is_joined(self, node: Node) -> bool:
        """Whether the whole result of a chosen operator is needed."""
        (y,) = node.outputs
        return not self.batched[node].is_sum and (y in self.results or not self.chosen.issuperset(self.readers[y]))

    def _size(self, node: Node) -> int:
        """Bytes of operands and results that a part has a part of."""
        results = () if self.batched[node].is_sum else node.outputs
        return sum(x.type.nbytes for x in (*self.divided(node), *results))

    def _parts_of(self, node: Node, images: int) -> int:
        """The number of parts that an operator needs; 1 when no number helps."""
        length, size = self.length(node), self._size(node)
        if images:
            return length // images if length % images == 0 and size > CACHE_BYTES else 1
        counts = (k for k in range(1, length // MIN_IMAGES + 1) if length % k == 0 and size <= k * CACHE_BYTES)
        return next(counts, 1)

    def _connected(self, images: int) -> set[Node]:
        """Large operators that fit the cache in parts, and smaller ones that read their results."""
        chosen, available = set[Node](), set[Value]()
        for node in self.batched:
            size = self._size(node)
            fits = self.length(node) % self.count == 0 and (images or size <= self.count * CACHE_BYTES)
            if fits and (size > LARGE_BYTES or not available.isdisjoint(node.inputs)):
                chosen.add(node)
                available.update(() if self.batched[node].is_sum else node.outputs)
        return chosen

    def _gain(self) -> int:
        """Bytes of values that remain in parts, less those that are copied."""
        made = {node.outputs[0]: node for node in self.chosen if not self.batched[node].is_sum}
        split = {x for node in self.chosen for x in self.divided(node) if x not in made}
        joined = {y for y, node in made.items() if self.is_joined(node)}
        copied = sum(x.type.nbytes for x in (*split, *joined))
        return sum(y.type.nbytes for y in made.keys() - joined) - PROFIT * copied


def _batched(node: Node) -> BatchRule | None:
    """How an operator with one result computes a batch."""
    return node.op.batched([x.type for x in node.inputs]) if len(node.outputs) == 1 else None


class _Emitter:
    """Writes the nodes in their new order.

    The `segment` of operators that are split waits, and with it the `late` ones that need its results. It is written,
    part by part, before an operator that is split and needs a late one.
    """

    def __init__(self, graph: Graph, plan: _Plan) -> None:
        self.source, self.plan = graph, plan
        self.nodes: list[Node] = []
        self.parts: dict[Value, list[Symbol]] = {}
        self.segment: list[Node] = []
        self.late: list[Node] = []

    def graph(self) -> Graph:
        """The graph with its operators in parts."""
        for node in self.source.nodes:
            chosen = node in self.plan.chosen
            if chosen and _needs(node, self.late):
                self.flush()
            if chosen:
                self.segment.append(node)
            elif _needs(node, self.segment) or _needs(node, self.late):
                self.late.append(node)
            else:
                self.nodes.append(node)
        self.flush()
        return replace(self.source, nodes=tuple(self.nodes))

    def flush(self) -> None:
        """Write the operators that wait."""
        made = {node.outputs[0] for node in self.segment}
        for node in self.segment:
            for x in self.plan.divided(node):
                if x not in self.parts and x not in made:
                    self.parts[x] = [self.symbol(x, k) for k in range(self.plan.count)]
                    self.nodes.append(_beside(node, SplitBatch(self.plan.count), [x], self.parts[x]))
        for k in range(self.plan.count):
            for node in self.segment:
                self.nodes += self.part(node, k)
        for node in self.segment:
            if self.plan.is_joined(node):
                self.nodes.append(_beside(node, JoinBatch(), self.parts[node.outputs[0]], node.outputs))
        self.nodes += self.late
        self.segment, self.late = [], []

    def symbol(self, x: Value, k: int) -> Symbol:
        """Part `k` of a value."""
        rows = x.shape[0] // self.plan.count
        return Symbol(x.type.with_shape(rows, *x.shape[1:]), f"{as_symbol(x).name}.part{k}")

    def part(self, node: Node, k: int) -> Iterator[Node]:
        """The node of part `k`; where results are summed, also what adds it to those before."""
        batched, divided, (y,) = self.plan.batched[node], set(self.plan.divided(node)), node.outputs
        inputs = tuple([self.parts[x][k] if x in divided else x for x in node.inputs])
        op = batched.resized(self.plan.length(node) // self.plan.count)
        made = Symbol(y.type, f"{as_symbol(y).name}.part{k}") if batched.is_sum else self.symbol(y, k)
        yield replace(node, op=op, inputs=inputs, outputs=(made,))
        if batched.is_sum and k:
            last = k == self.plan.count - 1
            total = as_symbol(y) if last else Symbol(y.type, f"{as_symbol(y).name}.sum{k}")
            add = syntax.add
            assert isinstance(add, Primitive)
            yield _beside(node, add, [self.parts[y][-1], made], [total])
            made = total
        self.parts.setdefault(y, []).append(made)


def _needs(node: Node, others: Sequence[Node]) -> bool:
    """Whether a node reads a result of others."""
    return not {y for other in others for y in other.outputs}.isdisjoint(node.inputs)


def _beside(node: Node, op: Primitive, inputs: Sequence[Value], outputs: Sequence[Value]) -> Node:
    """A node in the scope of another one, with its number."""
    return replace(node, op=op, inputs=tuple(inputs), outputs=tuple(outputs))
