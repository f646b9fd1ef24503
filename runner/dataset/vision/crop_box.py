"""Random parts of an image, by share of its area and by aspect ratio."""

import math
from typing import NamedTuple

from runner.dataset.draws import Draws

DEFAULT_SCALE, DEFAULT_RATIO, ATTEMPTS = (0.08, 1.0), (3.0 / 4.0, 4.0 / 3.0), 10


class Box(NamedTuple):
    """The upper left corner of a part of an image, and its sides, in pixels."""

    top: int
    left: int
    height: int
    width: int


def random_box(
    draws: Draws,
    sides: tuple[int, int],
    scale: tuple[float, ...] = DEFAULT_SCALE,
    ratio: tuple[float, ...] = DEFAULT_RATIO,
    attempts: int = ATTEMPTS,
) -> Box:
    """A box with a share of the area from `scale`, and width / height from `ratio` (uniform in its logarithm).

    When no attempt fits into an image of `sides` (height, width), it is the largest one in the middle with a permitted
    ratio.
    """
    height, width = sides
    for _ in range(attempts):
        area = draws.uniform(*scale) * height * width
        aspect = math.exp(draws.uniform(math.log(ratio[0]), math.log(ratio[1])))
        new_width = round(math.sqrt(area * aspect))
        new_height = round(new_width / aspect)
        if 0 < new_width <= width and 0 < new_height <= height:
            top, left = draws.integer(0, height - new_height), draws.integer(0, width - new_width)
            return Box(top, left, new_height, new_width)
    aspect = min(max(width / height, ratio[0]), ratio[1])
    new_width = width if aspect >= width / height else max(1, round(height * aspect))
    new_height = height if aspect <= width / height else max(1, round(width / aspect))
    return Box((height - new_height) // 2, (width - new_width) // 2, new_height, new_width)
