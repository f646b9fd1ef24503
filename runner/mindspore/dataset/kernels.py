"""Arithmetic on one image, uint8 [H, W, C] (or [H, W]), RGB: colours, and affine images.

Numbers are those of OpenCV, which MindSpore calls: products in float32, rounded to the nearest integer, halves to
even, and clipped to 0..255; positions of `warpAffine` in fixed-point arithmetic.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from runner.dataset.vision.image import Inter
from runner.dataset.vision.resize import cubic_weights

GREY_WEIGHTS = (4899, 9617, 1868)  # of red, green and blue, in units of 2**-14: 0.299, 0.587, 0.114
GREY_BITS = 14
HSV_BITS = 12
SMOOTH = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]], np.float32) / np.float32(13)


def grey(image: np.ndarray) -> np.ndarray:
    """Luminance, uint8 [H, W]."""
    if image.ndim == 2 or image.shape[2] == 1:
        return image.reshape(image.shape[:2])
    total = image[..., :3].astype(np.int32) @ np.array(GREY_WEIGHTS, np.int32)
    result: np.ndarray = ((total + (1 << (GREY_BITS - 1))) >> GREY_BITS).astype(np.uint8)
    return result


def as_bytes(values: np.ndarray) -> np.ndarray:
    """Floats rounded and clipped to uint8."""
    result: np.ndarray = np.clip(np.rint(values), 0, 255).astype(np.uint8)
    return result


def blend(image: np.ndarray, other: np.ndarray | np.floating, share: float) -> np.ndarray:
    """`image * share + other * (1 - share)`; a share above 1 moves away from `other`."""
    weight = np.float32(share)
    rest = np.float64(np.float32(1) - weight)
    exact = (image * weight).astype(np.float64) + other * rest  # rounded as by a fused multiply-add
    return as_bytes(exact.astype(np.float32))


def brightness(image: np.ndarray, factor: float) -> np.ndarray:
    """Every value times the factor."""
    return blend(image, np.float64(0), factor)


def contrast(image: np.ndarray, factor: float) -> np.ndarray:
    """Blended with the mean luminance, rounded."""
    return blend(image, np.float64(int(grey(image).mean() + 0.5)), factor)


def saturation(image: np.ndarray, factor: float) -> np.ndarray:
    """Blended with the image without colours: 0 removes them."""
    luminance = grey(image).astype(np.float32)
    return blend(image, luminance if image.ndim == 2 else luminance[..., np.newaxis], factor)


def hue(image: np.ndarray, shift: float) -> np.ndarray:
    """Hues turned by `shift` of a whole turn, -0.5 to 0.5; grey images have none."""
    if image.ndim == 2 or image.shape[2] == 1:
        return image
    angle, others = to_hsv(image)
    return from_hsv((angle.astype(np.int32) + int(shift * 255)).astype(np.uint8), others)


def to_hsv(image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Hue, a turn of 256 as uint8 [H, W], and saturation and value, [H, W, 2]."""
    red, green, blue = (image[..., k].astype(np.int64) for k in range(3))
    value, least = image.max(-1).astype(np.int64), image.min(-1).astype(np.int64)
    spread, half = value - least, 1 << (HSV_BITS - 1)
    numbers = np.maximum(np.arange(256), 1)
    to_saturation = np.rint((255 << HSV_BITS) / numbers).astype(np.int64)
    to_hue = np.rint((256 << HSV_BITS) / (6.0 * numbers)).astype(np.int64)
    depth = (spread * to_saturation[value] + half) >> HSV_BITS
    place = np.where(
        value == red, green - blue, np.where(value == green, blue - red + 2 * spread, red - green + 4 * spread)
    )
    angle = (place * to_hue[spread] + half) >> HSV_BITS
    angle += np.where(angle < 0, 256, 0)
    return np.clip(angle, 0, 255).astype(np.uint8), np.stack([depth, value], -1).astype(np.uint8)


