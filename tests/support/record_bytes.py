"""TFRecord files and pickles of CIFAR made by hand, from the formats' descriptions."""

import struct
from pathlib import Path

import numpy as np

CRC_POLYNOMIAL = 0x82F63B78


def crc32c(data: bytes) -> int:
    """CRC-32C, bit by bit."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = (value >> 1) ^ (CRC_POLYNOMIAL if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def _masked(data: bytes) -> bytes:
    value = crc32c(data)
    return struct.pack("<I", (((value >> 15) | (value << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def _varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    parts = []
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _feature(values: list) -> bytes:
    """tf.train.Feature: a list of bytes (1), floats (2) or integers (3)."""
    if isinstance(values[0], bytes):
        return _field(1, b"".join(_field(1, value) for value in values))
    if isinstance(values[0], float):
        return _field(2, _field(1, struct.pack(f"<{len(values)}f", *values)))
    return _field(3, _field(1, b"".join(map(_varint, values))))


def tf_record(examples: list[dict[str, list]]) -> bytes:
    """A file of examples: names and lists of values."""
    content = b""
    for example in examples:
        entries = (_field(1, name.encode()) + _field(2, _feature(values)) for name, values in example.items())
        data = _field(1, b"".join(_field(1, entry) for entry in entries))
        length = struct.pack("<Q", len(data))
        content += length + _masked(length) + data + _masked(data)
    return content


def old_cifar(labels: list[int], images: np.ndarray, name: bytes = b"labels") -> bytes:
    """A batch as Python 2 and numpy wrote the published files: protocol 2, short strings, an array by _reconstruct."""

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value

    array = b"cnumpy.core.multiarray\n_reconstruct\nq\x01cnumpy\nndarray\nq\x02K\x00\x85U\x01b\x87Rq\x03"
    shape = b"J" + struct.pack("<i", images.shape[0]) + b"M" + struct.pack("<H", images.shape[1]) + b"\x86"
    kind = b"cnumpy\ndtype\nq\x04U\x02u1K\x00K\x01\x87Rq\x05(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    data = b"T" + struct.pack("<i", images.nbytes) + images.tobytes()
    state = b"(K\x01" + shape + kind + b"\x89" + data + b"tb"
    numbers = b"]q\x06(" + b"".join(b"K" + bytes([number]) for number in labels) + b"e"
    return b"\x80\x02}q\x00(" + text(b"data") + array + state + text(name) + numbers + b"u."


def write_cifar_10(folder: Path, rows: int) -> tuple[np.ndarray, list[int]]:
    """A training batch and a test batch; returns the images [rows, 32, 32, 3] and labels of the training batch."""
    folder.mkdir()
    ramp = np.linspace(0, 200, 32).astype(np.uint8)  # smooth, so that JPEG keeps it
    planes = np.stack([np.broadcast_to(ramp[:, None] + k, (3, 32, 32)) for k in range(rows)])
    labels = [k % 10 for k in range(rows)]
    for name in ("data_batch_1", "test_batch"):
        (folder / name).write_bytes(old_cifar(labels, planes.reshape(rows, -1)))
    return planes.transpose(0, 2, 3, 1), labels
