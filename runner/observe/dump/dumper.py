"""The observer that passes the selected values of a step to a writer."""

from collections.abc import Sequence

import numpy as np

from runner.core.graph import Graph, ObservedValue, ValueObserver
from runner.core.operators import Node, Primitive
from runner.host.console import LOG
from runner.observe.dump import overflow
from runner.observe.dump.async_writer import AsyncWriter
from runner.observe.dump.first_failure import has_overflow
from runner.observe.dump.graph_numbers import GraphNumbers
from runner.observe.dump.selection import KernelSelection
from runner.observe.dump.settings import DumpSettings
from runner.observe.dump.sync_writer import SyncWriter
from runner.observe.dump.writer import DumpWriter
from runner.types import TensorType


class Dumper(ValueObserver):
    """Dumps the steps, operators and sides that its settings select.

    With `op_debug_mode` it dumps only operators whose outputs are not finite, and a record of the first one of each
    step. It logs a warning for each kernel in the settings that matches nothing. Raises StorageError if a file cannot
    be written; `close` waits until all are.
    """

    def __init__(self, settings: DumpSettings, device_id: int = 0) -> None:
        self.settings = settings
        self.writer: DumpWriter = (SyncWriter if settings.kind == "sync" else AsyncWriter)(settings, device_id)
        self.supports_sinks = settings.kind != "sync"
        self.device_layout = self.supports_sinks or not settings.trans_flag
        self.selection = KernelSelection(settings.kernels)
        self._graphs = GraphNumbers(self.writer.folder)
        self._graph = 0  # number of the current graph
        self._written: set[int] = set()
        self._has_record = False  # of an overflow in the current step

    def next_step(self, step: int) -> int | None:
        """The first step in the setting `iterations` that is not before `step`."""
        return self.settings.iterations.next_step(step)

    def selects(self, node: Node) -> bool:
        """Whether the setting `kernels` selects an operator."""
        return self.selection.selects_operator(node.name, node.op.name)

    def begin(self, step: int, types: tuple[TensorType, ...]) -> None:
        """Determine the number of the graph, which is identified by the types of its inputs.

        A step that is executed again replaces its files.
        """
        self._graph = self._graphs.number(types)
        self._has_record = False
        self.writer.begin_step(step, self._graph)

    def operator(
        self, step: int, node: Node, inputs: Sequence[ObservedValue], outputs: Sequence[ObservedValue]
    ) -> None:
        """Write the operator, unless `op_debug_mode` excludes it."""
        mode = self.settings.op_debug_mode
        if mode:
            if not overflow.detects(mode, node.op.name) or not any(map(has_overflow, outputs)):
                return
            self._write_record(step, node)
        sides = inputs if self.settings.inputs else None, outputs if self.settings.outputs else None
        self.writer.write_operator(step, self._graph, node.number, node, *sides)

    def end(self, step: int, graph: Graph) -> None:
        """Write parameters and constants, and the graph if it is new."""
        if self._graph not in self._written:
            self._written.add(self._graph)
            self._write_graph(graph)
        if self.settings.outputs and not self.settings.op_debug_mode:
            values = {p.name: p.array for p in graph.parameters} | {x.name: a for x, a in graph.constants.items()}
            for name, array in values.items():
                if self.selection.selects_value(name):
                    self.writer.write_value(step, self._graph, name, ObservedValue(array))
        self.writer.finish_step(step)

    def rewind(self, step: int) -> None:
        """Remove the files of the steps from number `step` on; graphs keep the numbers that they had before."""
        self.writer.rewind(step)
        self._graphs.restore()

    def flush(self) -> None:
        """Wait until the files of all complete steps are written."""
        self.writer.flush()

    def close(self) -> None:
        """Wait until all files are written."""
        self.writer.close()

    def _write_graph(self, graph: Graph) -> None:
        order = self.writer.write_graph(self._graph, graph)
        names = [*order, *(p.name for p in graph.parameters), *(x.name for x in graph.constants)]
        for kernel, nearest in self.selection.unmatched(names):
            LOG.warning("dump: no operator matches %r; the nearest are %s", kernel, ", ".join(nearest) or "none")

    def _write_record(self, step: int, node: Node) -> None:
        """Write an overflow record for the first operator of a step that overflows."""
        if not self._has_record:
            self._has_record = True
            content = overflow.record(overflow.mode_of(node.op.name), node.number)
            record = _RecordNode(Opdebug(), (), (), "", node.number, node.source)
            outputs = [ObservedValue(np.frombuffer(content, np.uint8))]
            self.writer.write_operator(step, self._graph, node.number, record, None, outputs)


class Opdebug(Primitive):
    """The operator type of overflow records (spec section 3.7); it is never applied."""


class _RecordNode(Node):
    """The node of an overflow record, whose name is fixed."""

    @property
    def name(self) -> str:
        return "Node_OpDebug"
