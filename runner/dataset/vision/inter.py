"""Interpolation methods."""

from enum import IntEnum


class Inter(IntEnum):
    """Interpolation, with the reference's names and numbers. Source: `mindspore.dataset.vision.Inter` r1.2."""

    NEAREST = 0
    LINEAR = 2
    BILINEAR = 2
