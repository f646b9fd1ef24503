"""Decoded images against Pillow, and files that are damaged or hostile."""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from damage import damaged
from PIL import Image
from tables import table

from runner.dataset.readers import image_file
from runner.dataset.readers.image_file import decode, read_header
from runner.errors import DataError, RunnerError


def picture(mode: str = "RGB", size: tuple[int, int] = (10, 7)) -> Image.Image:
    drawn = np.random.default_rng(3).integers(0, 256, (size[1], size[0], 3), np.uint8)
    return Image.fromarray(drawn).convert(mode)


@table(("mode", "suffix"), [("RGB", "png"), ("L", "png"), ("P", "png"), ("1", "png"), ("LA", "png"), ("RGB", "bmp"),
                            ("RGB", "jpg"), ("L", "jpeg"), ("CMYK", "jpg"), ("RGB", "webp")])  # fmt: skip
def test_modes_and_formats(tmp_path, mode, suffix) -> None:
    path = tmp_path / f"x{mode}.{suffix}"
    picture(mode, (9, 9)).save(path)
    for channels, wanted in ((1, "L"), (3, "RGB")):
        expected = np.asarray(Image.open(path).convert(wanted)).reshape(9, 9, channels)
        assert decode(path, 9, channels).tobytes() == expected.tobytes()
    assert read_header(path).channels == (1 if mode in ("L", "1", "LA") else 3)


def test_another_size_is_resampled_with_all_pixels(tmp_path) -> None:
    path = tmp_path / "x.png"
    picture(size=(40, 23)).save(path)
    expected = Image.open(path).resize((8, 8), Image.Resampling.BILINEAR)
    assert decode(path, 8, 3).tobytes() == np.asarray(expected).tobytes()


def test_16_bits_become_8(tmp_path) -> None:
    deep = np.arange(81, dtype=np.uint16).reshape(9, 9) * 800
    Image.fromarray(deep).save(tmp_path / "x.png")
    assert decode(tmp_path / "x.png", 9, 1)[..., 0].tolist() == (deep // 256).tolist()
    assert decode(tmp_path / "x.png", 9, 3)[..., 2].tolist() == (deep // 256).tolist()
    assert read_header(tmp_path / "x.png").channels == 1


def test_images_are_upright(tmp_path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # rotated by 90 degrees
    picture(size=(9, 9)).save(tmp_path / "x.png", exif=exif)
    expected = np.rot90(np.asarray(picture(size=(9, 9))), -1)
    assert decode(tmp_path / "x.png", 9, 3).tobytes() == expected.tobytes()


def test_transparency_of_a_palette(tmp_path) -> None:
    image = picture("P", (9, 9))
    image.save(tmp_path / "x.png", transparency=bytes(range(256)))
    assert decode(tmp_path / "x.png", 9, 3).tobytes() == np.asarray(picture("P", (9, 9)).convert("RGB")).tobytes()


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few bytes whose header says so many pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\0" * 1000))
        + chunk(b"IEND", b"")
    )


@table(("width", "height"), [(8193, 8192), (9500, 9500), (60_000, 60_000), (2**31 - 1, 2**31 - 1)])
def test_a_bomb_is_refused_before_memory_is_taken(tmp_path, width, height) -> None:
    path = tmp_path / "bomb.png"
    path.write_bytes(bomb(width, height))
    for read in (read_header, lambda path: decode(path, 8, 3)):
        with pytest.raises(DataError) as caught:
            read(path)
        assert str(path) in str(caught.value)
        assert "an image is too large" in str(caught.value)


def test_a_truncated_image_is_named(tmp_path) -> None:
    for suffix in ("png", "jpg", "bmp", "webp"):
        whole = io.BytesIO()
        picture(size=(64, 64)).save(whole, {"jpg": "jpeg"}.get(suffix, suffix))
        path = tmp_path / f"x.{suffix}"
        path.write_bytes(whole.getvalue()[: len(whole.getvalue()) // 2])
        with pytest.raises(DataError) as caught:
            decode(path, 8, 3)
        assert str(path) in str(caught.value)
        assert "repair" in str(caught.value)


@table("content", [b"GIF89a\1\0\1\0\0\0\0;", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 1 1\n", b"<svg/>", b"II*\0"])
def test_other_formats_are_refused_whatever_their_name(tmp_path, content) -> None:
    (tmp_path / "x.png").write_bytes(content)
    with pytest.raises(DataError, match="not an image"):
        read_header(tmp_path / "x.png")


def test_a_file_that_is_too_long(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(image_file, "MAX_FILE_BYTES", 100)
    picture().save(tmp_path / "x.png")
    with pytest.raises(DataError, match="a file is too long"):
        read_header(tmp_path / "x.png")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["png", "jpeg", "webp", "bmp"])
def test_damage_gives_an_image_or_an_error(tmp_path: Path, kind: str) -> None:
    whole = io.BytesIO()
    picture(size=(20, 20)).save(whole, kind)
    path = tmp_path / "x"
    codes = set()
    for _, content in damaged(whole.getvalue(), kind, 60):
        path.write_bytes(content)
        try:
            assert decode(path, 8, 3).shape == (8, 8, 3)
        except RunnerError as error:
            codes.add(error.exit_code)
    assert codes == {7}
