"""The wire format of protobuf: varints, and fields of a message. Source: protobuf.dev/programming-guides/encoding.

The package `protobuf` is not used: it copies every message (a checkpoint of 500 MB takes 1.5 GB more and four times as
long), is limited to 2 GB, omits fields with the value zero, which MindSpore writes, and reports neither the field
nor the offset of an error in a damaged file.
"""

import math
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from runner.dtype import ALL, DType, bool_
from runner.errors import DataError

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
FIXED_SIZES = {FIXED64: 8, FIXED32: 4}
VARINT_BYTES = 10


def varint(number: int) -> bytes:
    """A non-negative number in groups of seven bits, the lowest first.

    >>> varint(300).hex()
    'ac02'
    """
    groups = bytearray()
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    groups.append(number)
    return bytes(groups)


def key(number: int, kind: int) -> bytes:
    """The tag of a field: its number and its wire type."""
    return varint(number << 3 | kind)


Field = tuple[int, int | str | bytes | float | np.float32]


def message(*fields: Field) -> bytes:
    """A message of fields (number, value) in this order; bytes may be a nested message, and strings are in UTF-8.

    An integer, a bool or an enumeration is a varint (a negative one takes ten bytes), a float a double, and a number
    of numpy's float32 a float.

    >>> message((1, 150), (2, message((1, "a")))).hex()
    '08960112030a0161'
    """
    return b"".join([_field(number, value) for number, value in fields])


def _field(number: int, value: int | str | bytes | float | np.float32) -> bytes:
    if isinstance(value, np.float32):
        return key(number, FIXED32) + struct.pack("<f", value)
    if isinstance(value, int):
        return key(number, VARINT) + varint(value & (1 << 64) - 1)
    if isinstance(value, float):
        return key(number, FIXED64) + struct.pack("<d", value)
    content = value.encode() if isinstance(value, str) else value
    return key(number, LENGTH) + varint(len(content)) + content


def read_varint(data: memoryview, at: int) -> tuple[int, int]:
    """The number at a position, and the position after it. Raises DataError if it is truncated or above 64 bits."""
    number = 0
    for position in range(at, min(at + VARINT_BYTES, len(data))):
        byte = data[position]
        number |= (byte & 0x7F) << 7 * (position - at)
        if byte < 0x80:
            if number >> 64:
                break
            return number, position + 1
    raise DataError("a number is truncated or has more than 64 bits", offset_in_message=at)


def fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """The number and the value of each field: a view of its bytes if it is length-delimited, otherwise an int.

    A length is checked before it is used. Raises DataError with the position in `data`.
    """
    return ((number, value) for _, number, value in located_fields(data))


def located_fields(data: memoryview) -> Iterator[tuple[int, int, int | memoryview]]:
    """The `fields` with the position in `data` after each of them first."""
    at = 0
    while at < len(data):
        start = at
        tag, at = read_varint(data, at)
        number, kind = tag >> 3, tag & 7
        if not 0 < number < 1 << 29:
            raise DataError(f"invalid field number {number}", offset_in_message=start)
        if kind == VARINT:
            value, at = read_varint(data, at)
            yield at, number, value
            continue
        if kind == LENGTH:
            size, at = read_varint(data, at)
        elif kind in FIXED_SIZES:
            size = FIXED_SIZES[kind]
        else:
            raise DataError("unknown wire type", offset_in_message=start, found=kind)
        if size > len(data) - at:
            raise DataError(
                "a field is truncated",
                offset_in_message=start,
                expected=f"{size} bytes",
                found=f"{len(data) - at} bytes",
            )
        content = data[at : at + size]
        at += size
        yield at, number, content if kind == LENGTH else int.from_bytes(content, "little")


def repeated_numbers(value: int | memoryview) -> Iterator[int]:
    """The integers of one occurrence of a repeated field: a single one, or a packed sequence of them."""
    if isinstance(value, int):
        yield value
        return
    at = 0
    while at < len(value):
        number, at = read_varint(value, at)
        yield number


def required_bytes(value: int | memoryview | None) -> memoryview:
    """A required length-delimited field. Raises DataError if it is missing."""
    if not isinstance(value, memoryview):
        raise DataError("a required field of a message is missing")
    return value


def required_text(value: int | memoryview | None) -> str:
    """A required string field. Raises DataError if it is missing or not UTF-8."""
    try:
        return str(required_bytes(value), "utf-8")
    except UnicodeDecodeError:
        raise DataError("a text is not UTF-8") from None


# Tensors in MindSpore's binary files: the message of checkpoints and print files, and the encoding of elements.
#
# TensorProto { repeated int64 dims = 1; string tensor_type = 2; bytes tensor_content = 3; }

DIMS, KIND, CONTENT = 1, 2, 3
MOST_AXES = 32


class TensorMessage(NamedTuple):
    """A TensorProto; `kind` is the name of an element type, and `content` a view of the file."""

    dims: list[int]
    kind: str
    content: memoryview


def head(kind: DType, dims: Sequence[int], size: int) -> bytes:
    """The start of a TensorProto, up to its content of `size` bytes."""
    described = message(*((DIMS, length) for length in dims), (KIND, kind.name))
    return described + key(CONTENT, LENGTH) + varint(size)


def parse(content: memoryview) -> TensorMessage:
    """The parts of a TensorProto. Raises DataError when one is missing or damaged."""
    dims: list[int] = []
    rest: dict[int, int | memoryview] = {}
    for number, value in fields(content):
        if number == DIMS:
            dims += repeated_numbers(value)
        else:
            rest[number] = value
    return TensorMessage(dims, required_text(rest.get(KIND)), required_bytes(rest.get(CONTENT)))


def decode(message: TensorMessage, kind: DType | None) -> np.ndarray:
    """The array of a message; `kind` is the element type of that name, None if there is none. Raises DataError."""
    if kind is None:
        raise DataError("unknown element type", found=ascii(message.kind), allowed=", ".join(map(str, ALL)))
    shape = [] if message.dims == [0] and message.content else message.dims  # how MindSpore writes a scalar
    return array(kind, shape, message.content).astype(kind.numpy, copy=False)


def array(kind: DType, shape: Sequence[int], elements: bytes | memoryview) -> np.ndarray:
    """Elements in C order, little-endian, as an array: a view. Raises DataError unless the shape fits the elements."""
    if len(shape) > MOST_AXES or any(length >> 63 for length in shape):
        raise DataError("impossible shape of a tensor", found=list(shape))
    if (size := math.prod(shape) * kind.size) != len(elements):
        rows = {"shape": f"{kind}{list(shape)}", "expected": f"{size} bytes", "found": f"{len(elements)} bytes"}
        raise DataError("the size of a tensor differs from its shape", **rows)
    if kind is bool_ and np.frombuffer(elements, np.uint8).max(initial=0) > 1:
        raise DataError("a Bool is neither 0 nor 1")
    try:
        return np.frombuffer(elements, kind.numpy.newbyteorder("<")).reshape(shape)
    except ValueError as reason:  # an empty tensor with dimensions too large for numpy
        raise DataError("impossible shape of a tensor", found=reason) from None
