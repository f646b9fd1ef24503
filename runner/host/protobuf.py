"""The wire format of protobuf, as far as our files need it: varints and fields with a length.

Written by hand and not with protobuf's runtime: files above its 2 GB limit can be read, arrays are written and read
without copies of the whole message, the place of a damage is known, and runner does not depend on protobuf by itself
(it comes along with onnx). Source: protobuf.dev/programming-guides/encoding.
"""

from collections.abc import Iterator

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
    """What stands before a field: its number and its wire type."""
    return varint(number << 3 | kind)


def prefixed(number: int, content: bytes) -> bytes:
    """A field with a length."""
    return key(number, LENGTH) + varint(len(content)) + content


def read_varint(data: memoryview, at: int) -> tuple[int, int]:
    """The number at a position, and the position after it. Raises DataError when it is cut or above 64 bits."""
    number = 0
    for position in range(at, min(at + VARINT_BYTES, len(data))):
        byte = data[position]
        number |= (byte & 0x7F) << 7 * (position - at)
        if byte < 0x80:
            if number >> 64:
                break
            return number, position + 1
    raise DataError("a number is cut or has more than 64 bits", offset_in_message=at)


def fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """The fields of a message: their numbers, each with a view of its bytes, or a number when it has no length.

    A length is compared with what there is before it is used. Raises DataError with the position in `data`.
    """
    at = 0
    while at < len(data):
        start = at
        tag, at = read_varint(data, at)
        number, kind = tag >> 3, tag & 7
        if not 0 < number < 1 << 29:
            raise DataError(f"field {number} is none", offset_in_message=start)
        if kind == VARINT:
            value, at = read_varint(data, at)
            yield number, value
            continue
        if kind == LENGTH:
            size, at = read_varint(data, at)
        elif kind in FIXED_SIZES:
            size = FIXED_SIZES[kind]
        else:
            raise DataError("unknown type of a field", offset_in_message=start, found=kind)
        if size > len(data) - at:
            raise DataError(
                "a field is cut", offset_in_message=start, expected=f"{size} bytes", found=f"{len(data) - at} bytes"
            )
        content = data[at : at + size]
        yield number, content if kind == LENGTH else int.from_bytes(content, "little")
        at += size
