"""The files of one iteration of a dump: parameters, constants and operators, and their tensors one by one.

Elements are mapped from the files and read when somebody looks at them. Operators of asynchronous dumps have the full
names that the caller knows; the others keep their sanitised ones.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from runner import dtype as dt
from runner.errors import ConfigError, DataError
from runner.host.files import names, read_bytes, storage_error
from runner.observe.dump import cann_file, formats, mapping_csv
from runner.observe.dump.file_names import DEFAULT_FORMAT, INPUT, OUTPUT, PARAMETER, AsyncName, NpyName, SyncName
from runner.types import Shape, TensorType

TEXT_LIMIT = 1 << 28  # bytes of a table of names
SMALL = 1 << 20  # bytes that are sooner read than mapped
PLAIN = (DEFAULT_FORMAT, *formats.PLAIN)
BATCH_LAST, TILED = "CHWN", "22CHWN"
VIEWS = (*PLAIN, BATCH_LAST, TILED)  # formats without padding
OVERFLOW = "Opdebug"  # the operator type of overflow records
_NUMBER = re.compile(r"op(\d{1,18})$")


@dataclass(frozen=True)
class Saved:
    """A tensor in a file. `shape` is as it lies; `original` as the network means it, or () when the file is silent."""

    io: str
    slot: int
    path: Path
    dtype: dt.DType
    shape: Shape
    format: str
    original: Shape
    lying: Callable[[], np.ndarray]  # the elements as they lie; raises DataError

    @property
    def label(self) -> str:
        """As in names of files: `output_0`."""
        return f"{self.io}_{self.slot}"

    @property
    def type(self) -> TensorType:
        """As the network means it, as far as that is known."""
        shape = self.shape
        if self.format == BATCH_LAST:
            shape = (*shape[-1:], *shape[:-1])
        elif self.format == TILED and len(shape) == 6:
            shape = shape[5], shape[2], 2 * shape[3], 2 * shape[4]
        elif self.original and self.format not in PLAIN:
            shape = self.original
        return TensorType(self.dtype, shape)

    def array(self) -> np.ndarray:
        """The elements as the network means them. Raises DataError for a damaged file and an unknown format."""
        lying = self.lying()
        try:
            if self.format == TILED and lying.ndim == 6:
                return lying.transpose(5, 2, 3, 0, 4, 1).reshape(self.type.shape)
            plain = self.format in PLAIN
            return lying if plain else formats.to_nchw(lying, self.format, self.original)
        except DataError as error:
            raise error.add(file=self.path) from None


@dataclass(frozen=True)
class Entry:
    """A parameter, a constant, or an operator with what it took and made."""

    name: str
    is_held: bool  # a parameter or constant
    read: Callable[[], Sequence[Saved]]

    def tensors(self) -> dict[str, Saved]:
        """By label: inputs, then outputs. Raises DataError for damaged files."""
        return {saved.label: saved for saved in sorted(self.read(), key=lambda saved: (saved.io, saved.slot))}

    @property
    def number(self) -> int:
        """N of `op{N}`: the place in the order of execution, where nothing else tells it."""
        found = _NUMBER.search(self.name)
        return int(found[1]) if found else 1 << 60


def entries_of(folder: Path, full: dict[str, str]) -> Iterator[Entry]:
    """What the files of an iteration hold; `full` gives full names for sanitised ones."""
    grouped: dict[str, list[tuple[SyncName, Path]]] = {}
    executions: dict[tuple[str, str], dict[AsyncName, list[tuple[NpyName | None, Path]]]] = {}
    shortened = mapping_csv.read(folder)
    for file in names(folder):
        path, name = folder / file, shortened.get(file, file)
        if file.startswith("."):  # not finished, and perhaps gone in a moment
            continue
        if sync := SyncName.parse(name, path.stat().st_size):
            grouped.setdefault(sync.name, []).append((sync, path))
        elif operator := AsyncName.parse(name):
            executions.setdefault((operator.op_type, operator.op_name), {})[operator] = [(None, path)]
        elif npy := NpyName.parse(name):
            key = npy.operator.op_type, npy.operator.op_name
            executions.setdefault(key, {}).setdefault(npy.operator, []).append((npy, path))
    for name, files in grouped.items():
        yield Entry(name, "/" not in name, partial(_raws, files))
    for (kind, name), found in executions.items():
        if kind != OVERFLOW:
            parts = found[max(found, key=lambda operator: operator.timestamp)]  # the last run that wrote here
            yield _executed(full.get(name, name), kind == PARAMETER, parts)


def _executed(name: str, is_held: bool, files: list[tuple[NpyName | None, Path]]) -> Entry:
    def read() -> list[Saved]:
        return [saved for npy, path in files for saved in ([_npy(npy, path)] if npy else _cann(path))]

    return Entry(name, is_held, read)


def _raws(files: Sequence[tuple[SyncName, Path]]) -> list[Saved]:
    kept = [(name, path, name.type) for name, path in files]
    return [
        Saved(name.io, name.slot, path, kind.dtype, kind.shape, name.format, (), partial(_mapped, path, kind))
        for name, path, kind in kept
    ]


def _mapped(path: Path, kind: TensorType) -> np.ndarray:
    shape, element = kind.shape, kind.dtype.numpy
    try:
        size = path.stat().st_size
        if size == kind.nbytes and size > SMALL:
            return np.memmap(path, element, "r", shape=shape)
    except OSError as reason:
        raise storage_error("cannot read a file", path, reason) from reason
    if size == kind.nbytes:
        return np.ndarray(shape, element, read_bytes(path, SMALL))
    rows = {"expected": f"{kind.nbytes} bytes", "found": f"{size} bytes"}
    raise DataError("a file has another size than its name says", file=path, type=kind, **rows)


def _npy(name: NpyName, path: Path) -> Saved:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        kind = dt.of(array.dtype)
    except (ValueError, EOFError, OSError, AttributeError) as reason:
        what = reason.what if isinstance(reason, ConfigError) else reason
        raise DataError("not a tensor in a .npy file", file=path, reason=what) from None
    return Saved(name.io, name.slot, path, kind, array.shape, name.format, (), partial(_same, array))


def _cann(path: Path) -> Iterator[Saved]:
    found = cann_file.read(path)
    for io, tensors in ((INPUT, found.inputs), (OUTPUT, found.outputs)):
        for slot, x in enumerate(tensors):
            yield Saved(io, slot, path, x.dtype, x.shape, x.format, x.original, partial(_same, x.array))


def _same(array: np.ndarray) -> np.ndarray:
    return array


def read_text(path: Path) -> str:
    try:
        return read_bytes(path, TEXT_LIMIT).decode()
    except UnicodeDecodeError:
        raise DataError("not a text file", file=path) from None
