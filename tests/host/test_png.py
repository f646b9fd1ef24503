"""Small PNG images: other programs read them, and nothing but them is read."""

import io
import struct
import zlib

import numpy as np
import pytest
from tables import table

from runner.errors import DataError
from runner.host import png

RNG = np.random.default_rng(4)
PICTURE = RNG.integers(0, 256, (5, 7, 3), np.uint8)


def chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def file(*chunks: bytes) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def header(width: int = 2, height: int = 2, *rest: int) -> bytes:
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, *(rest or (8, 0, 0, 0, 0))))


def data(content: bytes) -> bytes:
    return chunk(b"IDAT", zlib.compress(content))


ROWS, END = b"\0\1\2\0\3\4", chunk(b"IEND", b"")


@table("shape", [(1, 1, 1), (1, 64, 3), (64, 1, 1), (8, 8, 1), (64, 64, 3), (33, 20, 3)])
def test_pillow_reads_the_pixels(shape):
    image = pytest.importorskip("PIL.Image", reason="the extra images")
    pixels = RNG.integers(0, 256, shape, np.uint8)
    content = png.encode(pixels)
    assert len(content) <= png.MAX_BYTES
    with image.open(io.BytesIO(content)) as opened:
        assert opened.mode == ("L" if shape[2] == 1 else "RGB")
        np.testing.assert_array_equal(np.asarray(opened).reshape(shape), pixels)
    np.testing.assert_array_equal(png.decode(content), pixels)


def test_a_file_by_hand_is_read():
    np.testing.assert_array_equal(png.decode(file(header(), data(ROWS), END))[..., 0], [[1, 2], [3, 4]])


@table(
    ("what", "content"),
    [
        ("empty", b""),
        ("text", b"<svg onload='alert(1)'/>"),
        ("only the first bytes", file()),
        ("no data", file(header(), END)),
        ("another chunk", file(header(), chunk(b"tEXt", b"a\0b"), data(ROWS), END)),
        ("a chunk after the end", file(header(), data(ROWS), END, chunk(b"tEXt", b"x"))),
        ("bytes after the end", file(header(), data(ROWS), END) + b"<script>"),
        ("a wrong checksum", file(header(), data(ROWS), END)[:-1] + b"\0"),
        ("a length of 2**31", b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 1 << 31) + b"IHDR" + bytes(30)),
        ("no width", file(header(0, 2), data(b"\0\0"), END)),
        ("a large picture", file(header(65, 1), data(bytes(66)), END)),
        ("2**32 pixels", file(header(1 << 16, 1 << 16), data(ROWS), END)),
        ("16 bits", file(header(1, 3, 16, 0, 0, 0, 0), data(bytes(9)), END)),
        ("a palette", file(header(2, 2, 8, 3, 0, 0, 0), data(ROWS), END)),
        ("interlaced", file(header(2, 2, 8, 0, 0, 0, 1), data(ROWS), END)),
        ("a filter", file(header(), data(b"\1\1\2\0\3\4"), END)),
        ("too few pixels", file(header(), data(ROWS[:-1]), END)),
        ("too many pixels", file(header(), data(ROWS + b"\0"), END)),
        ("a bomb", file(header(), data(bytes(1 << 23)), END)),
        ("not compressed", file(header(), chunk(b"IDAT", ROWS), END)),
        ("more behind the data", file(header(), chunk(b"IDAT", zlib.compress(ROWS) + b"evil"), END)),
        ("half of the data", file(header(), chunk(b"IDAT", zlib.compress(ROWS)[:-3]), END)),
        ("a short header", file(chunk(b"IHDR", b"\0\0\0\1"), data(ROWS), END)),
        ("a long file", png.encode(PICTURE) + bytes(png.MAX_BYTES)),
    ],
    ids=str,
)
def test_anything_else_is_refused(what, content):
    with pytest.raises(DataError, match="not an image that runner has written"):
        png.decode(content)


def test_every_shortened_file_is_refused():
    whole = png.encode(PICTURE)
    for length in range(len(whole)):
        with pytest.raises(DataError):
            png.decode(whole[:length])


def test_a_changed_byte_is_refused():
    whole = png.encode(PICTURE)
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 0x41
        with pytest.raises(DataError):
            png.decode(bytes(changed))
