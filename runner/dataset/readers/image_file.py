"""Image files as arrays, by Pillow (the extra `images`), and as the source of a column (`ImageFiles`).

Files are untrusted: only the formats below are decoded, whatever a file's name says (Pillow starts other programs for
some others), and the number of pixels is checked before memory is taken for them.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from runner import dtype as dt
from runner.dataset.column import CACHED_BYTES
from runner.dataset.samples import RowSource
from runner.dataset.vision.image import FORMATS, MAX_PIXELS, PillowImage, in_bytes, pillow
from runner.errors import DataError, RunnerError
from runner.host import files
from runner.host.machine import available_bytes
from runner.types import TensorType

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
        converted = _without_palette(in_bytes(upright)).convert("L" if channels == 1 else "RGB")
        if side is not None and converted.size != (side, side):
            converted = converted.resize((side, side), pillow().Image.Resampling.BILINEAR)
        return np.array(converted, np.uint8).reshape(converted.height, converted.width, channels)


def _without_palette(image: PillowImage) -> PillowImage:
    """The image with its palette's transparency as a channel. Raises ValueError for values that are no integers."""
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


# Image files as the source of a column: decoded when a batch needs them, and kept when all of them fit.

MEASURED_IMAGES = 1024  # of a training split, evenly spaced: enough for mean and deviation, and decoded in seconds
AVAILABLE_PART = 4  # of the available memory, one part of so many is used at most
BRIGHTEST = 255.0


class ImageFiles(RowSource):
    """Images as bytes, [N, side, side, channels]. Decoded ones stay in memory when all need at most CACHED_BYTES."""

    def __init__(self, paths: Sequence[Path], side: int, channels: int) -> None:
        super().__init__(TensorType(dt.uint8, (len(paths), side, side, channels)))
        self.paths = tuple(paths)
        fits = self.nbytes <= min(CACHED_BYTES, available_bytes() // AVAILABLE_PART)
        self._cache = np.empty(self.type.shape, np.uint8) if fits else None  # pages are taken when they are written
        self._is_decoded = np.zeros(len(paths), np.bool_)

    def take(self, rows: np.ndarray, axis: int = 0) -> np.ndarray:
        """The images of these rows. Raises DataError for a damaged file."""
        if self._cache is None:
            images = np.empty((len(rows), *self.type.shape[1:]), np.uint8)
            for image, row in zip(images, rows, strict=True):
                image[...] = self._decode(row)
            return images
        for row in np.unique(rows[~self._is_decoded[rows]]):
            self._cache[row] = self._decode(row)  # another thread may write the same bytes
            self._is_decoded[row] = True
        return self._cache.take(rows, axis=0)

    def contents(self) -> Iterator[bytes]:
        for path in self.paths:
            yield files.read_bytes(path, MAX_FILE_BYTES)

    def _decode(self, row: int) -> np.ndarray:
        return decode(self.paths[row], self.type.shape[1], self.type.shape[3])


def mean_and_deviation(paths: Sequence[Path], side: int, channels: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel, for values from 0 to 1, over at most MEASURED_IMAGES of the files.

    A channel that is constant has the deviation 1. The sums are whole numbers, so they are the same on every machine.
    """
    step = -(-len(paths) // MEASURED_IMAGES)
    states = [(path, path.stat()) for path in paths[::step]]
    identity = tuple((path, state.st_ino, state.st_size, state.st_mtime_ns) for path, state in states)
    total, squares = _sums(identity, side, channels)
    count = len(identity) * side * side
    means = [one / count for one in total]
    variances = [(count * two - one * one) / count**2 for one, two in zip(total, squares, strict=True)]
    deviations = [variance**0.5 / BRIGHTEST if variance else 1.0 for variance in variances]
    return tuple(mean / BRIGHTEST for mean in means), tuple(deviations)


@lru_cache(maxsize=4)  # the training and the test split are normalised with the same statistics
def _sums(identity: tuple[tuple[Path, int, int, int], ...], side: int, channels: int) -> tuple[list[int], list[int]]:
    """The sums of the values and of their squares, for each channel."""
    total, squares = np.zeros(channels, np.uint64), np.zeros(channels, np.uint64)
    for path, *_ in identity:
        values = decode(path, side, channels).reshape(-1, channels).astype(np.uint64)
        total += values.sum(axis=0)
        squares += (values * values).sum(axis=0)
    return total.tolist(), squares.tolist()
