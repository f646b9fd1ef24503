"""Arithmetic on the colours of one image: uint8 [H, W, C] (or [H, W]), RGB, to the same type.

Numbers are those of OpenCV, which the reference calls: products in float32, rounded to the nearest integer, halves to
even, and clipped to 0..255.
"""

from collections.abc import Callable, Sequence

import numpy as np

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
