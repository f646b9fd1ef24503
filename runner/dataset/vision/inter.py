"""Interpolation methods."""

from enum import IntEnum


class Inter(IntEnum):
    """Interpolation, with the reference's names and numbers. Source: `mindspore.dataset.vision.Inter` r1.2."""

    NEAREST = 0
    ANTIALIAS = 1
    LINEAR = 2
    BILINEAR = 2
    CUBIC = 3
    BICUBIC = 3
