"""Small PNG images, written with zlib; only images of exactly this form are read: 8 bits, one data chunk, no filter.

Source of the format: ISO/IEC 15948, "Portable Network Graphics".
"""

import struct
import zlib

import numpy as np

from runner.errors import DataError

SIGNATURE = b"\x89PNG\r\n\x1a\n"
MAX_SIDE = 64
MAX_BYTES = 16384  # of a file: 64 rows of 64 pixels of 3 bytes, not compressed, have 12,530 with all chunks
_COLOURS = {1: 0, 3: 2}  # the format's number, by channels
_HEADER, _CHUNK = struct.Struct(">IIBBBBB"), struct.Struct(">I4s")


def encode(pixels: np.ndarray) -> bytes:
    """The file of an image, uint8 [H, W, 1] or [H, W, 3]; `decode` reads those with sides up to MAX_SIDE."""
    height, width, channels = pixels.shape
    rows = np.zeros((height, 1 + width * channels), np.uint8)  # each begins with the number of its filter: 0, none
    rows[:, 1:] = pixels.reshape(height, -1)
    header = _HEADER.pack(width, height, 8, _COLOURS[channels], 0, 0, 0)
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b"")
    return SIGNATURE + b"".join(_chunk(name, content) for name, content in chunks)


def decode(content: bytes) -> np.ndarray:
    """The pixels of a file that `encode` has written, uint8 [H, W, 1] or [H, W, 3].

    Raises DataError for any other content, before more memory is taken than the largest such image needs.
    """
    try:
        return _pixels(content)
    except (struct.error, zlib.error, ValueError) as reason:
        raise DataError("not an image that runner has written", reason=reason) from None


def _chunk(name: bytes, content: bytes) -> bytes:
    return _CHUNK.pack(len(content), name) + content + struct.pack(">I", zlib.crc32(name + content))


def _pixels(content: bytes) -> np.ndarray:
    if len(content) > MAX_BYTES or not content.startswith(SIGNATURE):
        raise ValueError("its length or its first bytes")
    start = len(SIGNATURE)
    parts = []
    for expected in (b"IHDR", b"IDAT", b"IEND"):
        length, name = _CHUNK.unpack_from(content, start)
        part = content[start + _CHUNK.size : start + _CHUNK.size + length]
        whole = _chunk(expected, part)
        if name != expected or content[start : start + len(whole)] != whole:
            raise ValueError(f"its chunk {expected.decode()}")
        parts.append(part)
        start += len(whole)
    if start != len(content):
        raise ValueError("more chunks")
    return _unpacked(*_HEADER.unpack(parts[0]), compressed=parts[1])


def _unpacked(width: int, height: int, depth: int, colour: int, *methods: int, compressed: bytes) -> np.ndarray:
    channels = {number: channels for channels, number in _COLOURS.items()}.get(colour, 0)
    if not (0 < width <= MAX_SIDE and 0 < height <= MAX_SIDE and depth == 8 and channels) or any(methods):
        raise ValueError("its size or its kind of pixels")
    size = height * (1 + width * channels)
    reader = zlib.decompressobj()
    rows = np.frombuffer(reader.decompress(compressed, size + 1), np.uint8)
    if len(rows) != size or not reader.eof or reader.unused_data or rows.reshape(height, -1)[:, 0].any():
        raise ValueError("its data")
    return rows.reshape(height, -1)[:, 1:].reshape(height, width, channels)
