"""The formats of dump files: a class for each names its files, writes tensors into them and reads them back.

    SyncFile   {name}_{io}_{slot}_shape_{d0}_{d1}_{Type}_{format}.bin               one tensor
    CannFile   {op_type}.{op_name}.{task_id}.{stream_id}.{timestamp}                one operator (3.4, 3.8)
    NpyFile    {op_type}.{op_name}.{task_id}.{stream_id}.{timestamp}.{io}.{slot}.{format}.npy       one tensor (3.9)

The writers ask a format for the files of an operator, `runner/report/dump/` for the tensors of a file. A new format is
a class here and a member of `ASYNCHRONOUS`, whose names are the choices of `dump.file_format`. Names of files come
first, with `mapping.csv` for those that are too long. The config imports this module in every start: keep it small.
"""

import csv
import io as std_io
import re
import tokenize
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar, NamedTuple, TypeAlias

import numpy as np

from runner import dtype as dt
from runner.errors import ConfigError, DataError
from runner.host.console import csv_text
from runner.host.files import read_bytes, storage_errors, write_whole
from runner.observe.dump.cann import TensorHeader, header, read
from runner.types import Shape, TensorType

Piece: TypeAlias = bytes | np.ndarray
Tensors: TypeAlias = Sequence[tuple[TensorHeader, np.ndarray]]  # the array may have more axes than the header says
INPUT, OUTPUT = "input", "output"
PARAMETER = "Parameter"  # the operator type of parameters and constants
OVERFLOW = "Opdebug"  # the operator type of overflow records
DEFAULT_FORMAT = "DefaultFormat"
BATCH_LAST = "CHWN"  # the one layout that names of .npy files have
SMALL = 1 << 20  # bytes up to which reading is faster than mapping
# numpy evaluates the header of a file as an expression of Python, which a damaged one need not be.
_HEADER_ERRORS = SyntaxError, TypeError, OverflowError, RecursionError, MemoryError, tokenize.TokenError

# Names of files. The patterns are compiled at first use, not in every start.

_TYPES = {kind.name: kind for kind in dt.ALL} | {"kNumberType" + kind.name: kind for kind in dt.ALL}
_N = r"\d{1,20}"  # Python converts no numbers of thousands of digits, which `mapping.csv` may have
_SYNC = rf"(.+)_(input|output)_({_N})_shape_({_N}(?:_{_N})*)_([A-Za-z]+\d*)_([A-Za-z0-9_]+)\.bin"
_ASYNC = rf"([^.]+)\.([^.]+)\.({_N})(?:\.({_N}))?\.({_N})"
# MindSpore 2.x adds the element type after the format.
_NPY = rf"(.+)\.(input|output)\.({_N})\.([A-Za-z0-9_]+)(?:\.[A-Za-z]+\d*)?\.npy"


class SyncName(NamedTuple):
    """A file of a synchronous dump. `name` is the full name of an operator, or that of a parameter or constant."""

    name: str
    io: str
    slot: int
    type: TensorType
    format: str = DEFAULT_FORMAT

    def __str__(self) -> str:
        dims = "_".join(map(str, self.type.shape)) or "0"
        flat = self.name.replace("/", "--")
        return f"{flat}_{self.io}_{self.slot}_shape_{dims}_{self.type.dtype}_{self.format}.bin"

    @classmethod
    def parse(cls, file: str, size: int) -> "SyncName | None":
        """Parse a file name; None if it has another format. `size` in bytes: `shape_0` is a scalar if it is not 0."""
        found = re.fullmatch(_SYNC, file)
        if found is None or found[5] not in _TYPES:
            return None
        shape: Shape = tuple(map(int, found[4].split("_")))
        if shape == (0,) and size:
            shape = ()
        return cls(found[1].replace("--", "/"), found[2], int(found[3]), TensorType(_TYPES[found[5]], shape), found[6])


class AsyncName(NamedTuple):
    """A file of an asynchronous dump: one execution of one operator. `op_name` is sanitised."""

    op_type: str
    op_name: str
    task_id: int
    stream_id: int
    timestamp: int

    def __str__(self) -> str:
        return ".".join(map(str, self))

    @classmethod
    def parse(cls, file: str) -> "AsyncName | None":
        """Parse a file name; None if it has another format. Names with four parts have no stream."""
        found = re.fullmatch(_ASYNC, file)
        return found and cls(found[1], found[2], int(found[3]), int(found[4] or 0), int(found[5]))


