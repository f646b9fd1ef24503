"""Affine images of an image in the fixed-point arithmetic of OpenCV's `warpAffine`, which the reference calls.

Source positions are multiples of 1/1024 of a pixel, fractions for interpolation multiples of 1/32, weights of 2**-15.
"""

import math
from collections.abc import Sequence

import numpy as np

from runner.dataset.vision.image import Inter
from runner.dataset.vision.resize import cubic_weights

POSITION_BITS = 10
FRACTION_BITS = 5
WEIGHT_BITS = 15


def rotation(center: tuple[float, float], degrees: float) -> np.ndarray:
    """The map from old to new positions of a counter-clockwise rotation about (x, y), [2, 3]."""
    cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    x, y = center
    return np.array([[cosine, sine, (1 - cosine) * x - sine * y], [-sine, cosine, sine * x + (1 - cosine) * y]])


def affine(
    center: tuple[float, float],
    degrees: float,
    shift: tuple[float, float],
    scale: float,
    shear: tuple[float, float],
) -> np.ndarray:
    """The map from old to new positions, [2, 3]: shear and rotation (degrees, clockwise), scale, shift in pixels."""
    angle, x, y = (math.radians(value) for value in (degrees, *shear))
    linear = scale * np.array(
        [
            [math.cos(angle - y), -math.cos(angle - y) * math.tan(x) - math.sin(angle) * math.cos(y)],
            [math.sin(angle - y), -math.sin(angle - y) * math.tan(x) + math.cos(angle) * math.cos(y)],
        ]
    )
    linear /= math.cos(y)
    start = np.array(center) + np.array(shift) - linear @ np.array(center)
    return np.hstack([linear, start[:, np.newaxis]])


def warp(
    image: np.ndarray, matrix: np.ndarray, size: tuple[int, int], interpolation: Inter, fill: Sequence[int]
) -> np.ndarray:
    """uint8 [H, W, C] moved by `matrix`, [2, 3] from old to new (x, y), as [*size, C].

    `fill` has a value for each channel.
    """
    across, down = _positions(_inverse(matrix), size, interpolation)
    filling = np.asarray(fill, np.uint8)
    if interpolation is Inter.NEAREST:
        return _pixels(image, down, across, filling)
    mask, bits = (1 << FRACTION_BITS) - 1, FRACTION_BITS
    weights = _weights(interpolation)
    first = 1 - len(weights[0]) // 2
    total = np.zeros((*size, image.shape[2]), np.int64)
    rows, columns = down >> bits, across >> bits
    table = _products(weights)[(down & mask) << bits | (across & mask)]
    for y in range(weights.shape[1]):
        for x in range(weights.shape[1]):
            pixels = _pixels(image, rows + first + y, columns + first + x, filling)
            total += pixels * table[..., y, x, np.newaxis]
    result: np.ndarray = np.clip((total + (1 << (WEIGHT_BITS - 1))) >> WEIGHT_BITS, 0, 255).astype(np.uint8)
    return result


def _inverse(matrix: np.ndarray) -> np.ndarray:
    (a, b, c), (d, e, f) = matrix.tolist()
    determinant = a * e - b * d
    scale = 1 / determinant if determinant else 0.0
    a, b, d, e = e * scale, -b * scale, -d * scale, a * scale
    return np.array([[a, b, -a * c - b * f], [d, e, -d * c - e * f]])


def _positions(inverse: np.ndarray, size: tuple[int, int], interpolation: Inter) -> tuple[np.ndarray, np.ndarray]:
    unit = 1 << POSITION_BITS
    kept = 0 if interpolation is Inter.NEAREST else FRACTION_BITS
    half = unit >> (kept + 1)
    rows, columns = np.arange(size[0]), np.arange(size[1])
    places = []
    for along, per_row, start in inverse:
        steps = np.rint(along * columns * unit).astype(np.int64)
        starts = np.rint((per_row * rows + start) * unit).astype(np.int64)
        places.append((starts[:, np.newaxis] + half + steps) >> (POSITION_BITS - kept))
    return places[0], places[1]


def _pixels(image: np.ndarray, rows: np.ndarray, columns: np.ndarray, filling: np.ndarray) -> np.ndarray:
    height, width = image.shape[:2]
    inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
    pixels = image[np.clip(rows, 0, height - 1), np.clip(columns, 0, width - 1)]
    return np.where(inside[..., np.newaxis], pixels, filling)


def _weights(interpolation: Inter) -> np.ndarray:
    """Weights of the neighbours for each fraction, float32 [32, 2] or [32, 4]."""
    part = np.arange(1 << FRACTION_BITS, dtype=np.float32) / np.float32(1 << FRACTION_BITS)
    return cubic_weights(part) if interpolation is Inter.CUBIC else np.stack([1 - part, part], -1)


def _products(weights: np.ndarray) -> np.ndarray:
    """For each fraction of row and column, the weights of all neighbours in units of 2**-15, which sum up to 1."""
    unit, count = 1 << WEIGHT_BITS, weights.shape[1]
    exact = weights[:, None, :, None] * weights[None, :, None, :]
    table = np.rint(exact * unit).astype(np.int64).reshape(-1, count * count)
    missing = unit - table.sum(1)
    middle = [y * count + x for y in (count // 2 - 1, count // 2) for x in (count // 2 - 1, count // 2)]
    inner = table[:, middle]
    chosen = np.where(missing > 0, inner.argmax(1), inner.argmin(1))
    table[np.arange(len(table)), np.take(middle, chosen)] += missing
    result: np.ndarray = table.reshape(-1, count, count)
    return result
