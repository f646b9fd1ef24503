"""The numbers of the graphs of a dump, in a hidden file, so that a resumed run gives each graph the number it had."""

import json
from pathlib import Path

from runner.errors import DataError
from runner.host.files import read_bytes, write_atomically
from runner.types import TensorType

FILE = ".graph_numbers.json"
LIMIT = 1 << 24  # bytes


class GraphNumbers:
    """Numbers graphs from 0, in the order in which they first run; the types of its inputs identify a graph."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._known: list[list[str]] = []

    def number(self, types: tuple[TensorType, ...]) -> int:
        """The number of a graph; that of a new one is written. Raises StorageError."""
        key = [str(one) for one in types]
        if key not in self._known:
            self._known.append(key)
            write_atomically(self._path, json.dumps(self._known) + "\n")
        return self._known.index(key)

    def restore(self) -> None:
        """Continue with the numbers in the file, if there is one. Raises DataError if it is damaged."""
        if not self._path.exists():
            return
        try:
            known = json.loads(read_bytes(self._path, LIMIT))
        except ValueError as reason:
            raise DataError("the numbers of the graphs of a dump are damaged", file=self._path, reason=reason) from None
        if not isinstance(known, list):
            raise DataError("the numbers of the graphs of a dump are damaged", file=self._path, found=known)
        self._known = known
