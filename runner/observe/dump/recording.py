"""Dumps read back: iterations, and what they hold in the order of execution; and what the graphs say of operators."""

import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from runner.errors import DataError
from runner.host.files import names
from runner.observe.dump.file_names import sanitised
from runner.observe.dump.locate import Place, find
from runner.observe.dump.reader import Entry, entries_of, read_text
from runner.observe.graph.listing import Operation
from runner.observe.graph.reader import read as read_listing


class Dump:
    """The dump of one network on one device, at a path as `find` takes it. Raises what that raises."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.places: dict[int, list[Place]] = {}
        for place in find(path):
            self.places.setdefault(place.iteration, []).append(place)
        self.device = next(iter(self.places.values()))[0].device
        self._orders: dict[int | None, list[str]] = {}

    @property
    def iterations(self) -> tuple[int, ...]:
        """Ascending."""
        return tuple(self.places)

    @property
    def is_one_folder(self) -> bool:
        """Whether the path leads to one iteration, so that its number is no matter."""
        return len(self.places) == 1 and self.path.resolve() in [p.folder for (p, *_) in self.places.values()]

    def entries(self, iteration: int) -> list[Entry]:
        """Parameters and constants by name, then operators in the order of execution. Raises DataError."""
        found: dict[str, Entry] = {}
        place: dict[str, int] = {}
        for folder in self.places[iteration]:
            order = self.order(folder.graph)
            full = {sanitised(name): name for name in order}
            for entry in entries_of(folder.folder, full):
                found.setdefault(entry.name, entry)
            place |= {name: len(place) + k for k, name in enumerate(order)}

        def key(entry: Entry) -> tuple[object, ...]:
            return not entry.is_held, place.get(entry.name, len(place)), entry.number, entry.name

        return sorted(found.values(), key=key)

    def order(self, graph: int | None) -> list[str]:
        """Full names in the order of execution; None means all graphs. Empty where the dump does not say."""
        if graph not in self._orders:
            lines: dict[str, None] = {}
            for file in self._of_graph("execution_order", "ms_execution_order_graph", "csv", graph):
                lines |= dict.fromkeys(read_text(file).splitlines()[1:])
            self._orders[graph] = [line for line in lines if line]
        return self._orders[graph]

    def operation(self, name: str) -> Operation | None:
        """What the text of the graph says of an operator; None where there is no such text, or in other words."""
        return self._operations.get(sanitised(name))

    def maker(self, operand: str) -> Operation | None:
        """The operator that makes an operand, such as `%12`."""
        return self._makers.get(operand)

    @cached_property
    def _operations(self) -> dict[str, Operation]:
        found: dict[str, Operation] = {}
        for file in self._of_graph("graphs", "ms_output_trace_code_graph", "ir", None):
            try:
                listing = read_listing(file)
            except DataError:
                continue  # another version's: what it would add to a report is not what was asked
            for graph in listing.subgraphs:
                found |= {sanitised(operation.full_name): operation for operation in graph.operations}
        return found

    @cached_property
    def _makers(self) -> dict[str, Operation]:
        return {result: operation for operation in self._operations.values() for result in operation.results}

    def _of_graph(self, folder: str, stem: str, suffix: str, graph: int | None) -> Iterator[Path]:
        pattern = re.compile(rf"{stem}_(\d{{1,18}})\.{suffix}")
        numbered = [(int(found[1]), name) for name in names(self.device / folder) if (found := pattern.fullmatch(name))]
        for number, name in sorted(numbered):
            if graph is None or number == graph:
                yield self.device / folder / name
