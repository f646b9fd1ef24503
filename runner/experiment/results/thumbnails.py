"""Small pictures of samples whose input is an image."""

import numpy as np

from runner.dataset.column import Column, sample_type
from runner.dataset.order import Visits
from runner.dataset.pipeline import Dataset
from runner.host.png import MAX_SIDE

CHANNELS = (1, 3)


def thumbnails(data: Dataset, visits: np.ndarray) -> list[np.ndarray] | None:
    """A picture of each visit, uint8 [H, W, 1 or 3] with sides of at most MAX_SIDE; None if no input is an image.

    An input is an image if its samples have three axes, of which the first or the last has length 1 or 3. Where the
    source has bytes [H, W, 1 or 3], these are the pixels; otherwise the values of the input, rescaled to 0..255.
    """
    for column in data.columns[:-1]:
        if (axis := _channel_axis(column.sample.shape)) is not None:
            return [_reduced(_picture(column, visit, axis)) for visit in visits]
    return None


def _channel_axis(shape: tuple[int, ...]) -> int | None:
    if len(shape) != 3 or 0 in shape:
        return None
    return next((axis for axis in (0, 2) if shape[axis] in CHANNELS), None)


def _picture(column: Column, visit: np.generic, axis: int) -> np.ndarray:
    """uint8 [H, W, C] of one visit: inputs may be large."""
    visits, stored = Visits.of(np.atleast_1d(visit), len(column.source)), sample_type(column.source)
    if stored.dtype.numpy == np.uint8 and _channel_axis(stored.shape) is not None and stored.shape[2] in CHANNELS:
        picture: np.ndarray = column.source.take(visits.rows, axis=0)[0]
        return picture
    return _rescaled(np.moveaxis(column.fetch(visits)[0], axis, -1).astype(np.float64))


def _rescaled(values: np.ndarray) -> np.ndarray:
    """The smallest finite value becomes 0 and the largest 255; what is not finite becomes 0."""
    finite = np.isfinite(values)
    low, high = (values[finite].min(), values[finite].max()) if finite.any() else (0.0, 0.0)
    scale = 255.0 / (high - low) if high > low else 0.0
    return np.rint(np.where(finite, values - low, 0.0) * scale).astype(np.uint8)


def _reduced(picture: np.ndarray) -> np.ndarray:
    """The means of equal blocks, so that the longer side has at most MAX_SIDE pixels."""
    longest = max(picture.shape[:2])
    if longest <= MAX_SIDE:
        return picture
    values = picture.astype(np.float64)
    for axis in (0, 1):
        length = values.shape[axis]
        starts = np.arange(count := max(1, length * MAX_SIDE // longest)) * length // count
        sums = np.add.reduceat(values, starts, axis=axis)
        sizes = np.diff(np.append(starts, length))
        values = sums / np.expand_dims(sizes, [other for other in range(3) if other != axis])
    return np.rint(values).astype(np.uint8)
