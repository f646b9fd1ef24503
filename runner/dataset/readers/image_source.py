"""Image files as the source of a column: decoded when a batch needs them, and kept when all of them fit."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from runner import dtype as dt
from runner.dataset.column import CACHED_BYTES
from runner.dataset.readers.image_file import MAX_FILE_BYTES, decode
from runner.dataset.row_source import RowSource
from runner.host import files
from runner.host.machine import available_bytes
from runner.types import TensorType

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
        """The bytes of each file."""
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
