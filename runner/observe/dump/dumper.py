"""Who decides what of a step is dumped, and hands it to a writer."""

import logging
from collections.abc import Sequence

import numpy as np

from runner.core.graph import Graph
from runner.core.observers import ObservedValue, ValueObserver
from runner.core.primitive import Node, Primitive
from runner.observe.dump import overflow
from runner.observe.dump.async_writer import AsyncFolder
from runner.observe.dump.first_failure import is_overflown
from runner.observe.dump.selection import Selection
from runner.observe.dump.settings import DumpSettings
from runner.observe.dump.sync_writer import SyncFolder
from runner.observe.dump.writer import Writer, described
from runner.types import TensorType

_LOG = logging.getLogger("runner")


class Dumper(ValueObserver):
    """Dumps the steps, operators and sides that its settings choose.

    With `op_debug_mode` only operators whose results are not finite, and a record of the first one of each step. A
    kernel of the settings that matches nothing is warned of once. Raises StorageError when something could not be
    written; `close` returns when everything is.
    """

    def __init__(self, settings: DumpSettings, device_id: int = 0) -> None:
        self.settings = settings
        self.writer: Writer = (SyncFolder if settings.kind == "sync" else AsyncFolder)(settings, device_id)
        self.supports_sinks = settings.kind != "sync"
        self.device_layout = self.supports_sinks or not settings.trans_flag
        self.selection = Selection(settings.kernels)
        self._graphs: dict[tuple[TensorType, ...], int] = {}
        self._graph = 0  # number of the present one
        self._written: set[int] = set()
        self._overflown = False

    def next_step(self, step: int) -> int | None:
        """As the iterations of the settings say."""
        return self.settings.iterations.following(step)

    def selects(self, node: Node) -> bool:
        """As the kernels of the settings say."""
        return self.selection.operator(node.name, node.op.name)

    def begin(self, step: int, types: tuple[TensorType, ...]) -> None:
        """Graphs are told apart by the types of their inputs."""
        self._graph = self._graphs.setdefault(types, len(self._graphs))
        self._overflown = False

    def operator(
        self, step: int, node: Node, inputs: Sequence[ObservedValue], outputs: Sequence[ObservedValue]
    ) -> None:
        """Write it."""
        mode = self.settings.op_debug_mode
        if mode:
            if not overflow.detects(mode, node.op.name) or not any(map(is_overflown, outputs)):
                return
            self._record(step, node)
        sides = inputs if self.settings.inputs else None, outputs if self.settings.outputs else None
        self.writer.operator(step, self._graph, node.number, node, *sides)

    def end(self, step: int, graph: Graph) -> None:
        """Write parameters and constants, and the graph when it is new."""
        if self._graph not in self._written:
            self._written.add(self._graph)
            self._write_graph(graph)
        if self.settings.outputs and not self.settings.op_debug_mode:
            held = {p.name: p.data for p in graph.parameters} | {x.name: a for x, a in graph.constants.items()}
            for name, array in held.items():
                if self.selection.held(name):
                    self.writer.held(step, self._graph, name, ObservedValue(array))
        self.writer.finish(step)

    def close(self) -> None:
        """Return when everything is written."""
        self.writer.close()

    def _write_graph(self, graph: Graph) -> None:
        listing, message, order = described(graph, self._graph)
        self.writer.graph(self._graph, listing, message, order)
        names = [*order, *(p.name for p in graph.parameters), *(x.name for x in graph.constants)]
        for kernel, nearest in self.selection.unmatched(names):
            _LOG.warning("dump: no operator matches %r; the nearest are %s", kernel, ", ".join(nearest) or "none")

    def _record(self, step: int, node: Node) -> None:
        """The record of the first operator that overflows in a step."""
        if not self._overflown:
            self._overflown = True
            content = overflow.record(overflow.kind(node.op.name), node.number)
            record = _Record(Opdebug(), (), (), "", node.number, node.source)
            shown = [ObservedValue(np.frombuffer(content, np.uint8))]
            self.writer.operator(step, self._graph, node.number, record, None, shown)


class Opdebug(Primitive):
    """The operator type of overflow records (spec section 3.7); it is never applied."""


class _Record(Node):
    """The debug record, under the one name that it always has."""

    @property
    def name(self) -> str:
        return "Node_OpDebug"