def from_hsv(angle: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The inverse of `to_hsv`, uint8 [H, W, 3]; hue 255 is a whole turn, as in OpenCV."""
    scaled = angle.astype(np.float32) * np.float32(6.0 / 255)
    sector = np.floor(scaled)
    part = scaled - sector
    depth, value = (others[..., k].astype(np.float32) * np.float32(1 / 255) for k in range(2))
    one = np.float32(1)
    low, down, up = value * (one - depth), value * (one - depth * part), value * (one - depth * (one - part))
    sectors = [(value, up, low), (down, value, low), (low, value, up), (low, down, value), (up, low, value)]
    sectors.append((value, low, down))
    number = sector.astype(np.int64) % 6
    mixed = [np.choose(number, [levels[k] for levels in sectors]) for k in range(3)]
    return as_bytes(np.stack(mixed, -1) * np.float32(255))


def sharpness(image: np.ndarray, factor: float) -> np.ndarray:
    """Blended with the image after a 3 x 3 filter, whose border is unchanged: 0 blurs, 2 sharpens."""
    height, width = image.shape[:2]
    if height < 3 or width < 3:
        return image.copy()
    inner = np.zeros((height - 2, width - 2, *image.shape[2:]), np.float32)
    for row in range(3):
        for column in range(3):
            inner += image[row : row + height - 2, column : column + width - 2] * SMOOTH[row, column]
    blurred = image.copy()
    blurred[1:-1, 1:-1] = as_bytes(inner)
    return blend(image, blurred, factor)


def posterize(image: np.ndarray, bits: int) -> np.ndarray:
    """Only the `bits` highest bits of every value."""
    return image & np.uint8(256 - (1 << (8 - bits)))


def solarize(image: np.ndarray, low: float, high: float) -> np.ndarray:
    """Values from `low` to `high` inverted; with equal ends, all from there on."""
    inside = (image >= low) & ((image <= high) if low < high else True)
    return np.where(inside, 255 - image, image)


def auto_contrast(image: np.ndarray, cutoff: float, ignore: Sequence[int]) -> np.ndarray:
    """Per channel: the range of values, without `cutoff` percent at each end, is stretched to 0..255."""
    return _by_table(image, lambda counts: _stretch(counts, cutoff, ignore))


def equalize(image: np.ndarray) -> np.ndarray:
    """Per channel: values replaced so that their distribution is as even as possible."""
    return _by_table(image, _even)


def _by_table(image: np.ndarray, table_of: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Each channel through the table (uint8 [256]) of its own histogram."""
    channels = image.reshape(*image.shape[:2], -1)
    result = np.empty_like(channels)
    for k in range(channels.shape[2]):
        counts = np.bincount(channels[..., k].ravel(), minlength=256)
        result[..., k] = table_of(counts)[channels[..., k]]
    return result.reshape(image.shape)


def _stretch(counts: np.ndarray, cutoff: float, ignore: Sequence[int]) -> np.ndarray:
    counts = counts.copy()
    counts[list(ignore)] = 0
    size = int(counts.sum() * cutoff // 100)
    for order in (range(256), range(255, -1, -1)):
        cut = size
        for level in order:
            taken = min(cut, int(counts[level]))
            counts[level] -= taken
            cut -= taken
    used = np.flatnonzero(counts)
    levels = np.arange(256)
    if len(used) == 0 or used[0] == used[-1]:
        return levels.astype(np.uint8)
    scale = np.float32(255) / np.float32(used[-1] - used[0])
    stretched = levels.astype(np.float32) * scale - np.float32(used[0]) * scale
    result: np.ndarray = np.clip(np.trunc(stretched), 0, 255).astype(np.uint8)
    return result


def _even(counts: np.ndarray) -> np.ndarray:
    """The shares of smaller values, without the smallest one, scaled to 0..255."""
    lowest = np.flatnonzero(counts)[0]
    rest = counts.sum() - counts[lowest]
    if rest == 0:
        return np.arange(256, dtype=np.uint8)
    below = (np.cumsum(counts) - counts[lowest]).astype(np.float32)
    return as_bytes(below * (np.float32(255) / np.float32(rest)))


# Hue, saturation and value in Float64, as Python's `colorsys` computes them; channels are axis 0.


def from_rgb(colours: np.ndarray) -> np.ndarray:
    """[3, ...]: hue in parts of a turn, saturation, and the largest of red, green and blue."""
    red, green, blue = colours
    value, least = colours.max(0), colours.min(0)
    spread = value - least
    safe = np.where(spread == 0, 1.0, spread)
    from_red, from_green, from_blue = ((value - part) / safe for part in (red, green, blue))
    place = np.where(
        red == value,
        from_blue - from_green,
        np.where(green == value, 2.0 + from_red - from_blue, 4.0 + from_green - from_red),
    )
    hue = np.where(spread == 0, 0.0, (place / 6.0) % 1.0)
    saturation = np.where(spread == 0, 0.0, spread / np.where(value == 0, 1.0, value))
    return np.stack([hue, saturation, value])


def to_rgb(colours: np.ndarray) -> np.ndarray:
    """[3, ...]: red, green and blue."""
    hue, saturation, value = colours
    sector = np.trunc(hue * 6.0)
    part = hue * 6.0 - sector
    low = value * (1.0 - saturation)
    down = value * (1.0 - saturation * part)
    up = value * (1.0 - saturation * (1.0 - part))
    number = sector.astype(np.int64) % 6
    red = np.choose(number, [value, down, low, low, up, value])
    green = np.choose(number, [up, value, value, down, low, low])
    blue = np.choose(number, [low, low, up, value, value, down])
    return np.stack([red, green, blue])


# Affine images of an image in the fixed-point arithmetic of OpenCV's `warpAffine`, which MindSpore calls.
#
# Source positions are multiples of 1/1024 of a pixel, fractions for interpolation multiples of 1/32, weights of 2**-15.

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
