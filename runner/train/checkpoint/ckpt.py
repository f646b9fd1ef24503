"""The reference's `.ckpt` files: a sequence of protobuf messages, one per parameter (spec section 6.3).

    Checkpoint { repeated Value value = 1; }
    Value { string tag = 1; TensorProto tensor = 2; }

Protected files end with the checksum of MindSpore 2.3 (`crc_check=True`): the word `crc_num` and, in ten bytes,
big-endian, the CRC-32 of all bytes before it. A file that is cut between two parameters has lost its checksum and would
be read as one without, so protected files of ours begin with their size, in a field that other readers skip as unknown.
The package `protobuf` would copy each array and is limited to 2 GB; here arrays are written and read without copies.
"""

import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import IO

import numpy as np

from runner import dtype as dt
from runner.errors import DataError
from runner.host import files, protobuf
from runner.host.protobuf import (
    FIXED64,
    LENGTH,
    TensorMessage,
    fields,
    key,
    message,
    required_bytes,
    required_text,
    varint,
)
from runner.train.checkpoint.arrays import plain_arrays

SLICE_BYTES = 512 << 20
FILE_LIMIT = 64 << 30  # maximal size of a file to read, in bytes
MODE = 0o400
REPAIR = "save it again, or fetch another copy"
TYPES = {kind.name: kind for kind in dt.ALL}
TEXT = "str"  # a type of MindSpore 2: annotations of the parameters
CRC = b"crc_num"
CRC_BYTES = len(CRC) + 10
FILE_SIZE = 1001  # our own field: the bytes of a whole protected file


def write(path: Path, arrays: Mapping[str, np.ndarray], *, crc_check: bool) -> None:
    """Write a `.ckpt` file, atomically; with `crc_check` a protected one, otherwise the bytes of MindSpore r1.2.

    Raises ConfigError for what cannot be saved, or StorageError.
    """
    parts = [part for name, array in plain_arrays(arrays).items() for part in _messages(name, array)]

    def content(file: IO[bytes]) -> None:
        checksum = 0
        for part in [_size_field(parts), *parts] if crc_check else parts:
            file.write(part)
            checksum = zlib.crc32(part, checksum) if crc_check else 0
        if crc_check:
            file.write(CRC + checksum.to_bytes(10, "big"))

    files.write_atomically(path, content, MODE)


def read(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a `.ckpt` file by name, as views of its content, without the text annotations of MindSpore 2.

    A checksum is verified if there is one. Without it, changed numbers and a cut between two parameters are not
    detected. Raises DataError with the file, and the parameter or position, when it is damaged or has unsupported
    content.
    """
    try:
        messages = _verified(memoryview(files.read_bytes(path, FILE_LIMIT)))
        arrays = {}
        for name, message in _parameters(messages):
            if name in arrays:
                raise DataError("a checkpoint names a parameter twice", parameter=name)
            if message.kind != TEXT:
                arrays[name] = _array(name, message)
        return arrays
    except DataError as error:
        raise error.add(file=path, repair=REPAIR) from None


def _messages(name: str, array: np.ndarray) -> Iterator[bytes | memoryview]:
    """The messages of one parameter, in parts: the header and the content of each."""
    elements = array.reshape(-1).view(np.uint8).data
    kind, dims = dt.of(array.dtype), array.shape or (0,)
    for start in range(0, max(1, len(elements)), SLICE_BYTES):
        piece = elements[start : start + SLICE_BYTES]
        tensor = protobuf.head(kind, dims, len(piece))
        value = message((1, name)) + key(2, LENGTH) + varint(len(tensor) + len(piece)) + tensor
        yield key(1, LENGTH) + varint(len(value) + len(piece)) + value
        yield piece


def _array(name: str, message: TensorMessage) -> np.ndarray:
    try:
        return protobuf.decode(message, TYPES.get(message.kind))
    except DataError as error:
        raise error.add(parameter=name) from None


def _parameters(messages: memoryview) -> Iterator[tuple[str, TensorMessage]]:
    """The parameters of a file by name; consecutive messages with one tag are slices, which are merged."""
    # Later versions may add other fields.
    pieces = [_parameter(required_bytes(value)) for number, value in fields(messages) if number == 1]
    if not pieces:
        raise DataError("a checkpoint without parameters")
    for name, slices in groupby(pieces, itemgetter(0)):
        first, *rest = [message for _, message in slices]
        if any((one.dims, one.kind) != (first.dims, first.kind) for one in rest):
            raise DataError("slices of one parameter have several types", parameter=name)
        whole = memoryview(b"".join(one.content for one in (first, *rest))) if rest else first.content
        yield name, first._replace(content=whole)


def _parameter(value: memoryview) -> tuple[str, TensorMessage]:
    parts = dict(fields(value))
    name = required_text(parts.get(1))
    if 3 in parts:
        raise DataError("runner has no map parameters", parameter=name)
    return name, protobuf.parse(required_bytes(parts.get(2)))


def _size_field(parts: Sequence[bytes | memoryview]) -> bytes:
    """The first field of a protected file with these messages."""
    start = key(FILE_SIZE, FIXED64)
    return start + struct.pack("<Q", len(start) + 8 + sum(map(len, parts)) + CRC_BYTES)


def _verified(content: memoryview) -> memoryview:
    """The messages of a file; its size and its checksum are verified if it has them. Raises DataError."""
    start = key(FILE_SIZE, FIXED64)
    is_protected = content[: len(start)] == start and len(content) >= len(start) + 8
    if is_protected and (size := struct.unpack_from("<Q", content, len(start))[0]) != len(content):
        rows = {"expected": f"{size} bytes", "found": f"{len(content)} bytes"}
        raise DataError("a checkpoint is incomplete, or has additional bytes", **rows)
    if content[-CRC_BYTES:-10] != CRC:
        if is_protected:
            raise DataError("the checksum of a checkpoint is missing")
        return content
    expected, found = int.from_bytes(content[-10:], "big"), zlib.crc32(content[:-CRC_BYTES])
    if expected != found:
        raise DataError("the checksum of a checkpoint does not match", expected=expected, found=found)
    return content[:-CRC_BYTES]
