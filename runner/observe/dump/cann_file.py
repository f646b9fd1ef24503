"""The file of an asynchronous dump: one operator with its operands and results (spec section 3.8).

    uint64 H | H bytes of the message DumpData, without data | inputs | outputs | buffers | spaces       version 2
    DumpData with the data inside                                                                        version 1

All numbers are little-endian, tensors lie in C order without gaps, and nothing follows the last one. The package
`protobuf` would copy the tensors of version 1 (0.5 s and 1.2 GB for 400 MB, which are mapped here in 1 ms), and not say
where a file is damaged.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from runner import dtype as dt
from runner.errors import ConfigError, DataError, nearest
from runner.host import tensor_message
from runner.host.files import storage_error
from runner.host.protobuf import bytes_field, number_field, text_field, varint
from runner.observe.dump import cann_message as msg
from runner.observe.dump.cann_message import BUFFER, FORMATS, INPUT, OUTPUT, PLACES, SIDES, SPACE, Message, Values
from runner.types import Shape

HEADER_LIMIT = 1 << 24  # bytes
_CODES = {kind: code for code, kind in msg.TYPES.items()}
_T = TypeVar("_T")


class Stored(NamedTuple):
    """A tensor as a file describes it.

    `format` is one of FORMATS; a number that has no name here is `FORMAT_41`. `shape` is as it lies; `original` as the
    network means it, or () when the file does not say.
    """

    dtype: dt.DType
    format: str
    shape: Shape
    original: Shape

    @property
    def nbytes(self) -> int:
        """Bytes that the elements take."""
        return math.prod(self.shape) * self.dtype.size


@dataclass(frozen=True, eq=False)
class Loaded:
    """A tensor of a file that was opened: a `Stored` and its elements, shaped as they lie.

    `array` is mapped and read-only: whoever looks at elements reads them from the file. `groups` are those of the
    convolution whose weights it is, for FRACTAL_Z.
    """

    dtype: dt.DType
    format: str
    shape: Shape
    original: Shape
    array: np.ndarray
    groups: int = 1


@dataclass(frozen=True, eq=False)
class DumpFile:
    """One execution of one operator. `dump_time` is in microseconds.

    `buffers` are pieces of the device's L1 memory, `spaces` of its working space.
    """

    op_name: str
    dump_time: int
    inputs: tuple[Loaded, ...]
    outputs: tuple[Loaded, ...]
    buffers: tuple[memoryview, ...]
    spaces: tuple[memoryview, ...] = ()


def header(op_name: str, microseconds: int, inputs: Sequence[Stored], outputs: Sequence[Stored]) -> bytes:
    """What a file begins with: length and DumpData (version 2.0). All inputs follow, then all outputs.

    Raises ConfigError for a format that the files do not know.
    """
    message = b"".join(
        (
            text_field(msg.VERSION, "2.0"),
            number_field(msg.TIME, microseconds),
            *(bytes_field(OUTPUT, _described(tensor, OUTPUT)) for tensor in outputs),
            *(bytes_field(INPUT, _described(tensor, INPUT)) for tensor in inputs),
            text_field(msg.NAME, op_name),
        )
    )
    return len(message).to_bytes(8, "little") + message


def read(path: Path, version: Literal[1, 2] | None = None) -> DumpFile:
    """Open a dump file; None finds out which version of the layout it has. Elements are read when they are looked at.

    Raises DataError with the file, the place, and what was expected when it is missing, cut, longer than its header
    says, or describes tensors that cannot be or that numpy has no type for; StorageError when it cannot be read.
    """
    content = _mapped(path)
    try:
        if version is None:
            version = _version(content)
        if version == 1:
            return _file(Message(content), _Elements(None))
        message, rest = _split(content)
        return _file(Message(message), _Elements(rest))
    except DataError as error:
        raise error.add(file=path) from None


def _described(tensor: Stored, side: int) -> bytes:
    if tensor.format not in FORMATS:
        raise ConfigError("not a format of dump files", value=tensor.format, nearest=nearest(tensor.format, FORMATS))
    parts = [
        number_field(msg.DATA_TYPE, _CODES[tensor.dtype]),
        number_field(msg.FORMAT, FORMATS.index(tensor.format)),
        bytes_field(msg.SHAPE, _dims(tensor.shape)),
        number_field(SIDES[side].size, tensor.nbytes),
    ]
    if tensor.original:
        parts.append(bytes_field(SIDES[side].original, _dims(tensor.original)))
    return b"".join(parts)


def _dims(shape: Shape) -> bytes:
    return bytes_field(msg.DIM, b"".join(map(varint, shape))) if shape else b""


def _mapped(path: Path) -> memoryview:
    try:
        if not path.is_file():
            raise DataError("not a regular file" if path.exists() else "a file is missing", file=path)
        # A file of no bytes cannot be mapped.
        return np.memmap(path, np.uint8, "r").data if path.stat().st_size else memoryview(b"")
    except DataError:
        raise
    except OSError as reason:
        raise storage_error("cannot read a file", path, reason) from reason


def _version(content: memoryview) -> Literal[1, 2]:
    """A length that is not beyond all limits ends with five zero bytes; no DumpData has such a beginning."""
    length = int.from_bytes(content[:8], "little")
    if length <= HEADER_LIMIT or len(content) < 8:
        return 2
    try:
        Message(content)
    except DataError as error:
        raise DataError(
            "neither the length of a header nor a message DumpData",
            as_a_length=f"{length} bytes in a file of {len(content)} bytes",
            as_a_message="; ".join((error.what, *(f"{label} {value}" for label, value in error.rows.items()))),
        ) from None
    return 1


def _split(content: memoryview) -> tuple[memoryview, memoryview]:
    """The message, and the elements behind it."""
    if len(content) < 8:
        raise DataError("the file is too short for a header", expected="8 bytes or more", found=f"{len(content)} bytes")
    end = 8 + int.from_bytes(content[:8], "little")
    if not 8 < end <= len(content):
        found = f"{len(content)} bytes"
        raise DataError("the header does not fit the file", length=end - 8, expected=f"{end} bytes", found=found)
    if end - 8 > HEADER_LIMIT:
        raise DataError("the header is too long", expected=f"at most {HEADER_LIMIT} bytes", found=end - 8)
    return content[8:end], content[end:]


class _Elements:
    """Hands out the bytes of one tensor after the other: what follows the message, or None when each has its own."""

    def __init__(self, rest: memoryview | None) -> None:
        self._rest = rest

    def take(self, part: Values, side: int) -> memoryview:
        expected = msg.number(part, SIDES[side].size)
        room = msg.view(part, SIDES[side].data) if self._rest is None else self._rest
        if self._rest is None and not expected:
            return room
        if expected > len(room) or (self._rest is None and expected < len(room)):
            raise DataError("the elements are cut", expected=f"{expected} bytes", found=f"{len(room)} bytes")
        if self._rest is not None:
            self._rest = self._rest[expected:]
        return room[:expected]

    def end(self) -> None:
        if self._rest:
            raise DataError("the file is longer than its header says", left_over=f"{len(self._rest)} bytes")


def _file(message: Message, elements: _Elements) -> DumpFile:
    def each(side: int, load: Callable[[Values, int, memoryview], _T]) -> tuple[_T, ...]:
        made = []
        for position, part in enumerate(message.parts[side]):
            try:
                made.append(load(part, side, elements.take(part, side)))
            except DataError as error:
                raise error.add(place=f"{PLACES[side]} {position}") from None
        return tuple(made)

    name, time = msg.text(message.values, msg.NAME), msg.number(message.values, msg.TIME)
    tensors = each(INPUT, _loaded), each(OUTPUT, _loaded)
    made = DumpFile(name, time, *tensors, each(BUFFER, _plain), each(SPACE, _plain))
    elements.end()
    return made


def _plain(part: Values, side: int, elements: memoryview) -> memoryview:
    return elements


def _loaded(part: Values, side: int, elements: memoryview) -> Loaded:
    kind, shape = msg.element_type(part), msg.shape(part, msg.SHAPE)
    if not shape and not elements:
        shape = (0,)  # an operand that was left out
    original, groups = msg.shape(part, SIDES[side].original), msg.number(part, SIDES[side].sub_format)
    array = tensor_message.array(kind, shape, elements)
    return Loaded(kind, msg.format_name(part), shape, original, array, groups or 1)
