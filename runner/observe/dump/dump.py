"""A dump as read from its folder: iterations, their entries in execution order, and the operators in its graphs."""

import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from runner.errors import DataError
from runner.host.files import names
from runner.observe.dump.file_names import sanitised
from runner.observe.dump.locate import DumpLocation, find_iterations
from runner.observe.dump.operator_traits import DumpSide
from runner.observe.dump.reader import DumpEntry, read_entries, read_text
from runner.observe.graph.listing import Operation
from runner.observe.graph.reader import read as read_listing


class Dump:
    """The dump of one network on one device; takes a path and raises errors as `find_iterations` does."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.locations: dict[int, list[DumpLocation]] = {}
        for location in find_iterations(path):
            self.locations.setdefault(location.iteration, []).append(location)
        self.device = next(iter(self.locations.values()))[0].device
        self._orders: dict[int | None, list[str]] = {}

    @property
    def iterations(self) -> tuple[int, ...]:
        """The numbers of the iterations, ascending."""
        return tuple(self.locations)

    @property
    def is_one_folder(self) -> bool:
        """Whether the path is that of a single iteration, whose number is then irrelevant."""
        return len(self.locations) == 1 and self.path.resolve() in [p.folder for (p, *_) in self.locations.values()]

    def entries(self, iteration: int) -> list[DumpEntry]:
        """Parameters and constants by name, then operators in execution order. Raises DataError."""
        found: dict[str, DumpEntry] = {}
        position: dict[str, int] = {}
        for location in self.locations[iteration]:
            order = self.order(location.graph)
            full_names = {sanitised(name): name for name in order}
            for entry in read_entries(location.folder, full_names):
                found.setdefault(entry.name, entry)
            position |= {name: len(position) + k for k, name in enumerate(order)}

        def key(entry: DumpEntry) -> tuple[object, ...]:
            return not entry.is_value, position.get(entry.name, len(position)), entry.number, entry.name

        return sorted(found.values(), key=key)

    def side(self, iteration: int) -> DumpSide:
        """What is known about an iteration for matching it with that of another dump. Raises DataError."""
        orders = [self.order(location.graph) for location in self.locations[iteration]]
        executed = list(dict.fromkeys(name for order in orders for name in order))
        return DumpSide(self.entries(iteration), executed, self.operation, self.producer)

    def order(self, graph: int | None) -> list[str]:
        """Full names in execution order of one graph, or of all (None). Empty if the dump does not have them."""
        if graph not in self._orders:
            lines: dict[str, None] = {}
            for file in self._graph_files("execution_order", "ms_execution_order_graph", "csv", graph):
                lines |= dict.fromkeys(read_text(file).splitlines()[1:])
            self._orders[graph] = [line for line in lines if line]
        return self._orders[graph]

    def operation(self, name: str) -> Operation | None:
        """An operator in the IR file of its graph; None if there is no such file or it has another format."""
        return self._operations.get(sanitised(name))

    def producer(self, operand: str) -> Operation | None:
        """The operator that produces an operand such as `%12`."""
        return self._producers.get(operand)

    @cached_property
    def _operations(self) -> dict[str, Operation]:
        found: dict[str, Operation] = {}
        for file in self._graph_files("graphs", "ms_output_trace_code_graph", "ir", None):
            try:
                listing = read_listing(file)
            except DataError:
                continue  # of another version; it would only add details to a report
            for graph in listing.subgraphs:
                found |= {sanitised(operation.full_name): operation for operation in graph.operations}
        return found

    @cached_property
    def _producers(self) -> dict[str, Operation]:
        return {result: operation for operation in self._operations.values() for result in operation.results}

    def _graph_files(self, folder: str, stem: str, suffix: str, graph: int | None) -> Iterator[Path]:
        pattern = re.compile(rf"{stem}_(\d{{1,18}})\.{suffix}")
        numbered = [(int(found[1]), name) for name in names(self.device / folder) if (found := pattern.fullmatch(name))]
        for number, name in sorted(numbered):
            if graph is None or number == graph:
                yield self.device / folder / name
