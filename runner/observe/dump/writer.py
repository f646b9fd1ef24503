"""What puts a dump onto the disk, and what all layouts have in common: tensors as bytes, the graph, the settings."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol, TypeAlias

import numpy as np

from runner.core.graph import Graph
from runner.core.observers import ObservedValue
from runner.core.primitive import Node
from runner.host.files import make_directory, write_atomically, write_whole
from runner.observe.dump.formats import in_order
from runner.observe.dump.settings import DumpSettings
from runner.observe.graph.describe import describe
from runner.observe.graph.folder import ORDER_HEADER
from runner.observe.graph.proto import proto
from runner.observe.graph.text import text

Piece: TypeAlias = bytes | np.ndarray
COPIED = 16 << 20  # bytes; arrays that lie otherwise are copied up to this size, since that is faster
BLOCK = 1 << 16  # elements of an array that lies otherwise; they are put in order in a buffer of this size
OWNER_READS = 0o400


class Writer(Protocol):
    """Puts what was shown onto the disk, under the names of its layout.

    Arrays are not copied: they must stay unchanged until `close`. Each method raises StorageError when something could
    not be written, be it by an earlier call.
    """

    def operator(
        self,
        step: int,
        graph: int,
        task: int,
        node: Node,
        inputs: Sequence[ObservedValue] | None,
        outputs: Sequence[ObservedValue] | None,
    ) -> None:
        """What an operator took and made; None for a side that is not wanted.

        `graph` is the number of its graph, `task` its place in the order of execution.
        """

    def held(self, step: int, graph: int, name: str, value: ObservedValue) -> None:
        """A parameter or constant, under its bare name."""

    def graph(self, graph: int, listing: str, proto: bytes, order: Sequence[str]) -> None:
        """A graph, once: as text, as the reference's protobuf, and the full names in the order of execution."""

    def finish(self, step: int) -> None:
        """The step is over."""

    def close(self) -> None:
        """Return when everything is written."""


def write_pieces(path: Path, pieces: Sequence[Piece]) -> None:
    """Write a whole file of bytes and of the elements of arrays, in C order. Raises StorageError."""
    write_whole(path, _buffers(pieces))


def _buffers(pieces: Sequence[Piece]) -> Iterator[bytes | memoryview]:
    for piece in pieces:
        if isinstance(piece, bytes):
            yield piece
        elif piece.flags.c_contiguous or piece.nbytes <= COPIED:
            yield in_order(piece).data
        else:
            yield from (block.data for block in blocks(piece, "C", BLOCK))


def blocks(array: np.ndarray, order: str, elements: int) -> Iterator[np.ndarray]:
    """The elements in order C, or K (as they lie), as contiguous vectors of at most so many.

    A vector may be a view of the array, or a buffer that the next one overwrites.
    """
    flags = ["external_loop", "buffered", "zerosize_ok"]
    # numpy's stubs know no string of which they cannot see the value.
    yield from np.nditer(array, flags, [["readonly", "contig"]], order=order, buffersize=elements)  # type: ignore[call-overload]


def write_graph(folder: Path, graph: int, listing: str, proto: bytes, order: Sequence[str]) -> None:
    """`graphs/` and `execution_order/` of one graph, in the folder of a device. Raises StorageError."""
    graphs, orders = make_directory(folder / "graphs"), make_directory(folder / "execution_order")
    stem = f"ms_output_trace_code_graph_{graph}"
    write_atomically(graphs / f"{stem}.ir", listing)
    write_atomically(graphs / f"{stem}.pb", proto)
    write_atomically(orders / f"ms_execution_order_graph_{graph}.csv", "\n".join([ORDER_HEADER, *order]) + "\n")


def described(graph: Graph, number: int) -> tuple[str, bytes, list[str]]:
    """What `Writer.graph` takes: the graph as text and as protobuf, and its operators in the order of execution."""
    nodes = sorted((*graph.nodes, *graph.effects), key=lambda node: node.number)
    return text(describe(graph, number)), proto(graph), [node.name for node in nodes]


def write_metadata(root: Path, settings: DumpSettings) -> None:
    """`.metadata/data_dump.json`, which only its owner can read, as the reference has it. Raises StorageError.

    Settings without JSON leave nothing.
    """
    if settings.source:
        write_atomically(make_directory(root / ".metadata") / "data_dump.json", settings.source, OWNER_READS)
