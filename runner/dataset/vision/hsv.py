"""Hue, saturation and value of colours in Float64, as Python's `colorsys` computes them; channels are axis 0."""

import numpy as np


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
