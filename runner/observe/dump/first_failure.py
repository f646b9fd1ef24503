"""Dump of the operator that failed, or of the first one whose outputs are not finite, when a failed step is replayed
(`session.enable_exception_dump`, seed 004)."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from runner.core.graph import Graph, ObservedValue, ValueObserver
from runner.core.operators import Node
from runner.core.source import user_line
from runner.observe.dump.settings import DumpSettings
from runner.observe.dump.sync_writer import SyncWriter


class FirstFailure(ValueObserver):
    """Dumps the first failing operator of `steps` below `path`, in the layout of a synchronous dump.

    No folder is created before a failure. Raises StorageError if a file cannot be written.
    """

    def __init__(self, path: Path, net_name: str, device_id: int) -> None:
        self.settings = DumpSettings("sync", path, net_name)
        self.device_id = device_id
        self.steps = range(0)
        self.found: Node | None = None
        self._rows: dict[str, str] = {}
        self._writer: SyncWriter | None = None

    def next_step(self, step: int) -> int | None:
        """Every step of `steps`, until a failure is found."""
        first = max(step, self.steps.start)
        return first if first in self.steps and self.found is None else None

    def operator(
        self, step: int, node: Node, inputs: Sequence[ObservedValue], outputs: Sequence[ObservedValue]
    ) -> None:
        """Dump the operator if it is the first one whose outputs are not finite."""
        if self.found is None and any(map(has_overflow, outputs)):
            not_finite = [f"input {k}" for k, value in enumerate(inputs) if has_overflow(value)]
            self._rows = {"inputs": f"{' and '.join(not_finite)} not finite" if not_finite else "all finite"}
            self._dump(step, node, inputs, outputs)

    def failed(self, step: int, node: Node, inputs: Sequence[ObservedValue]) -> None:
        """Dump the inputs of an operator that raised an error."""
        if self.found is None:
            self._dump(step, node, inputs, None)

    def end(self, step: int, graph: Graph) -> None:
        """Write the graph of the failed operator."""
        if self._writer is not None:
            self._writer.write_graph(0, graph)

    @property
    def rows(self) -> dict[str, object]:
        """Rows for an error message: `operator`, `line`, `inputs`, `dump`; empty if there was no failure."""
        if self.found is None:
            return {}
        line = user_line(self.found.source)
        return {"operator": self.found.name, "line": line, **self._rows, "dump": str(self.settings.path)}

    def _dump(
        self, step: int, node: Node, inputs: Sequence[ObservedValue], outputs: Sequence[ObservedValue] | None
    ) -> None:
        self.found = node
        self._writer = SyncWriter(self.settings, self.device_id)
        self._writer.rewind(0)  # removes the failure before the run was resumed, and leaves those of other ranks
        self._writer.write_operator(step, 0, node.number, node, inputs, outputs)


def has_overflow(value: ObservedValue) -> bool:
    """Whether a value has an element that is infinite or NaN."""
    return value.array.dtype.kind == "f" and not np.isfinite(value.array).all()
