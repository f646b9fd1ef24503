"""Graphs with collectives: cut into parts that a device can run, with the exchanges between ranks in between.

A part is everything that waits for the same number of collectives. A data-parallel step has two: loss and gradients,
then the updates. Gradients of all buckets are there when the first part ends, so in graph mode an exchange overlaps
with nothing; in PyNative mode it does (`runner/nn/gradient_reducer.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from runner.compile.onnx.lower import lower
from runner.compile.ort.session import Session
from runner.compile.passes.dce import dce
from runner.core.collective import Collective
from runner.core.eager import evaluate
from runner.core.graph import Graph
from runner.core.lowering import LAST, Layout
from runner.core.primitive import Node
from runner.core.value import Symbol, Value
from runner.device import Device

if TYPE_CHECKING:
    from runner.compile.onnx.lower import ModelProto


def has_collectives(graph: Graph) -> bool:
    """Whether the graph must be cut."""
    return any(isinstance(node.op, Collective) for node in graph.nodes)


@dataclass(frozen=True)
class Part:
    """A graph without parameters, and the collectives that follow it."""

    graph: Graph
    collectives: tuple[Node, ...]


def parts(graph: Graph) -> list[Part]:
    """The parts in their order: values that a part takes from earlier ones are inputs, what others need are outputs."""
    waits = _waits(graph)
    made: list[Part] = []
    for level in range(1 + max(waits.values(), default=0)):
        nodes = [node for node in graph.nodes if waits[node] == level]
        inner = tuple(node for node in nodes if not isinstance(node.op, Collective))
        own = {y for node in inner for y in node.outputs}
        others = {x for node in graph.nodes if node not in inner for x in node.inputs} | set(graph.results)
        taken = dict.fromkeys(x for node in inner for x in node.inputs if x not in own and x not in graph.constants)
        part = replace(
            graph,
            name=f"{graph.name}_part{level}",
            inputs=tuple(x for x in taken if isinstance(x, Symbol)),
            parameters={},
            nodes=inner,
            outputs=tuple(y for node in inner for y in node.outputs if y in others and isinstance(y, Symbol)),
            updates={},
            effects=(),
        )
        made.append(Part(dce(part), tuple(node for node in nodes if isinstance(node.op, Collective))))
    return made


def _waits(graph: Graph) -> dict[Node, int]:
    """For each node, how many collectives lie before it, one after the other."""
    behind: dict[Value, int] = {}
    waits: dict[Node, int] = {}
    for node in graph.nodes:
        waits[node] = max((behind.get(x, 0) for x in node.inputs), default=0)
        behind.update(dict.fromkeys(node.outputs, waits[node] + isinstance(node.op, Collective)))
    return waits


class CutSession:
    """Runs a graph with collectives: as a `Session`, with the sessions of its parts.

    Values go in and out in the order of the graph: inputs and parameters; outputs, updates, what effects tell. `ways`
    are the results that are to lie batch last. Raises as `Session`, and what collectives raise.
    """

    def __init__(
        self, graph: Graph, device: Device, optimize: bool, ways: Mapping[Value, Layout] | None = None
    ) -> None:
        self.graph, self.parts, self.ways = graph, parts(graph), ways or {}
        self._sessions = [self._opened(part.graph, device, optimize) for part in self.parts]
        first = next(session for session in self._sessions if session is not None)
        self.device, self.providers, self.notes = first.device, first.providers, first.notes
        self.optimization_level, self.put, self.fetch = first.optimization_level, first.put, first.fetch

    def _opened(self, graph: Graph, device: Device, optimize: bool) -> Session | None:
        """The session of a part; None for one that computes nothing."""
        if not graph.nodes:
            return None
        model = lower(graph, [f"value:{x.name}" for x in graph.inputs], [f"made:{x.name}" for x in graph.outputs])
        return self._session(model, device, optimize)

    def _session(self, model: ModelProto, device: Device, optimize: bool) -> Session:
        return Session(model.SerializeToString(), device, optimize=optimize)

    def step(self, values: Sequence[Any]) -> list[Any]:
        """Run once; as `Session.step`."""
        known: dict[Value, Any] = {}
        known.update(self.graph.constants.items())
        known.update(zip((*self.graph.inputs, *self.graph.parameters.values()), values, strict=True))
        for part, session in zip(self.parts, self._sessions, strict=True):
            if session is not None:
                made = session.step([known[x] for x in part.graph.inputs])
                known.update(zip(part.graph.outputs, made, strict=True))
            for node in part.collectives:
                self._exchange(node, known)
        return [self._lying(x, known[x]) for x in self.graph.results]

    def _exchange(self, node: Node, known: dict[Value, Any]) -> None:
        arrays = [known[x] if isinstance(known[x], np.ndarray) else self.fetch(known[x]) for x in node.inputs]
        known.update((y, self.put(array)) for y, array in zip(node.outputs, evaluate(node, arrays), strict=True))

    def _lying(self, symbol: Symbol, value: Any) -> Any:
        if self.ways.get(symbol) is not LAST:
            return value
        return self.put(np.ascontiguousarray(np.moveaxis(self.fetch(value), 0, -1)))
