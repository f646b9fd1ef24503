"""Event files read by their layout, without any library of TensorBoard.

A record is a length (uint64), its masked CRC-32C, the content and its masked CRC-32C, all little-endian. The content is
a message `Event`: wall_time 1 (double), step 2, file_version 3, summary 5 with values 1: tag 1, simple_value 2 (float),
tensor 8 with string_val 8. Source: tensorflow/core/lib/io/record_writer.h, util/event.proto, framework/summary.proto.
"""

import struct
from pathlib import Path


def _table() -> list[int]:
    rows = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        rows.append(value)
    return rows


TABLE = _table()


def masked(data: bytes) -> int:
    """The masked CRC-32C of some bytes."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(content: bytes) -> list[bytes]:
    """The contents of whole records; one that is cut at the end is left out."""
    found, at = [], 0
    while at + 12 <= len(content):
        length, check = struct.unpack_from("<QI", content, at)
        assert check == masked(content[at : at + 8])
        if at + 16 + length > len(content):
            break
        record = content[at + 12 : at + 12 + length]
        assert struct.unpack_from("<I", content, at + 12 + length)[0] == masked(record)
        found.append(record)
        at += 16 + length
    return found


def fields(message: bytes) -> dict[int, list]:
    """The values of a message by the numbers of their fields: numbers, or bytes."""
    found: dict[int, list] = {}
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at, value, shift = at + 1, value | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                return value

    while at < len(message):
        number, kind = divmod(varint(), 8)
        if kind == 0:
            value = varint()
        else:
            size = {1: 8, 2: None, 5: 4}[kind]
            size = varint() if size is None else size
            value, at = message[at : at + size], at + size
        found.setdefault(number, []).append(value)
    return found


def read(folder: Path) -> tuple[list[tuple[str, int, float]], dict[str, str]]:
    """The scalars of all event files of a folder as (tag, step, value), in their order, and the last texts by tag."""
    scalars, texts = [], {}
    for path in sorted(folder.iterdir()):
        first, *events = map(fields, records(path.read_bytes()))
        assert first[3] == [b"brain.Event:2"]
        for event in events:
            assert struct.unpack("<d", event[1][0])[0] > 1.7e9  # seconds since 1970
            for value in map(fields, fields(event[5][0])[1]):
                tag = value[1][0].decode()
                if 2 in value:
                    scalars.append((tag, event[2][0], struct.unpack("<f", value[2][0])[0]))
                else:
                    texts[tag] = fields(value[8][0])[8][0].decode()
    return scalars, texts
