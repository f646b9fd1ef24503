"""The reference's `.ckpt` files: one protobuf message per parameter, one after the other (spec section 6.3).

    Checkpoint { repeated Value value = 1; }
    Value { string tag = 1; TensorProto tensor = 2; }
    TensorProto { repeated int64 dims = 1; string tensor_type = 2; bytes tensor_content = 3; }

The format has no checksum: changed numbers are not noticed, except in files of MindSpore 2 with `crc_check=True`.
"""

import math
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np

from runner import dtype as dt
from runner.errors import DataError
from runner.host import files
from runner.host.protobuf import LENGTH, VARINT, fields, key, prefixed, read_varint, varint
from runner.train.checkpoint.arrays import plain_arrays

SLICE_BYTES = 512 << 20
FILE_LIMIT = 64 << 30  # of what is read, in bytes
MODE = 0o400
REPAIR = "save it again, or fetch another copy"
TYPES = {kind.name: kind for kind in dt.ALL}
TEXT = "str"  # a type of MindSpore 2: notes beside the parameters
CRC = b"crc_num"  # and how it marks a checksum: this word and ten bytes at the end
MOST_AXES = 32


def write(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a `.ckpt` file, atomically. Raises ConfigError for what cannot be saved, or StorageError."""
    plain = plain_arrays(arrays)

    def content(file: IO[bytes]) -> None:
        for name, array in plain.items():
            for part in _messages(name, array):
                file.write(part)

    files.write_atomically(path, content, MODE)


def read(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a `.ckpt` file by name; they are views of what was read. Text notes of MindSpore 2 are left out.

    Raises DataError with the file, and the parameter or position, when it is damaged or has what runner cannot read.
    """
    try:
        content = _without_checksum(memoryview(files.read_bytes(path, FILE_LIMIT)))
        arrays = {}
        for parameter in _parameters(content):
            if parameter.name in arrays:
                raise DataError("a checkpoint names a parameter twice", parameter=parameter.name)
            if parameter.kind != TEXT:
                arrays[parameter.name] = parameter.array()
        return arrays
    except DataError as error:
        raise error.add(file=path, repair=REPAIR) from None


def _messages(name: str, array: np.ndarray) -> Iterator[bytes | memoryview]:
    """The messages of one parameter, in parts: what stands before the content, and the content."""
    elements = array.reshape(-1).view(np.uint8).data
    kind = dt.of(array.dtype).name.encode()
    dims = b"".join(key(1, VARINT) + varint(length) for length in array.shape or (0,))
    for start in range(0, max(1, len(elements)), SLICE_BYTES):
        piece = elements[start : start + SLICE_BYTES]
        tensor = dims + prefixed(2, kind) + key(3, LENGTH) + varint(len(piece))
        value = prefixed(1, name.encode()) + key(2, LENGTH) + varint(len(tensor) + len(piece)) + tensor
        yield key(1, LENGTH) + varint(len(value) + len(piece)) + value
        yield piece


@dataclass
class _Parameter:
    """What the messages with one tag say."""

    name: str
    dims: list[int]
    kind: str
    pieces: list[memoryview] = field(default_factory=list)

    def array(self) -> np.ndarray:
        """The array, after its size was compared. Raises DataError."""
        if self.kind not in TYPES:
            known = ", ".join(TYPES)
            raise DataError("unknown element type", parameter=self.name, found=ascii(self.kind), allowed=known)
        kind, found = TYPES[self.kind].numpy, sum(map(len, self.pieces))
        shape = [] if self.dims == [0] and found else self.dims  # how the reference writes a scalar
        if len(shape) > MOST_AXES or any(length >> 63 for length in shape):
            raise DataError("impossible shape of a parameter", parameter=self.name, found=shape)
        if (size := math.prod(shape) * kind.itemsize) != found:
            rows = {"parameter": self.name, "shape": shape, "expected": f"{size} bytes", "found": f"{found} bytes"}
            raise DataError("a parameter has another size than its shape", **rows)
        whole = self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)
        if kind == np.bool_ and np.frombuffer(whole, np.uint8).max(initial=0) > 1:
            raise DataError("a Bool is neither 0 nor 1", parameter=self.name)
        try:
            return np.frombuffer(whole, kind.newbyteorder("<")).astype(kind, copy=False).reshape(shape)
        except ValueError as reason:
            raise DataError("impossible shape of a parameter", parameter=self.name, found=reason) from None


def _parameters(content: memoryview) -> Iterator[_Parameter]:
    """One after the other; slices, which are neighbours with one tag, are put together."""
    current: _Parameter | None = None
    for number, value in fields(content):
        if number != 1:
            continue  # a field that later versions may add
        piece = _parameter(_bytes(value))
        if current is None or piece.name != current.name:
            if current is not None:
                yield current
            current = piece
        elif (piece.dims, piece.kind) != (current.dims, current.kind):
            raise DataError("slices of one parameter have several types", parameter=piece.name)
        else:
            current.pieces += piece.pieces
    if current is None:
        raise DataError("a checkpoint without parameters")
    yield current


def _parameter(value: memoryview) -> _Parameter:
    parts = dict(fields(value))
    name = _text(parts.get(1))
    if 3 in parts:
        raise DataError("runner has no map parameters", parameter=name)
    dims: list[int] = []
    rest: dict[int, int | memoryview] = {}
    for number, inner in fields(_bytes(parts.get(2))):
        if number == 1:
            dims += [inner] if isinstance(inner, int) else _packed(inner)
        else:
            rest[number] = inner
    return _Parameter(name, dims, _text(rest.get(2)), [_bytes(rest.get(3))])


def _packed(view: memoryview) -> Iterator[int]:
    """Numbers one after the other, as newer writers may put them."""
    at = 0
    while at < len(view):
        number, at = read_varint(view, at)
        yield number


def _bytes(value: int | memoryview | None) -> memoryview:
    if not isinstance(value, memoryview):
        raise DataError("a message of a checkpoint misses a part")
    return value


def _text(value: int | memoryview | None) -> str:
    try:
        return str(_bytes(value), "utf-8")
    except UnicodeDecodeError:
        raise DataError("a name is not UTF-8") from None


def _without_checksum(content: memoryview) -> memoryview:
    """The messages, compared with the checksum of MindSpore 2 when there is one. Raises DataError."""
    if content[-17:-10] != CRC:
        return content
    expected, found = int.from_bytes(content[-10:], "big"), zlib.crc32(content[:-17])
    if expected != found:
        raise DataError("the checksum of a checkpoint is another", expected=expected, found=found)
    return content[:-17]
