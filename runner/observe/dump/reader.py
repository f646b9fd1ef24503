"""Reader of the files of one iteration of a dump: parameters, constants and operators with their tensors.

Elements are memory-mapped and read on access. Operators of asynchronous dumps get the full names that the caller
passes; the others keep their sanitised names.
"""

import re
import tokenize
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from runner import dtype as dt
from runner.errors import ConfigError, DataError
from runner.host.files import names, read_bytes, storage_errors
from runner.observe.dump import cann_file, formats, mapping_csv
from runner.observe.dump.file_names import DEFAULT_FORMAT, INPUT, OUTPUT, PARAMETER, AsyncName, NpyName, SyncName
from runner.types import Shape, TensorType

TEXT_LIMIT = 1 << 28  # bytes of a list of names
SMALL = 1 << 20  # bytes up to which reading is faster than mapping
PLAIN = (DEFAULT_FORMAT, *formats.PLAIN)
VIEWS = (*PLAIN, "CHWN", formats.TILED)  # formats without padding
OVERFLOW = "Opdebug"  # the operator type of overflow records
# numpy evaluates the header of a file as an expression of Python, which a damaged one need not be.
_HEADER_ERRORS = SyntaxError, TypeError, OverflowError, RecursionError, MemoryError, tokenize.TokenError
_NUMBER = re.compile(r"op(\d{1,18})$")


@dataclass(frozen=True)
class SavedTensor:
    """A tensor in a file. `shape` is in the layout `format`; `original` is the logical shape, () if unknown."""

    io: str
    slot: int
    path: Path
    dtype: dt.DType
    shape: Shape
    format: str
    original: Shape
    raw: Callable[[], np.ndarray]  # the elements in the layout `format`; raises DataError

    @property
    def label(self) -> str:
        """Side and slot as in file names: `output_0`."""
        return f"{self.io}_{self.slot}"

    @property
    def type(self) -> TensorType:
        """The logical dtype and shape, as far as known."""
        shape = self.shape
        if self.format == "CHWN":
            shape = (*shape[-1:], *shape[:-1])
        elif self.format == formats.TILED and len(shape) == 6:
            shape = shape[5], shape[2], 2 * shape[3], 2 * shape[4]
        elif self.original and self.format not in PLAIN:
            shape = self.original
        return TensorType(self.dtype, shape)

    def array(self) -> np.ndarray:
        """The elements in the logical shape. Raises DataError for a damaged file and an unknown format."""
        raw = self.raw()
        try:
            return raw if self.format in PLAIN else formats.to_nchw(raw, self.format, self.original)
        except DataError as error:
            raise error.add(file=self.path) from None


@dataclass(frozen=True)
class DumpEntry:
    """A parameter, a constant, or an operator with its inputs and outputs."""

    name: str
    is_value: bool  # a parameter or constant
    read: Callable[[], Sequence[SavedTensor]]

    def tensors(self) -> dict[str, SavedTensor]:
        """By label: inputs, then outputs. Raises DataError for damaged files."""
        return {tensor.label: tensor for tensor in sorted(self.read(), key=lambda tensor: (tensor.io, tensor.slot))}

    @property
    def number(self) -> int:
        """N of `op{N}`: the position in execution order, for dumps without an `execution_order` file."""
        found = _NUMBER.search(self.name)
        return int(found[1]) if found else 1 << 60


def read_entries(folder: Path, full_names: dict[str, str]) -> Iterator[DumpEntry]:
    """The entries of one iteration; `full_names` maps sanitised names to full ones."""
    sync_files: dict[str, list[tuple[SyncName, Path]]] = {}
    executions: dict[tuple[str, str], dict[AsyncName, list[tuple[NpyName | None, Path]]]] = {}
    long_names = mapping_csv.read(folder)
    for file in names(folder):
        path, name = folder / file, long_names.get(file, file)
        if file.startswith("."):  # a temporary file of a dump that is being written
            continue
        if sync := SyncName.parse(name, path.stat().st_size):
            sync_files.setdefault(sync.name, []).append((sync, path))
        elif operator := AsyncName.parse(name):
            executions.setdefault((operator.op_type, operator.op_name), {})[operator] = [(None, path)]
        elif npy := NpyName.parse(name):
            key = npy.operator.op_type, npy.operator.op_name
            executions.setdefault(key, {}).setdefault(npy.operator, []).append((npy, path))
    for name, files in sync_files.items():
        yield DumpEntry(name, "/" not in name, partial(_sync_tensors, files))
    for (op_type, name), found in executions.items():
        if op_type != OVERFLOW:
            latest = found[max(found, key=lambda operator: operator.timestamp)]  # of the last run that wrote here
            yield DumpEntry(full_names.get(name, name), op_type == PARAMETER, partial(_async_tensors, latest))


def _sync_tensors(files: Sequence[tuple[SyncName, Path]]) -> list[SavedTensor]:
    return [
        SavedTensor(x.io, x.slot, path, x.type.dtype, x.type.shape, x.format, (), partial(_read_elements, path, x.type))
        for x, path in files
    ]


def _async_tensors(files: Sequence[tuple[NpyName | None, Path]]) -> list[SavedTensor]:
    return [tensor for name, path in files for tensor in ([_npy_tensor(name, path)] if name else _cann_tensors(path))]


def _read_elements(path: Path, type: TensorType) -> np.ndarray:
    with storage_errors("cannot read a file", path):
        size = path.stat().st_size
        if size == type.nbytes > SMALL:
            return np.memmap(path, type.dtype.numpy, "r", shape=type.shape)
    if size == type.nbytes:
        return np.ndarray(type.shape, type.dtype.numpy, read_bytes(path, SMALL))
    rows = {"expected": f"{type.nbytes} bytes", "found": f"{size} bytes"}
    raise DataError("the size of a file does not match its name", file=path, type=type, **rows)


def _npy_tensor(name: NpyName, path: Path) -> SavedTensor:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        dtype = dt.of(array.dtype)
    except (ValueError, EOFError, OSError, AttributeError, *_HEADER_ERRORS) as reason:
        what = reason.what if isinstance(reason, ConfigError) else reason
        raise DataError("not a tensor in a .npy file", file=path, reason=what) from None
    return SavedTensor(name.io, name.slot, path, dtype, array.shape, name.format, (), partial(np.asanyarray, array))


def _cann_tensors(path: Path) -> Iterator[SavedTensor]:
    found = cann_file.read(path)
    for io, tensors in ((INPUT, found.inputs), (OUTPUT, found.outputs)):
        for slot, x in enumerate(tensors):
            yield SavedTensor(io, slot, path, x.dtype, x.shape, x.format, x.original, partial(np.asanyarray, x.array))


def read_text(path: Path) -> str:
    """The content of a UTF-8 file. Raises DataError."""
    try:
        return read_bytes(path, TEXT_LIMIT).decode()
    except UnicodeDecodeError:
        raise DataError("not a text file", file=path) from None
