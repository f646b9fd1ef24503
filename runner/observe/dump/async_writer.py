"""The asynchronous layout: a file for every operator, or for every tensor as .npy, written while the training goes on.

    {root}/{device_id}/{net_name}_graph_{graph}/{graph}/{step}/{AsyncName}                 the CANN dump file (`cann`)
    {root}/{device_id}/{net_name}_graph_{graph}/{graph}/{step}/{NpyName}, statistic.csv    with file_format=npy
    {root}/{device_id}/graphs/, execution_order/; {root}/.metadata/data_dump.json

`root` is the path of the settings; that of a GE dump has a folder in between, with the local time of the start (spec
section 7). A name that is too long for the system becomes a number, and `mapping.csv` in the same folder says which.
"""

import hashlib
import io
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from runner import dtype as dt
from runner.core.lowering import LAST, TILED
from runner.core.observers import ObservedValue
from runner.core.primitive import Node
from runner.host.files import make_directory, write_whole
from runner.observe.dump import mapping_csv, statistics
from runner.observe.dump.cann_file import Stored, header
from runner.observe.dump.file_names import DEFAULT_FORMAT, INPUT, OUTPUT, PARAMETER, AsyncName, NpyName, sanitised
from runner.observe.dump.settings import DumpSettings
from runner.observe.dump.write_queue import WriteQueue
from runner.observe.dump.writer import Piece, write_graph, write_metadata, write_pieces

STREAM = 0  # ours have one stream of execution
LONGEST_NAME = 255  # bytes


@dataclass
class _Folder:
    """The files of one step of one graph, and what is to be written when the step is over."""

    path: Path
    rows: list[tuple[object, ...]] = field(default_factory=list)  # of statistic.csv
    mapped: dict[str, str] = field(default_factory=dict)  # numbers and the names that they stand for

    def place(self, name: str) -> Path:
        """Where a file of that name goes."""
        if len(os.fsencode(name)) > LONGEST_NAME:
            digest = hashlib.blake2b(os.fsencode(name), digest_size=8).digest()
            number = f"{int.from_bytes(digest):020}"
            self.mapped[number] = name
            name = number
        return self.path / name


