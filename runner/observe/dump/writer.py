"""The base of dump writers, and the files that all layouts share: tensors, graphs, settings."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from runner.communication.world import world
from runner.core.graph import Graph, ObservedValue
from runner.core.operators import Node
from runner.host.files import (
    TEMPORARY_SUFFIX,
    make_directory,
    names,
    remove,
    storage_errors,
    write_atomically,
    write_whole,
)
from runner.observe.dump.formats import to_c_order
from runner.observe.dump.settings import DumpSettings
from runner.observe.graph.describe import describe
from runner.observe.graph.folder import write_order
from runner.observe.graph.proto import proto
from runner.observe.graph.text import text

Side: TypeAlias = Sequence[ObservedValue] | None  # the inputs or the outputs of an operator; None if not selected
Piece: TypeAlias = bytes | np.ndarray
MAX_COPY = 16 << 20  # bytes; non-contiguous arrays up to this size are copied as a whole, which is faster
BLOCK = 1 << 16  # elements of the buffer for larger non-contiguous arrays
OWNER_READS = 0o400


class DumpWriter:
    """Base: writes observed values to the files of a layout, below the `folder` of a device.

    Arrays are not copied: they must stay unchanged until `close`. Each method raises StorageError if this or an
    earlier write has failed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = make_directory(folder)

    def write_operator(self, step: int, graph: int, task: int, node: Node, inputs: Side, outputs: Side) -> None:
        """Write the inputs and outputs of an operator.

        `graph` is the number of its graph, `task` its position in execution order.
        """
        raise NotImplementedError

    def write_value(self, step: int, graph: int, name: str, value: ObservedValue) -> None:
        """Write a parameter or constant under its own name."""
        raise NotImplementedError

    def write_graph(self, number: int, graph: Graph) -> list[str]:
        """Write `graphs/` and `execution_order/` of a graph; returns the full names in execution order."""
        stem = f"{make_directory(self.folder / 'graphs')}/ms_output_trace_code_graph_{number}"
        write_atomically(Path(f"{stem}.ir"), text(describe(graph, number)))
        write_atomically(Path(f"{stem}.pb"), proto(graph))
        return write_order(self.folder, number, sorted((*graph.nodes, *graph.effects), key=lambda node: node.number))

    def step_folders(self) -> Iterator[tuple[int, Path]]:
        """The numbers and folders of the steps that were written, also by an earlier process."""
        raise NotImplementedError

    def step_folder(self, step: int, graph: int) -> Path:
        """The folder of a step of a graph, which may not exist."""
        raise NotImplementedError

    def begin_step(self, step: int, graph: int) -> None:
        """Remove the files of an earlier execution of a step."""
        if (folder := self.step_folder(step, graph)).exists():
            self.flush()
            _remove(folder)

    def rewind(self, step: int) -> None:
        """Remove all steps from number `step` on, and what a killed process left of other files."""
        for number, folder in list(self.step_folders()):
            if number >= step:
                _remove(folder)
        for folder in (self.folder, self.folder / "graphs", self.folder / "execution_order"):
            _remove_temporaries(folder)

    def finish_step(self, step: int) -> None:
        """Complete the files of a step."""

    def flush(self) -> None:
        """Wait until the files of all complete steps are written."""

    def close(self) -> None:
        """Wait until all files are written."""


def _remove_temporaries(folder: Path) -> None:
    """Remove what a killed process left in a folder."""
    for name in names(folder):
        if name.startswith(".") and name.endswith(TEMPORARY_SUFFIX):
            _remove(folder / name)


def _remove(path: Path) -> None:
    with storage_errors("cannot remove the files of a step", path):
        remove(path)


def write_pieces(path: Path, pieces: Sequence[Piece]) -> None:
    """Write a file of bytes and of the elements of arrays in C order. Raises StorageError."""
    write_whole(path, _buffers(pieces))


def _buffers(pieces: Sequence[Piece]) -> Iterator[bytes | memoryview]:
    for piece in pieces:
        if isinstance(piece, bytes):
            yield piece
        elif piece.flags.c_contiguous or piece.nbytes <= MAX_COPY:
            yield to_c_order(piece).data
        else:
            yield from (block.data for block in blocks(piece, "C", BLOCK))


def blocks(array: np.ndarray, order: str, elements: int) -> Iterator[np.ndarray]:
    """The elements in order C, or in memory order (K), as contiguous vectors of at most `elements` elements.

    A vector may be a view of the array, or a buffer that the next one overwrites.
    """
    flags = ["external_loop", "buffered", "zerosize_ok"]
    # numpy's stubs accept only literals as the order.
    yield from np.nditer(array, flags, [["readonly", "contig"]], order=order, buffersize=elements)  # type: ignore[call-overload]


def write_metadata(root: Path, settings: DumpSettings) -> None:
    """Write the JSON of the settings, if any, to `.metadata/data_dump.json`, readable by its owner only as in the
    reference. Of several ranks the first one writes. Raises StorageError."""
    if settings.source and world().rank == 0:
        folder = make_directory(root / ".metadata")
        _remove_temporaries(folder)
        write_atomically(folder / "data_dump.json", settings.source, OWNER_READS)
