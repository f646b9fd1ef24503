"""Writers of dumps: for each kind of dump a class that writes the values of operators into the folders of its layout.

`Dumper` calls them with what its settings select; what a file has is in `files.py`. In this order: the base with what
all layouts share (elements, graphs, settings), the queue of the background thread, `statistic.csv`, the asynchronous
layout and the synchronous one.
"""

import hashlib
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from runner import dtype as dt
from runner.communication.world import world
from runner.core.graph import Graph, ObservedValue
from runner.core.lowering import LAST, PLAIN, TILED
from runner.core.operators import Node
from runner.errors import InternalError
from runner.host.console import csv_text
from runner.host.files import (
    TEMPORARY_SUFFIX,
    make_directory,
    names,
    remove,
    storage_errors,
    write_atomically,
    write_whole,
)
from runner.observe.dump.cann import TensorHeader
from runner.observe.dump.files import (
    ASYNCHRONOUS,
    DEFAULT_FORMAT,
    PARAMETER,
    SYNC,
    AsyncName,
    NewFile,
    Piece,
    Tensors,
    add_long_names,
    sanitised,
)
from runner.observe.dump.layouts import TILE_AXES, to_c_order
from runner.observe.dump.settings import DumpSettings
from runner.observe.graph.folder import write_order
from runner.observe.graph.listing import describe, text
from runner.observe.graph.proto import proto
from runner.types import Shape

Side: TypeAlias = Sequence[ObservedValue] | None  # the inputs or the outputs of an operator; None if not selected
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
        self.write(step, graph, task, node.op.name, node.name, inputs, outputs)

    def write_value(self, step: int, graph: int, name: str, value: ObservedValue) -> None:
        """Write a parameter or constant, as the output of an operator of its own."""
        self.write(step, graph, 0, PARAMETER, name, None, (value,))

    def write(self, step: int, graph: int, task: int, op_type: str, name: str, inputs: Side, outputs: Side) -> None:
        """Write what is dumped under a type and a full name."""
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


def _write_and(then: Callable[[], object], path: Path, pieces: Sequence[Piece]) -> None:
    write_pieces(path, pieces)
    then()


def blocks(array: np.ndarray, order: str, elements: int) -> Iterator[np.ndarray]:
    """The elements in order C, or in memory order (K), as contiguous vectors of at most `elements` elements.

    A vector may be a view of the array, or a buffer that the next one overwrites.
    """
    flags = ["external_loop", "buffered", "zerosize_ok"]
    # numpy's stubs accept only literals as the order.
    yield from np.nditer(array, flags, [["readonly", "contig"]], order=order, buffersize=elements)  # type: ignore[call-overload]


def write_metadata(root: Path, settings: DumpSettings) -> None:
    """Write the JSON of the settings, if any, to `.metadata/data_dump.json`, readable by its owner only as in
    MindSpore. Of several ranks the first one writes. Raises StorageError."""
    if settings.source and world().rank == 0:
        folder = make_directory(root / ".metadata")
        _remove_temporaries(folder)
        write_atomically(folder / "data_dump.json", settings.source, OWNER_READS)


# A queue for one background thread, with a limit on the memory of queued work.

ITEM_BYTES = 1024  # overhead of an item: without it, any number of scalars could be queued