class NpyName(NamedTuple):
    """A file of an asynchronous dump with `file_format=npy`: one tensor."""

    operator: AsyncName
    io: str
    slot: int
    format: str

    def __str__(self) -> str:
        return ".".join(map(str, self)) + ".npy"

    @classmethod
    def parse(cls, file: str) -> "NpyName | None":
        """Parse a file name; None if it has another format."""
        found = re.fullmatch(_NPY, file)
        operator = found and AsyncName.parse(found[1])
        return cls(operator, found[2], int(found[3]), found[4]) if found and operator else None


def sanitised(name: str) -> str:
    """A name as a part of the file names of an asynchronous dump: without dots, slashes and spaces.

    >>> sanitised("Default/network-LeNet5/Conv2D-op12")
    'Default_network-LeNet5_Conv2D-op12'
    """
    return re.sub(r"[./\\ ]", "_", name)


# `mapping.csv`: the full names of files whose names were too long for the file system; rows `file,name`.

MAPPING = "mapping.csv"
MAPPING_LIMIT = 1 << 28  # bytes


def long_names(folder: Path) -> dict[str, str]:
    """Full names by file; empty without a `mapping.csv`. Raises DataError if it is damaged."""
    path = folder / MAPPING
    if not path.exists():
        return {}
    try:
        rows = list(csv.reader(std_io.StringIO(read_bytes(path, MAPPING_LIMIT).decode(), newline="")))
    except (UnicodeDecodeError, csv.Error) as reason:
        raise DataError("a mapping of file names is damaged", file=path, reason=reason) from None
    names = {row[0]: row[1] for row in rows if len(row) == 2}
    for name in names.values():
        if "/" in name or "\0" in name:
            raise DataError("a mapping has an invalid file name", file=path, found=ascii(name))
    return names


def add_long_names(folder: Path, names: Mapping[str, str]) -> None:
    """Add rows to those that exist. Raises StorageError, and DataError if the existing file is damaged."""
    write_whole(folder / MAPPING, [csv_text((long_names(folder) | dict(names)).items()).encode()])


# The formats.


class NewFile(NamedTuple):
    """A file to write: the bytes and arrays one after the other, and the tensors in it by side and slot."""

    name: str
    pieces: Sequence[Piece]
    tensors: Sequence[tuple[str, int, TensorHeader, np.ndarray]]


class StoredTensor(NamedTuple):
    """A tensor in a file: its side and slot, and its elements in the layout of the header; they may raise DataError."""

    io: str
    slot: int
    header: TensorHeader
    elements: Callable[[], np.ndarray]


class StoredFile(NamedTuple):
    """What the name of a file says, and a function that reads the file. Raises DataError for a damaged one.

    `operator` is the execution whose tensors the file has; its type is PARAMETER for a parameter or constant, and
    empty where the name does not have it.
    """

    operator: AsyncName
    read: Callable[[Path], Sequence[StoredTensor]]


class FileFormat(ABC):
    """Base of the formats."""

    name: ClassVar[str]
    has_full_names: ClassVar[bool] = False  # of operators, in names of files; or else sanitised ones
    has_statistics: ClassVar[bool] = False  # a row of `statistic.csv` for each tensor

    @abstractmethod
    def files(self, operator: AsyncName, full_name: str, inputs: Tensors, outputs: Tensors) -> Iterator[NewFile]:
        """The files of an operator. Elements are not copied."""

    @abstractmethod
    def parse(self, file: str, size: int) -> StoredFile | None:
        """The file with this name and size in bytes; None if it has another format."""


