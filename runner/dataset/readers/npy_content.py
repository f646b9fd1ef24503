"""Arrays in numpy's own files: a `.npz`, or a folder of `.npy` that are memory-mapped.

Files are untrusted: nothing is unpickled, and element type, shape and size are checked by the header before memory is
taken.
"""

import math
import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import numpy as np
from numpy.lib import format as npy_format

from runner.dataset.formats.content import missing
from runner.errors import ConfigError, DataError, RunnerError, known_names
from runner.host import files
from runner.host.machine import require_memory

MAX_FILE_BYTES = 1 << 42  # memory-mapped files may be larger than the memory
PIECE_BYTES = 1 << 24  # read at a time from a compressed array
MAX_ARRAYS = 1000
MAX_AXES = 8
KINDS = "biuf"
ALLOWED_TYPES = "bool, integers, float16, float32 or float64, in this machine's byte order"
DAMAGED = "save the arrays again with numpy.savez or numpy.save"
DAMAGES = ValueError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError, KeyError


class NpyHeader(NamedTuple):
    """What the head of a `.npy` says, and the number of bytes before the values."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    is_fortran: bool
    offset: int

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""
        return math.prod(self.shape) * self.dtype.itemsize


class NpyFolder:
    """The arrays in the `.npy` files of a folder, memory-mapped. Raises DataError without such a folder or files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            found = sorted(entry.name for entry in os.scandir(path) if entry.name.endswith(".npy"))
        except OSError:
            found = []
        if not found:
            raise missing(path, "NAME.npy for each array", "set data_dir to the folder of the arrays")
        self.names = tuple(name.removesuffix(".npy") for name in found)

    def read(self, name: str) -> np.ndarray:
        """An array, read-only. Raises DataError for a damaged file or another element type, ConfigError for a name."""
        _require_known(name, self.names, self.path)
        return map_array(self.path / f"{name}.npy")

    def header(self, name: str) -> NpyHeader:
        """The header of an array. Raises as `read`."""
        _require_known(name, self.names, self.path)
        with files.open_regular(self.path / f"{name}.npy", MAX_FILE_BYTES) as file:
            return read_header(file, self.path / f"{name}.npy")


class NpzFile:
    """The arrays in a `.npz`. Raises DataError for a file that is missing or no such file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._archive() as archive:
            members = archive.namelist()
        if not 0 < len(members) <= MAX_ARRAYS or len(set(members)) != len(members):
            raise _damaged(path, f"1 to {MAX_ARRAYS} arrays of different names", f"{len(members)} files")
        self.names = tuple(name.removesuffix(".npy") for name in members)

    def read(self, name: str) -> np.ndarray:
        """An array, in memory. Raises as that of NpyFolder, also ConfigError when there is not enough memory."""
        _require_known(name, self.names, self.path)
        with self._archive() as archive, archive.open(f"{name}.npy") as member:
            header = read_header(member, self.path, name)
            require_memory(header.nbytes, file=self.path, array=name)
            values = np.empty(header.nbytes, np.uint8)
            count = 0
            while part := member.read(PIECE_BYTES):  # reading to the end also checks the checksum
                if count + len(part) > header.nbytes:
                    break
                values[count : count + len(part)] = np.frombuffer(part, np.uint8)
                count += len(part)
            if part or count < header.nbytes:
                found = "more" if part else f"{count}"
                raise _damaged(self.path, f"{header.nbytes} bytes of values", found, name)
        return _shaped(values, header)

    def header(self, name: str) -> NpyHeader:
        """The header of an array. Raises as `read`."""
        _require_known(name, self.names, self.path)
        with self._archive() as archive, archive.open(f"{name}.npy") as member:
            return read_header(member, self.path, name)

    @contextmanager
    def _archive(self) -> Iterator[zipfile.ZipFile]:
        with files.open_regular(self.path, MAX_FILE_BYTES) as file:
            try:
                with zipfile.ZipFile(file) as archive:
                    yield archive
            except RunnerError:
                raise
            except (*DAMAGES, RuntimeError, OSError) as reason:  # RuntimeError: encrypted
                raise _damaged(self.path, "a .npz file", _reason(reason)) from None


Arrays = NpyFolder | NpzFile


def map_array(path: Path) -> np.ndarray:
    """The array of a `.npy` file, memory-mapped and read-only. Raises DataError for a damaged file."""
    with files.open_regular(path, MAX_FILE_BYTES) as file:
        header = read_header(file, path)
        size = os.fstat(file.fileno()).st_size
    if size != header.offset + header.nbytes:
        raise _damaged(path, f"{header.offset + header.nbytes} bytes", f"{size} bytes")
    if header.nbytes == 0:
        raise _damaged(path, "at least one value", f"the shape {header.shape}")
    order: Literal["F", "C"] = "F" if header.is_fortran else "C"
    return np.asarray(np.memmap(path, header.dtype, "r", header.offset, header.shape, order))


def read_header(file: IO[bytes], path: Path, name: str | None = None) -> NpyHeader:
    """The header of a `.npy`. Raises DataError for anything else, and for element types that samples cannot have."""
    try:
        version = npy_format.read_magic(file)
        reader = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}[version]
        shape, is_fortran, dtype = reader(file)
    except RunnerError:
        raise
    except Exception as reason:  # a parser of Python's literals has many
        raise _damaged(path, "an array of numpy, version 1 or 2", _reason(reason), name) from None
    if dtype.kind not in KINDS or dtype.itemsize > 8 or not dtype.isnative:
        repair = "convert it with astype and save it again; arrays of objects would have to be unpickled"
        rows = {"array": name, "expected": ALLOWED_TYPES, "found": str(dtype), "repair": repair}
        raise DataError("an array has an element type that samples cannot have", file=path, **rows)
    if len(shape) > MAX_AXES or any(type(n) is not int or n < 0 for n in shape) or math.prod(shape) >= 1 << 48:
        raise _damaged(path, f"at most {MAX_AXES} axes", f"the shape {str(shape)[:100]}", name)
    return NpyHeader(dtype, shape, is_fortran, file.tell())


def _shaped(values: np.ndarray, header: NpyHeader) -> np.ndarray:
    typed = values.view(header.dtype)
    return typed.reshape(header.shape[::-1]).T if header.is_fortran else typed.reshape(header.shape)


def _require_known(name: str, names: tuple[str, ...], path: Path) -> None:
    if name not in names:
        raise ConfigError("no array of this name", array=name, file=path, **known_names(name, names))


def _damaged(path: Path, expected: str, found: str, name: str | None = None) -> DataError:
    rows = {"array": name, "expected": expected, "found": found, "repair": DAMAGED}
    return DataError("a data file is not as expected", file=path, **rows)


def _reason(reason: Exception) -> str:
    text = str(reason).strip().splitlines()
    return text[0][:200] if text else type(reason).__name__
