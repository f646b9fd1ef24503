"""The asynchronous layout: a file per operator, or per tensor as .npy, written while the training continues.

    {root}/{device_id}/{net_name}_graph_{graph}/{graph}/{step}/{AsyncName}                 the CANN dump file
    {root}/{device_id}/{net_name}_graph_{graph}/{graph}/{step}/{NpyName}, statistic.csv    with file_format=npy
    {root}/{device_id}/graphs/, execution_order/; {root}/.metadata/data_dump.json

`root` is the path of the settings; in a GE dump, a folder named by the local start time (spec section 7). A name
that is too long for the file system is replaced by a number, and `mapping.csv` in the same folder has the name.
"""

import hashlib
import io
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from runner import dtype as dt
from runner.core.graph import ObservedValue
from runner.core.lowering import LAST, TILED
from runner.core.operators import Node
from runner.host.files import make_directory, names, write_whole
from runner.observe.dump import mapping_csv, statistics
from runner.observe.dump.cann_file import TensorHeader, header
from runner.observe.dump.file_names import DEFAULT_FORMAT, INPUT, OUTPUT, PARAMETER, AsyncName, NpyName, sanitised
from runner.observe.dump.formats import TILE_AXES
from runner.observe.dump.settings import DumpSettings
from runner.observe.dump.write_queue import WriteQueue
from runner.observe.dump.writer import DumpWriter, Piece, Side, write_metadata, write_pieces

STREAM = 0  # there is only one stream of execution
MAX_NAME_BYTES = 255


@dataclass
class _StepFolder:
    """The folder of one step of one graph, and the content of the files that are written when the step ends."""

    path: Path
    rows: list[tuple[object, ...]] = field(default_factory=list)  # of statistic.csv
    shortened: dict[str, str] = field(default_factory=dict)  # full names by number, of mapping.csv

    def path_of(self, name: str) -> Path:
        """The path of a file, shortened if the name is too long."""
        if len(os.fsencode(name)) > MAX_NAME_BYTES:
            digest = hashlib.blake2b(os.fsencode(name), digest_size=8).digest()
            number = f"{int.from_bytes(digest):020}"
            self.shortened[number] = name
            name = number
        return self.path / name


