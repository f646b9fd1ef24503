"""Event files read by their layout, without any library of TensorBoard.

A record is a length (uint64), its masked CRC-32C, the content and its masked CRC-32C, all little-endian. The content is
a message `Event`: wall_time 1 (double), step 2, file_version 3, summary 5 with values 1: tag 1, simple_value 2 (float),
image 4, histo 5, tensor 8 with string_val 8; session_log 7.
Source: tensorflow/core/lib/io/record_writer.h, util/event.proto, framework/summary.proto, framework/tensor.proto.
"""

import io
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image


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


class Summary(NamedTuple):
    """A value of an event file: a number, an array of pixels, an array, or a text; of a histogram its fields."""

    kind: str
    tag: str
    step: int
    value: Any


KINDS = {2: "scalar", 4: "image", 5: "histogram", 8: "tensor"}
ELEMENTS = {1: "<f4", 2: "<f8", 3: "<i4", 4: "<u1", 5: "<i2", 6: "<i1", 9: "<i8", 10: "?", 17: "<u2", 19: "<f2"}


def summaries(path: Path) -> list[Summary]:
    """All values of an event file, in order."""
    first, *events = map(fields, records(path.read_bytes()))
    assert first[3] == [b"brain.Event:2"]
    found = []
    for event in events:
        step = event.get(2, [0])[0]
        for value in map(fields, fields(event[5][0])[1] if 5 in event else ()):
            (number,) = value.keys() & KINDS
            tag = value[1][0].decode()
            kind = KINDS[number]
            read = {"scalar": _number, "image": _pixels, "histogram": _histogram, "tensor": _tensor}[kind]
            found.append(Summary("text" if tag.endswith("text_summary") else kind, tag, step, read(value[number][0])))
    return found


def starts(path: Path) -> list[int]:
    """The steps at which an event file says that a session starts."""
    events = map(fields, records(path.read_bytes()))
    return [event[2][0] for event in events if 7 in event and fields(event[7][0])[1] == [1]]


def _number(content: bytes) -> float:
    return struct.unpack("<f", content)[0]


def _pixels(content: bytes) -> np.ndarray:
    image = fields(content)
    pixels = np.asarray(Image.open(io.BytesIO(image[4][0])))
    pixels = pixels.reshape(*pixels.shape[:2], -1)
    assert pixels.shape == (image[1][0], image[2][0], image[3][0])
    return pixels


def _histogram(content: bytes) -> dict[str, Any]:
    histogram = fields(content)
    names = {1: "min", 2: "max", 3: "num", 4: "sum", 5: "sum_squares"}
    single = {name: struct.unpack("<d", histogram[k][0])[0] if k in histogram else 0.0 for k, name in names.items()}
    return single | {name: np.frombuffer(histogram[k][0], "<f8") for k, name in {6: "limits", 7: "counts"}.items()}


def _tensor(content: bytes) -> np.ndarray | str:
    tensor = fields(content)
    if 8 in tensor:
        return tensor[8][0].decode()
    lengths = [fields(dim).get(1, [0])[0] for dim in fields(tensor[2][0]).get(2, ())]
    return np.frombuffer(tensor[4][0], ELEMENTS[tensor[1][0]]).reshape(lengths)