class AsyncFolder:
    """Writer of the asynchronous layout and of that of GE.

    `now` gives seconds since the epoch. Files of an earlier run in the same place stay; only statistic.csv is of the
    last one. Raises StorageError when a folder cannot be made,
    DataError when an earlier run has left a damaged `mapping.csv`.
    """

    def __init__(self, settings: DumpSettings, device_id: int, now: Callable[[], float] = time.time) -> None:
        self._settings, self._now, self._last = settings, now, 0
        root = settings.path
        if settings.kind == "ge":
            root /= time.strftime("%Y%m%d%H%M%S", time.localtime(now()))
        self.folder = make_directory(root / str(device_id))
        write_metadata(root, settings)
        self._open: dict[tuple[int, int], _Folder] = {}
        self.queue = WriteQueue(settings.queue_mb << 20)

    def operator(
        self,
        step: int,
        graph: int,
        task: int,
        node: Node,
        inputs: Sequence[ObservedValue] | None,
        outputs: Sequence[ObservedValue] | None,
    ) -> None:
        """One execution of an operator, under its type and full name."""
        name = AsyncName(node.op.name, sanitised(node.name), task, STREAM, self._timestamp())
        self._write(self._folder(step, graph), name, node.name, inputs or (), outputs or ())

    def held(self, step: int, graph: int, name: str, value: ObservedValue) -> None:
        """A parameter or constant, as the only output of an operator of the type Parameter."""
        operator = AsyncName(PARAMETER, sanitised(name), 0, STREAM, self._timestamp())
        self._write(self._folder(step, graph), operator, name, (), (value,))

    def graph(self, graph: int, listing: str, proto: bytes, order: Sequence[str]) -> None:
        """`graphs/` and `execution_order/`."""
        write_graph(self.folder, graph, listing, proto, order)

    def finish(self, step: int) -> None:
        """Let the tables of the step follow its files."""
        for key in [key for key in self._open if key[0] == step]:
            folder = self._open.pop(key)
            if self._settings.file_format == "npy":
                self.queue.submit(partial(_write_statistics, folder), 0)
            if folder.mapped:
                self.queue.submit(partial(mapping_csv.add, folder.path, folder.mapped), 0)
        self.queue.check()

    def close(self) -> None:
        """Return when everything is written, the tables of a step that broke off included."""
        try:
            for step in sorted({step for step, _ in self._open}):
                self.finish(step)
        finally:
            self.queue.close()

    def _folder(self, step: int, graph: int) -> _Folder:
        if (step, graph) not in self._open:
            place = self.folder / f"{self._settings.net_name}_graph_{graph}" / str(graph) / str(step)
            self._open[step, graph] = _Folder(make_directory(place))
        return self._open[step, graph]

    def _timestamp(self) -> int:
        """Microseconds since the epoch, no two alike: they tell apart files of one name."""
        self._last = max(int(self._now() * 1e6), self._last + 1)
        return self._last

    def _write(
        self,
        folder: _Folder,
        name: AsyncName,
        full_name: str,
        inputs: Sequence[ObservedValue],
        outputs: Sequence[ObservedValue],
    ) -> None:
        taken, made = [stored(value) for value in inputs], [stored(value) for value in outputs]
        if self._settings.file_format == "npy":
            for side, tensors in ((INPUT, taken), (OUTPUT, made)):
                for slot, (tensor, array) in enumerate(tensors):
                    self._write_npy(folder, name, side, slot, tensor, array)
            return
        described = header(full_name, name.timestamp, [x for x, _ in taken], [x for x, _ in made])
        self.queue.put(folder.place(str(name)), [described, *(array for _, array in (*taken, *made))])

    def _write_npy(
        self, folder: _Folder, operator: AsyncName, side: str, slot: int, tensor: Stored, array: np.ndarray
    ) -> None:
        name = NpyName(operator, side, slot, tensor.format if tensor.format == LAST.value else DEFAULT_FORMAT)
        pieces: list[Piece] = [npy_header(tensor), array]
        row = partial(statistics.row, operator, side, slot, tensor.shape, array)
        self.queue.submit(partial(_write_with_row, folder, folder.place(str(name)), pieces, row), array.nbytes)


def stored(value: ObservedValue) -> tuple[Stored, np.ndarray]:
    """How a file describes a value, and an array with its elements in that order (its shape may have more axes).

    (C, H, W, N) is a format of dump files; any other value comes plain.
    """
    array, layout = value
    shape, kind = array.shape, dt.of(array.dtype)
    if layout is LAST and array.ndim == 4:
        return Stored(kind, LAST.value, shape, (*shape[-1:], *shape[:-1])), array
    if layout is LAST:
        array = np.moveaxis(array, -1, 0)
        shape = array.shape
    elif layout is TILED:
        array = array.transpose(5, 2, 3, 0, 4, 1)
        batch, channels, height, _, width, _ = array.shape
        shape = batch, channels, 2 * height, 2 * width
    return Stored(kind, "NCHW" if len(shape) == 4 else "ND", shape, shape), array


def npy_header(tensor: Stored) -> bytes:
    """What numpy.save writes in front of the elements."""
    stream = io.BytesIO()
    described = {"descr": tensor.dtype.numpy.str, "fortran_order": False, "shape": tensor.shape}
    np.lib.format.write_array_header_1_0(stream, described)
    return stream.getvalue()


def _write_with_row(
    folder: _Folder, path: Path, pieces: Sequence[Piece], row: Callable[[], tuple[object, ...]]
) -> None:
    write_pieces(path, pieces)
    folder.rows.append(row())


def _write_statistics(folder: _Folder) -> None:
    write_whole(folder.path / statistics.FILE, [statistics.table(folder.rows)])