class WriteQueue:
    """Executes work in order in a background thread.

    `limit` and `peak` are in bytes; `peak` is the maximum held so far, including the item in progress. Callers block
    until there is room for their work; an item larger than the limit is executed by the caller once the queue is empty.

    After the first error queued work is dropped, and every later call raises that error. The thread is a daemon, so
    that a process which ends without `close` does not wait for it.
    """

    def __init__(self, limit: int) -> None:
        self.limit, self.peak = limit, 0
        self._held = 0
        self._waiting: deque[tuple[Callable[[], object], int]] = deque()
        self._error: Exception | None = None
        self._is_closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="dump", daemon=True)
        self._thread.start()

    def put(self, path: Path, pieces: Sequence[Piece], then: Callable[[], object] | None = None) -> None:
        """Write a file of bytes and arrays, which must not change afterwards, and then call `then`."""
        size = sum(len(piece) if isinstance(piece, bytes) else piece.nbytes for piece in pieces)
        self.submit(partial(_write_and, then, path, pieces) if then else partial(write_pieces, path, pieces), size)

    def submit(self, work: Callable[[], object], nbytes: int) -> None:
        """Queue a function call that holds `nbytes` of memory until it returns."""
        nbytes += ITEM_BYTES
        is_large = nbytes > self.limit
        room = 0 if is_large else self.limit - nbytes
        with self._changed:
            self._changed.wait_for(lambda: self._error or self._held <= room)
            self.check()
            if self._is_closed:
                raise InternalError("a write queue received work after close()")
            if not is_large:
                self._held += nbytes
                self.peak = max(self.peak, self._held)
                self._waiting.append((work, nbytes))
                self._changed.notify_all()
                return
        try:
            work()
        except Exception as error:
            self._fail(error)
            raise

    def drain(self) -> None:
        """Wait until all work is done. Raises the error of earlier work."""
        with self._changed:
            self._changed.wait_for(lambda: self._error or self._held == 0)
        self.check()

    def check(self) -> None:
        """Raise the error of earlier work, if any."""
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Wait until all work is done. Raises the error of earlier work, on every call."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join()
        self.check()

    def _run(self) -> None:
        # Memory is free once the reference to the work is gone, when `_run_next` has returned.
        while nbytes := self._run_next():
            with self._changed:
                self._held -= nbytes
                self._changed.notify_all()

    def _run_next(self) -> int:
        """Execute the next item. Returns the bytes that it held; 0 if the queue is closed and empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closed)
            if not self._waiting:
                return 0
            work, nbytes = self._waiting.popleft()
        try:
            work()
        except Exception as error:
            self._fail(error)
        return nbytes

    def _fail(self, error: Exception) -> None:
        with self._changed:
            self._error = self._error or error
            self._held -= sum(nbytes for _, nbytes in self._waiting)
            self._waiting.clear()
            self._changed.notify_all()


# `statistic.csv`: a row of statistics for each dumped tensor. The columns mean what they mean in
# MindSpore, not what they are called: Negative and Positive Zero Count are the elements below and above zero.

STATISTICS_FILE = "statistic.csv"
COLUMNS = (
    *("Op Type", "Op Name", "Task ID", "Stream ID", "Timestamp", "IO", "Slot", "Data Size", "Data Type", "Shape"),
    *("Max Value", "Min Value", "Avg Value", "Count", "Negative Zero Count", "Positive Zero Count", "NaN Count"),
    *("Negative Inf Count", "Positive Inf Count", "Zero Count"),
)
STATISTICS_BLOCK = 1 << 18  # elements that are processed at once
# numpy is 10 times slower with float16, and the maximum of booleans must be a number.
_WORKING_TYPES: dict[np.dtype, np.dtype] = {
    np.dtype(np.float16): np.dtype(np.float32),
    np.dtype(np.bool_): np.dtype(np.uint8),
}


class Statistics(NamedTuple):
    """Statistics of one tensor. `max` and `min` have its dtype, or are 0 or 1 for Bool; the sum is in float64.

    They include infinities and are NaN if any element is NaN, or if the tensor is empty; so is the mean. `below_zero`
    and `above_zero` count infinities too, `zero` the zeros of either sign.
    """

    max: np.generic | float
    min: np.generic | float
    sum: float
    elements: int
    below_zero: int
    above_zero: int
    nan: int
    negative_inf: int
    positive_inf: int
    zero: int

    @property
    def average(self) -> float:
        """The mean; NaN for an empty tensor."""
        return self.sum / self.elements if self.elements else math.nan

    @property
    def cells(self) -> tuple[object, ...]:
        """The values of the columns from "Max Value" on."""
        return self.max, self.min, self.average, *self[3:]


EMPTY = Statistics(math.nan, math.nan, 0.0, 0, 0, 0, 0, 0, 0, 0)


def statistics(array: np.ndarray) -> Statistics:
    """The statistics of a tensor of any shape and memory order."""
    return reduce(_merge, (_of_block(block) for block in blocks(array, "K", STATISTICS_BLOCK) if block.size), EMPTY)


def statistics_row(operator: AsyncName, side: str, slot: int, shape: Shape, array: np.ndarray) -> tuple[object, ...]:
    """The row of one tensor: input or output (`side`) number `slot`; `shape` is the one in its file."""
    dtype = dt.of(array.dtype)
    return (
        *(*operator, side, slot, array.nbytes, dtype),
        *(f"({','.join(map(str, shape))})", *statistics(array).cells),
    )


def table(rows: Iterable[Sequence[object]]) -> bytes:
    """The content of the file."""
    return csv_text([COLUMNS, *rows]).encode()


def _merge(a: Statistics, b: Statistics) -> Statistics:
    if a is EMPTY:
        return b
    # The fields after the sum are counts. np.maximum propagates NaN, unlike `max`.
    counts = [x + y for x, y in zip(a[3:], b[3:], strict=True)]
    return Statistics(np.maximum(a.max, b.max), np.minimum(a.min, b.min), a.sum + b.sum, *counts)


def _of_block(array: np.ndarray) -> Statistics:
    block = array.astype(_WORKING_TYPES[array.dtype]) if array.dtype in _WORKING_TYPES else array
    # A sum of infinities of both signs is NaN, which must not cause a warning.
    with np.errstate(invalid="ignore", over="ignore"):
        largest, smallest, total = block.max(), block.min(), float(block.sum(dtype=np.float64))
    below, zero = int(np.count_nonzero(block < 0)), int(np.count_nonzero(block == 0))
    nan, negative, positive = (0, 0, 0) if np.isfinite(largest) and np.isfinite(smallest) else _not_finite(block)
    above = block.size - below - zero - nan
    scalar = block.dtype.type if array.dtype == np.bool_ else array.dtype.type
    return Statistics(scalar(largest), scalar(smallest), total, block.size, below, above, nan, negative, positive, zero)


def _not_finite(block: np.ndarray) -> tuple[int, int, int]:
    nan, infinite = np.isnan(block), np.isinf(block)
    positive = int(np.count_nonzero(infinite & (block > 0)))
    return int(np.count_nonzero(nan)), int(np.count_nonzero(infinite)) - positive, positive


# The folder of a step, in both layouts.

STREAM = 0  # there is only one stream of execution
MAX_NAME_BYTES = 255


@dataclass
class _StepFolder:
    """The folder of one step, in the asynchronous layout of one graph, and the content of files that end the step."""

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

    def add_rows(self, operator: AsyncName, file: NewFile) -> None:
        """The statistics of the tensors of a file."""
        self.rows += [statistics_row(operator, io, k, header.shape, array) for io, k, header, array in file.tensors]


# The asynchronous layout: files are written while the training continues.


class AsyncWriter(DumpWriter):
    """Writer of the asynchronous layout, also below the folder of a GE dump.

    {root}/{device_id}/{net_name}_graph_{graph}/{graph}/{step}/      files of the format, statistic.csv, mapping.csv
    {root}/{device_id}/graphs/, execution_order/; {root}/.metadata/data_dump.json

    `root` is the path of the settings; in a GE dump, a folder named by the local start time. A name
    that is too long for the file system is replaced by a number, and `mapping.csv` in the same folder has the name.

    `now` returns seconds since the epoch. Raises StorageError if a folder cannot be created, DataError for a
    damaged `mapping.csv`.
    """

    def __init__(self, settings: DumpSettings, device_id: int, now: Callable[[], float] = time.time) -> None:
        self._settings, self._now, self._last = settings, now, 0
        super().__init__(settings.path / str(device_id))
        write_metadata(settings.path, settings)
        self._format = ASYNCHRONOUS[settings.file_format]
        self._open: dict[tuple[int, int], _StepFolder] = {}
        self.queue = WriteQueue(settings.queue_mb << 20)

    def write(self, step: int, graph: int, task: int, op_type: str, name: str, inputs: Side, outputs: Side) -> None:
        """Queue the files of one execution of an operator."""
        folder = self._folder(step, graph)
        operator = AsyncName(op_type, sanitised(name), task, STREAM, self._timestamp())
        sides = ([to_file_layout(value) for value in side or ()] for side in (inputs, outputs))
        for file in self._format.files(operator, name, *sides):
            rows = partial(folder.add_rows, operator, file) if self._format.has_statistics else None
            self.queue.put(folder.path_of(file.name), file.pieces, rows)

    def finish_step(self, step: int) -> None:
        """Queue `statistic.csv` and `mapping.csv` of the step."""
        for key in [key for key in self._open if key[0] == step]:
            folder = self._open.pop(key)
            if self._format.has_statistics:
                self.queue.submit(partial(_write_statistics, folder), 0)
            if folder.shortened:
                self.queue.submit(partial(add_long_names, folder.path, folder.shortened), 0)
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


def _write_statistics(folder: _StepFolder) -> None:
    write_whole(folder.path / STATISTICS_FILE, [table(folder.rows)])


# The synchronous layout: files are written before the step continues.

STEP = "iteration_"


class SyncWriter(DumpWriter):
    """Writer of MindSpore's synchronous layout. Raises StorageError if a file cannot be written.

    {path}/{net_name}/{device_id}/iteration_{i}/                                  a file for each tensor, mapping.csv
    {path}/{net_name}/{device_id}/graphs/ms_output_trace_code_graph_{graph}.ir, .pb
    {path}/{net_name}/{device_id}/execution_order/ms_execution_order_graph_{graph}.csv
    {path}/.metadata/data_dump.json
    """

    def __init__(self, settings: DumpSettings, device_id: int) -> None:
        super().__init__(settings.path / settings.net_name / str(device_id))
        write_metadata(settings.path, settings)
        self._open: dict[int, _StepFolder] = {}

    def write(self, step: int, graph: int, task: int, op_type: str, name: str, inputs: Side, outputs: Side) -> None:
        """Write a file for each tensor, named by the full name."""
        if step not in self._open:
            self._open[step] = _StepFolder(make_directory(self.step_folder(step, graph)))
        operator = AsyncName(op_type, name, task, STREAM, 0)
        for file in SYNC.files(operator, name, _unchanged(inputs), _unchanged(outputs)):
            write_pieces(self._open[step].path_of(file.name), file.pieces)

    def begin_step(self, step: int, graph: int) -> None:
        """As in the base; an execution that failed has left its folder open."""
        self._open.pop(step, None)
        super().begin_step(step, graph)

    def finish_step(self, step: int) -> None:
        """Write `mapping.csv` of the step."""
        folder = self._open.pop(step, None)
        if folder is not None and folder.shortened:
            add_long_names(folder.path, folder.shortened)

    def close(self) -> None:
        """Complete the files of a step that has failed."""
        for step in sorted(self._open):
            self.finish_step(step)

    def step_folder(self, step: int, graph: int) -> Path:
        """All graphs share the folder of a step."""
        return self.folder / f"{STEP}{step}"

    def step_folders(self) -> Iterator[tuple[int, Path]]:
        """The folders `iteration_{step}`."""
        for name in names(self.folder):
            if name.startswith(STEP) and (number := name.removeprefix(STEP)).isdecimal():
                yield int(number), self.folder / name


def _unchanged(side: Side) -> Tensors:
    """Tensors in the layout of the device."""
    return [
        (TensorHeader(dt.of(array.dtype), DEFAULT_FORMAT if layout is PLAIN else layout.value, array.shape, ()), array)
        for array, layout in side or ()
    ]
