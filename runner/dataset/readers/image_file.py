"""Image files as arrays, by Pillow (the extra `images`).

Files are untrusted: only the formats below are decoded, whatever a file's name says (Pillow starts other programs for
some others), and the number of pixels is checked before memory is taken for them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from runner.dataset.vision.pillow import FORMATS, MAX_PIXELS, PillowImage, pillow
from runner.errors import DataError, RunnerError
from runner.host import files

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
MAX_FILE_BYTES = 1 << 28
GREY_MODES = ("1", "L", "LA", "I", "I;16")
REPAIR = "save the image again as PNG or JPEG, or remove the file"


class ImageHeader(NamedTuple):
    """What the head of a file says: width and height in pixels, and 1 (grey) or 3 channels."""

    width: int
    height: int
    channels: int


def read_header(path: Path) -> ImageHeader:
    """The header of an image, without decoding it.

    Raises DataError for a file that is no image of these formats or has more than MAX_PIXELS, ConfigError without
    Pillow.
    """
    with _opened(path) as image:
        return ImageHeader(*image.size, 1 if image.mode in GREY_MODES else 3)


def decode(path: Path, side: int | None, channels: int) -> np.ndarray:
    """The image as uint8 [side, side, channels]: grey or RGB, upright, without transparency.

    With `side` None it keeps its size. Another size is resampled by Pillow's BILINEAR filter, which covers all pixels.
    Raises as `read_header`, also for a truncated file.
    """
    with _opened(path) as image:
        upright = pillow().ImageOps.exif_transpose(image)
        converted = _in_bytes(upright).convert("L" if channels == 1 else "RGB")
        if side is not None and converted.size != (side, side):
            converted = converted.resize((side, side), pillow().Image.Resampling.BILINEAR)
        return np.array(converted, np.uint8).reshape(converted.height, converted.width, channels)


def _in_bytes(image: PillowImage) -> PillowImage:
    """The image with 8 bits per value, and its palette's transparency as a channel."""
    if image.mode.startswith("I"):  # 16 bits, which Pillow would clip to 255
        return pillow().Image.fromarray((np.asarray(image).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8))  # type: ignore[no-any-return]
    if image.mode == "F":
        raise ValueError("its values are no integers")
    return image.convert("RGBA") if image.mode == "P" and "transparency" in image.info else image


@contextmanager
def _opened(path: Path) -> Iterator[PillowImage]:
    """The image, not decoded yet; every error of Pillow inside is raised as DataError."""
    images = pillow().Image
    with files.open_regular(path, MAX_FILE_BYTES) as file:
        try:
            with images.open(file, formats=FORMATS) as image:
                _require_size(path, *image.size)
                yield image
        except (RunnerError, MemoryError):
            raise
        except (images.DecompressionBombError, images.DecompressionBombWarning):
            raise _too_large(path, "more pixels than Pillow accepts") from None
        except Exception as reason:  # Pillow has no common class of its errors
            if isinstance(reason, images.UnidentifiedImageError):
                raise DataError("not an image", file=path, expected=", ".join(FORMATS), repair=REPAIR) from None
            raise DataError("a damaged image", file=path, found=_reason(reason), repair=REPAIR) from None


def _require_size(path: Path, width: int, height: int) -> None:
    if width * height > MAX_PIXELS:
        raise _too_large(path, f"{width} x {height} pixels")
    if width * height == 0:
        raise DataError("an image without pixels", file=path, found=f"{width} x {height} pixels", repair=REPAIR)


def _too_large(path: Path, found: str) -> DataError:
    repair = "make the image smaller, or remove the file"
    rows = {"expected": f"at most {MAX_PIXELS} pixels", "found": found, "repair": repair}
    return DataError("an image is too large", file=path, **rows)


def _reason(reason: Exception) -> str:
    text = str(reason).strip().splitlines()
    return text[0][:200] if text else type(reason).__name__
