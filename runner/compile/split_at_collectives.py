"""Graphs with collectives, split into parts that a device can run, with the collectives between them.

A part is everything that depends on the same number of successive collectives. A data-parallel step has two: loss and
gradients, then the updates. The gradients of all buckets are ready when the first part ends, so in graph mode
communication overlaps with nothing; in PyNative mode it does (`runner/nn/wrap.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from runner.compile.onnx.lower import lower
from runner.compile.passes.simplify import dce
from runner.compile.session import Session
from runner.core.graph import Graph, as_symbol
from runner.core.interpreter import evaluate
from runner.core.lowering import LAST, Layout
from runner.core.operators import Collective, Node
from runner.core.source import user_line
from runner.core.values import Symbol, Value, syntax
from runner.device import Device
from runner.errors import ConfigError

if TYPE_CHECKING:
    from runner.compile.onnx.model import ModelProto


def has_collectives(graph: Graph) -> bool:
    """Whether the graph must be split. Raises ConfigError for collectives that only one path of a branch has."""
    for node in graph.nodes:
        if any(isinstance(x.op, Collective) for inner in node.op.graphs for x in inner.all_nodes):
            what = "in a data-parallel run, graph mode cannot branch on a value before the ranks communicate"
            repair = "ops.Select to choose between values, or run this network with mode=pynative"
            raise ConfigError(what, branch=node.name, line=user_line(node.source), repair=repair)
    return any(isinstance(node.op, Collective) for node in graph.nodes)


@dataclass(frozen=True)
class GraphPart:
    """A graph without parameters, and the collectives that follow it."""

    graph: Graph
    collectives: tuple[Node, ...]


def split(graph: Graph) -> list[GraphPart]:
    """The parts in order. Values from earlier parts are inputs, values that other parts need are outputs."""
    levels = _levels(graph)
    parts: list[GraphPart] = []
    for level in range(1 + max(levels.values(), default=0)):
        nodes = [node for node in graph.nodes if levels[node] == level]
        inner = tuple(node for node in nodes if not isinstance(node.op, Collective))
        own = {y for node in inner for y in node.outputs}
        others = {x for node in graph.nodes if node not in inner for x in node.inputs} | set(graph.results)
        operands = dict.fromkeys(x for node in inner for x in node.inputs if x not in own and x not in graph.constants)
        part = replace(
            graph,
            name=f"{graph.name}_part{level}",
            inputs=tuple(x for x in operands if isinstance(x, Symbol)),
            parameters={},
            nodes=inner,
            outputs=tuple(y for node in inner for y in node.outputs if y in others and isinstance(y, Symbol)),
            updates={},
            effects=(),
        )
        collectives = [node for node in nodes if isinstance(node.op, Collective)]
        # In the order in which they were traced: passes may order the nodes of other ranks differently.
        parts.append(GraphPart(dce(part), tuple(sorted(collectives, key=lambda node: node.number))))
    return parts


def _levels(graph: Graph) -> dict[Node, int]:
    """For each node, the number of successive collectives that it depends on."""
    after: dict[Value, int] = {}
    levels: dict[Node, int] = {}
    for node in graph.nodes:
        levels[node] = max((after.get(x, 0) for x in node.inputs), default=0)
        after.update(dict.fromkeys(node.outputs, levels[node] + isinstance(node.op, Collective)))
    return levels


class SplitSession:
    """Runs a graph with collectives; it has the interface of `Session` and one session for each part.

    Inputs and results are in the order of the graph: inputs and parameters; outputs, updates, operands of effects.
    `layouts` selects the results that are returned batch last. Raises as `Session`, and what collectives raise.
    """

    def __init__(
        self, graph: Graph, device: Device, optimize: bool, layouts: Mapping[Value, Layout] | None = None
    ) -> None:
        self.graph, self.parts, self.layouts = graph, split(graph), layouts or {}
        self._sessions = [self._open(part.graph, device, optimize) for part in self.parts]
        first = next((session for session in self._sessions if session is not None), None)
        first = first or self._open(self._copy_of_operand(), device, optimize)
        assert first is not None
        self.device, self.providers, self.notes = first.device, first.providers, first.notes
        self.optimization_level, self.put, self.fetch = first.optimization_level, first.put, first.fetch

    def _copy_of_operand(self) -> Graph:
        """A graph whose session has the device and its memory, where collectives are all that is computed."""
        x = next(x for part in self.parts for node in part.collectives for x in node.inputs)
        y = Symbol(x.type, "copy")
        node = Node(syntax.identity, (x,), (y,), "Default", 0, ())  # type: ignore[arg-type]
        rest: dict[str, Any] = {"parameters": {}, "constants": {}, "updates": {}, "effects": ()}
        return replace(self.graph, inputs=(as_symbol(x),), nodes=(node,), outputs=(y,), **rest)

    def _open(self, graph: Graph, device: Device, optimize: bool) -> Session | None:
        """The session of a part; None if it computes nothing."""
        if not graph.nodes:
            return None
        model = lower(graph, [f"value:{x.name}" for x in graph.inputs], [f"made:{x.name}" for x in graph.outputs])
        return self._session(model, device, optimize)

    def _session(self, model: ModelProto, device: Device, optimize: bool) -> Session:
        return Session(model.SerializeToString(), device, optimize=optimize)

    def step(self, values: Sequence[Any]) -> list[Any]:
        """Run once, as `Session.step`."""
        known: dict[Value, Any] = {}
        known.update(self.graph.constants.items())
        known.update(zip((*self.graph.inputs, *self.graph.parameters.values()), values, strict=True))
        for part, session in zip(self.parts, self._sessions, strict=True):
            if session is not None:
                outputs = session.step([known[x] for x in part.graph.inputs])
                known.update(zip(part.graph.outputs, outputs, strict=True))
            for node in part.collectives:
                self._communicate(node, known)
        return [self._in_layout(x, known[x]) for x in self.graph.results]

    def _communicate(self, node: Node, known: dict[Value, Any]) -> None:
        arrays = [known[x] if isinstance(known[x], np.ndarray) else self.fetch(known[x]) for x in node.inputs]
        known.update((y, self.put(array)) for y, array in zip(node.outputs, evaluate(node, arrays), strict=True))

    def _in_layout(self, symbol: Symbol, value: Any) -> Any:
        if self.layouts.get(symbol) is not LAST:
            return value
        return self.put(np.ascontiguousarray(np.moveaxis(self.fetch(value), 0, -1)))