class SyncFile(FileFormat):
    """The elements of one tensor, which its name describes: the format of synchronous dumps."""

    name = "bin"
    has_full_names = True

    def files(self, operator: AsyncName, full_name: str, inputs: Tensors, outputs: Tensors) -> Iterator[NewFile]:
        """One for each tensor."""
        for io, slot, tensor, array in _numbered(inputs, outputs):
            name = SyncName(full_name, io, slot, TensorType(tensor.dtype, tensor.shape), tensor.format)
            yield NewFile(str(name), [array], [(io, slot, tensor, array)])

    def parse(self, file: str, size: int) -> StoredFile | None:
        """By name alone; the name of an operator is a path."""
        found = SyncName.parse(file, size)
        if found is None:
            return None
        operator = AsyncName("" if "/" in found.name else PARAMETER, found.name, 0, 0, 0)
        return StoredFile(operator, partial(self._read, found))

    def _read(self, name: SyncName, path: Path) -> list[StoredTensor]:
        tensor = TensorHeader(name.type.dtype, name.format, name.type.shape, ())
        return [StoredTensor(name.io, name.slot, tensor, partial(self._elements, path, name.type))]

    def _elements(self, path: Path, type: TensorType) -> np.ndarray:
        with storage_errors("cannot read a file", path):
            size = path.stat().st_size
            if size == type.nbytes > SMALL:
                return np.memmap(path, type.dtype.numpy, "r", shape=type.shape)
        if size == type.nbytes:
            return np.ndarray(type.shape, type.dtype.numpy, read_bytes(path, SMALL))
        rows = {"expected": f"{type.nbytes} bytes", "found": f"{size} bytes"}
        raise DataError("the size of a file does not match its name", file=path, type=type, **rows)


class CannFile(FileFormat):
    """All tensors of an operator in one file, as CANN writes them (`cann.py`)."""

    name = "bin"

    def files(self, operator: AsyncName, full_name: str, inputs: Tensors, outputs: Tensors) -> Iterator[NewFile]:
        """One."""
        message = header(full_name, operator.timestamp, *([tensor for tensor, _ in side] for side in (inputs, outputs)))
        arrays = [array for _, array in (*inputs, *outputs)]
        yield NewFile(str(operator), [message, *arrays], list(_numbered(inputs, outputs)))

    def parse(self, file: str, size: int) -> StoredFile | None:
        """By name alone."""
        operator = AsyncName.parse(file)
        return operator and StoredFile(operator, self._read)

    def _read(self, path: Path) -> list[StoredTensor]:
        found = read(path)
        return [
            StoredTensor(
                io, slot, TensorHeader(x.dtype, x.format, x.shape, x.original), partial(np.asanyarray, x.array)
            )
            for io, tensors in ((INPUT, found.inputs), (OUTPUT, found.outputs))
            for slot, x in enumerate(tensors)
        ]


class NpyFile(FileFormat):
    """One tensor as numpy.save writes it."""

    name = "npy"
    has_statistics = True

    def files(self, operator: AsyncName, full_name: str, inputs: Tensors, outputs: Tensors) -> Iterator[NewFile]:
        """One for each tensor."""
        for io, slot, tensor, array in _numbered(inputs, outputs):
            name = NpyName(operator, io, slot, BATCH_LAST if tensor.format == BATCH_LAST else DEFAULT_FORMAT)
            yield NewFile(str(name), [self.header(tensor), array], [(io, slot, tensor, array)])

    def header(self, tensor: TensorHeader) -> bytes:
        """The bytes that numpy.save writes before the elements."""
        stream = std_io.BytesIO()
        values = {"descr": tensor.dtype.numpy.str, "fortran_order": False, "shape": tensor.shape}
        np.lib.format.write_array_header_1_0(stream, values)
        return stream.getvalue()

    def parse(self, file: str, size: int) -> StoredFile | None:
        """By name alone."""
        found = NpyName.parse(file)
        return found and StoredFile(found.operator, partial(self._read, found))

    def _read(self, name: NpyName, path: Path) -> list[StoredTensor]:
        try:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
            dtype = dt.of(array.dtype)
        except (ValueError, EOFError, OSError, AttributeError, *_HEADER_ERRORS) as reason:
            what = reason.what if isinstance(reason, ConfigError) else reason
            raise DataError("not a tensor in a .npy file", file=path, reason=what) from None
        tensor = TensorHeader(dtype, name.format, array.shape, ())
        return [StoredTensor(name.io, name.slot, tensor, partial(np.asanyarray, array))]


def _numbered(inputs: Tensors, outputs: Tensors) -> Iterator[tuple[str, int, TensorHeader, np.ndarray]]:
    for io, tensors in ((INPUT, inputs), (OUTPUT, outputs)):
        for slot, (tensor, array) in enumerate(tensors):
            yield io, slot, tensor, array


SYNC, CANN, NPY = SyncFile(), CannFile(), NpyFile()
ASYNCHRONOUS: Mapping[str, FileFormat] = {one.name: one for one in (CANN, NPY)}  # by `dump.file_format`; first: default
FORMATS: tuple[FileFormat, ...] = (SYNC, *ASYNCHRONOUS.values())
