"""The operator that failed, or the first one whose results are not finite: found in a step that is made again, and
dumped (`session.enable_exception_dump`, seed 004)."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from runner.core.graph import Graph
from runner.core.observers import ObservedValue, ValueObserver
from runner.core.primitive import Node
from runner.core.source import user_line
from runner.observe.dump.settings import DumpSettings
from runner.observe.dump.sync_writer import SyncFolder
from runner.observe.dump.writer import described


class FirstFailure(ValueObserver):
    """Waits for a failure in the `steps` that it is told of, and dumps that operator below `path`, as a synchronous
    dump would. Nothing is made before there is one. Raises StorageError when it cannot be written."""

    def __init__(self, path: Path, net_name: str, device_id: int) -> None:
        self.settings = DumpSettings("sync", path, net_name)
        self.device_id = device_id
        self.steps = range(0)
        self.found: Node | None = None
        self._rows: dict[str, str] = {}
        self._folder: SyncFolder | None = None

    def next_step(self, step: int) -> int | None:
        """Every step of `steps`."""
        first = max(step, self.steps.start)
        return first if first in self.steps and self.found is None else None

    def operator(
        self, step: int, node: Node, inputs: Sequence[ObservedValue], outputs: Sequence[ObservedValue]
    ) -> None:
        """Dump the first one whose results are not finite."""
        if self.found is None and any(map(is_overflown, outputs)):
            wrong = [f"input {k}" for k, value in enumerate(inputs) if is_overflown(value)]
            self._rows = {"inputs": f"{' and '.join(wrong)} not finite" if wrong else "all finite"}
            self._dump(step, node, inputs, outputs)

    def failed(self, step: int, node: Node, inputs: Sequence[ObservedValue]) -> None:
        """Dump what an operator was given that could not be computed."""
        if self.found is None:
            self._dump(step, node, inputs, None)

    def end(self, step: int, graph: Graph) -> None:
        """Beside the operator stands the graph."""
        if self._folder is not None:
            self._folder.graph(0, *described(graph, 0))

    @property
    def rows(self) -> dict[str, object]:
        """What an error says of it: `operator`, `line`, `inputs`, `dump`; nothing when there was no failure."""
        if self.found is None:
            return {}
        line = user_line(self.found.source)
        return {"operator": self.found.name, "line": line, **self._rows, "dump": str(self.settings.path)}

    def _dump(
        self, step: int, node: Node, inputs: Sequence[ObservedValue], outputs: Sequence[ObservedValue] | None
    ) -> None:
        self.found = node
        self._folder = SyncFolder(self.settings, self.device_id)
        self._folder.operator(step, 0, node.number, node, inputs, outputs)


def is_overflown(value: ObservedValue) -> bool:
    """Whether a value has an element that is infinite or not a number."""
    return value.array.dtype.kind == "f" and not np.isfinite(value.array).all()