class AsyncWriter(DumpWriter):
    """Writer of the asynchronous layout, also below the folder of a GE dump.

    `now` returns seconds since the epoch. Raises StorageError if a folder cannot be created, DataError for a
    damaged `mapping.csv`.
    """

    def __init__(self, settings: DumpSettings, device_id: int, now: Callable[[], float] = time.time) -> None:
        self._settings, self._now, self._last = settings, now, 0
        super().__init__(settings.path / str(device_id))
        write_metadata(settings.path, settings)
        self._open: dict[tuple[int, int], _StepFolder] = {}
        self.queue = WriteQueue(settings.queue_mb << 20)

    def write_operator(self, step: int, graph: int, task: int, node: Node, inputs: Side, outputs: Side) -> None:
        """Queue one execution of an operator, named by its type and full name."""
        name = AsyncName(node.op.name, sanitised(node.name), task, STREAM, self._timestamp())
        self._write(self._folder(step, graph), name, node.name, inputs or (), outputs or ())

    def write_value(self, step: int, graph: int, name: str, value: ObservedValue) -> None:
        """Queue a parameter or constant, as the only output of an operator of the type Parameter."""
        operator = AsyncName(PARAMETER, sanitised(name), 0, STREAM, self._timestamp())
        self._write(self._folder(step, graph), operator, name, (), (value,))

    def finish_step(self, step: int) -> None:
        """Queue `statistic.csv` and `mapping.csv` of the step."""
        for key in [key for key in self._open if key[0] == step]:
            folder = self._open.pop(key)
            if self._settings.file_format == "npy":
                self.queue.submit(partial(_write_statistics, folder), 0)
            if folder.shortened:
                self.queue.submit(partial(mapping_csv.add, folder.path, folder.shortened), 0)
        self.queue.check()

    def begin_step(self, step: int, graph: int) -> None:
        """As in the base; an execution that failed has left its folder open."""
        self._open.pop((step, graph), None)
        super().begin_step(step, graph)

    def flush(self) -> None:
        """Wait until the queue is empty."""
        self.queue.drain()

    def close(self) -> None:
        """Wait until all files are written, including the tables of an incomplete step."""
        try:
            for step in sorted({step for step, _ in self._open}):
                self.finish_step(step)
        finally:
            self.queue.close()

    def _folder(self, step: int, graph: int) -> _StepFolder:
        if (step, graph) not in self._open:
            self._open[step, graph] = _StepFolder(make_directory(self.step_folder(step, graph)))
        return self._open[step, graph]

    def step_folder(self, step: int, graph: int) -> Path:
        """A folder for each graph and step."""
        return self.folder / f"{self._settings.net_name}_graph_{graph}" / str(graph) / str(step)

    def step_folders(self) -> Iterator[tuple[int, Path]]:
        """The folders of all graphs of the network."""
        for network in names(self.folder):
            name, _, graph = network.rpartition("_graph_")
            if name == self._settings.net_name:
                for step in filter(str.isdecimal, names(self.folder / network / graph)):
                    yield int(step), self.folder / network / graph / step

    def _timestamp(self) -> int:
        """Microseconds since the epoch, strictly increasing: they distinguish files with equal names."""
        self._last = max(int(self._now() * 1e6), self._last + 1)
        return self._last

    def _write(
        self,
        folder: _StepFolder,
        name: AsyncName,
        full_name: str,
        inputs: Sequence[ObservedValue],
        outputs: Sequence[ObservedValue],
    ) -> None:
        sides = {INPUT: [to_file_layout(x) for x in inputs], OUTPUT: [to_file_layout(x) for x in outputs]}
        if self._settings.file_format == "npy":
            for side, tensors in sides.items():
                for slot, (tensor, array) in enumerate(tensors):
                    self._write_npy(folder, name, side, slot, tensor, array)
            return
        message = header(full_name, name.timestamp, *([tensor for tensor, _ in side] for side in sides.values()))
        arrays = [array for side in sides.values() for _, array in side]
        self.queue.put(folder.path_of(str(name)), [message, *arrays])

    def _write_npy(
        self, folder: _StepFolder, operator: AsyncName, side: str, slot: int, tensor: TensorHeader, array: np.ndarray
    ) -> None:
        name = NpyName(operator, side, slot, tensor.format if tensor.format == LAST.value else DEFAULT_FORMAT)
        pieces: list[Piece] = [npy_header(tensor), array]
        row = partial(statistics.row, operator, side, slot, tensor.shape, array)
        self.queue.submit(partial(_write_with_row, folder, folder.path_of(str(name)), pieces, row), array.nbytes)


def to_file_layout(value: ObservedValue) -> tuple[TensorHeader, np.ndarray]:
    """Convert a value to a layout that dump files support: its header, and its elements in C order of the array.

    (C, H, W, N) is a format of dump files; values in other layouts are converted to the logical layout. The array may
    have more axes than the shape in the header.
    """
    array, layout = value
    shape, dtype = array.shape, dt.of(array.dtype)
    if layout is LAST and array.ndim == 4:
        return TensorHeader(dtype, LAST.value, shape, (*shape[-1:], *shape[:-1])), array
    if layout is LAST:
        array = np.moveaxis(array, -1, 0)
        shape = array.shape
    elif layout is TILED:
        array = array.transpose(TILE_AXES)
        batch, channels, height, _, width, _ = array.shape
        shape = batch, channels, 2 * height, 2 * width
    return TensorHeader(dtype, "NCHW" if len(shape) == 4 else "ND", shape, shape), array


def npy_header(tensor: TensorHeader) -> bytes:
    """The bytes that numpy.save writes before the elements."""
    stream = io.BytesIO()
    values = {"descr": tensor.dtype.numpy.str, "fortran_order": False, "shape": tensor.shape}
    np.lib.format.write_array_header_1_0(stream, values)
    return stream.getvalue()


def _write_with_row(
    folder: _StepFolder, path: Path, pieces: Sequence[Piece], row: Callable[[], tuple[object, ...]]
) -> None:
    write_pieces(path, pieces)
    folder.rows.append(row())


def _write_statistics(folder: _StepFolder) -> None:
    write_whole(folder.path / statistics.FILE, [statistics.table(folder.rows)])
