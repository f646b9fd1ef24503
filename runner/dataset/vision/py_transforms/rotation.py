"""Random rotations, affine images and perspectives of images of Pillow."""

import math
from collections.abc import Sequence

import numpy as np

from runner.dataset.draws import Draws
from runner.dataset.vision.c_transforms.rotation import center_of
from runner.dataset.vision.image import fill_of, inter_of, probability_of, range_of, symmetric_range
from runner.dataset.vision.inter import Inter
from runner.dataset.vision.pillow import PillowImage, pillow
from runner.dataset.vision.py_transforms.picture import TURNING_INTER, RandomPicture, colour_for, filter_of
from runner.errors import ConfigError
from runner.validation.arguments import as_list, flag

__all__ = ["RandomAffine", "RandomPerspective", "RandomRotation"]


class RandomRotation(RandomPicture):
    """A rotation by a random angle from `degrees` (low, high; one number x: -x to x), counter-clockwise.

    `expand` enlarges the image to hold all of it. `center` is (x, y), by default the middle.
    """

    def __init__(
        self,
        degrees: float | Sequence[float],
        resample: Inter = Inter.NEAREST,
        expand: bool = False,
        center: Sequence[float] | None = None,
        fill_value: int | Sequence[int] = 0,
    ) -> None:
        flag({}, expand=expand)
        self.degrees = symmetric_range("degrees", degrees)
        self.resample = inter_of(resample, TURNING_INTER, "resample")
        self.expand = expand
        self.center = center_of(center)
        self.fill_value = fill_of(fill_value)

    def picture(self, image: PillowImage, draws: Draws) -> PillowImage:
        """The same size, unless `expand`."""
        angle, colour = draws.uniform(*self.degrees), colour_for(image, self.fill_value)
        return image.rotate(angle, filter_of(self.resample), self.expand, self.center, fillcolor=colour)


class RandomAffine(RandomPicture):
    """A random rotation, translation, scale and shear about the middle of the image.

    `degrees` is (low, high) or x for -x to x, clockwise. `translate` has the largest shifts of x and y in parts of the
    sides. `scale` is a range of factors. `shear` is (low, high) or x for -x to x, or has a second range for y.
    """

    def __init__(
        self,
        degrees: float | Sequence[float],
        translate: Sequence[float] | None = None,
        scale: Sequence[float] | None = None,
        shear: float | Sequence[float] | None = None,
        resample: Inter = Inter.NEAREST,
        fill_value: int | Sequence[int] = 0,
    ) -> None:
        self.degrees = symmetric_range("degrees", degrees)
        self.translate = (0.0, 0.0) if translate is None else _shifts(translate)
        self.scale = (1.0, 1.0) if scale is None else range_of("scale", scale, 1e-6, 1e6)
        if shear is not None and len(as_list(shear)) == 4:
            self.shear = range_of("shear", shear, -180.0, 180.0, 4)
        else:
            self.shear = (*symmetric_range("shear", 0.0 if shear is None else shear, 180.0), 0.0, 0.0)
        self.resample = inter_of(resample, TURNING_INTER, "resample")
        self.fill_value = fill_of(fill_value)

    def picture(self, image: PillowImage, draws: Draws) -> PillowImage:
        """The same size."""
        angle = math.radians(draws.uniform(*self.degrees))
        shift = [round(draws.uniform(-k * n, k * n)) for k, n in zip(self.translate, image.size, strict=True)]
        scale = draws.uniform(*self.scale)
        shear = [math.radians(draws.uniform(*self.shear[k : k + 2])) for k in (0, 2)]
        center = [side * 0.5 + 0.5 for side in image.size]
        matrix = inverse_affine(angle, shear, scale, center, shift)
        method, colour = pillow().Image.Transform.AFFINE, colour_for(image, self.fill_value)
        return image.transform(image.size, method, matrix, filter_of(self.resample), fillcolor=colour)


class RandomPerspective(RandomPicture):
    """The image seen from a random side with probability `prob`.

    Each corner moves inwards by a random part of up to `distortion_scale` (0 to 1) of half the sides.
    """

    def __init__(self, distortion_scale: float = 0.5, prob: float = 0.5, interpolation: Inter = Inter.BICUBIC) -> None:
        self.distortion_scale = probability_of(distortion_scale, "distortion_scale")
        self.prob = probability_of(prob)
        self.interpolation = inter_of(interpolation, TURNING_INTER)

    def picture(self, image: PillowImage, draws: Draws) -> PillowImage:
        """The same size."""
        if not draws.chance(self.prob):
            return image
        (width, height), part = image.size, self.distortion_scale
        moves = [int(side / 2 * part) for side in (width, height)]
        corners = [(0, 0), (width - 1, 0), (width - 1, height - 1), (0, height - 1)]
        moved = []
        for x, y in corners:
            inwards = [draws.integer(0, most) for most in moves]
            moved.append((abs(x - inwards[0]), abs(y - inwards[1])))
        method = pillow().Image.Transform.PERSPECTIVE
        return image.transform(image.size, method, perspective(corners, moved), filter_of(self.interpolation))


def inverse_affine(
    angle: float, shear: Sequence[float], scale: float, center: Sequence[float], shift: Sequence[float]
) -> list[float]:
    """Pillow's six numbers of an affine image: from new to old positions; angles in radians."""
    x, y = angle + shear[0], angle + shear[1]
    factor = 1.0 / scale / (math.cos(x) * math.cos(y) + math.sin(x) * math.sin(y))
    rows = []
    for (a, b), middle in zip([(math.cos(x), math.sin(x)), (-math.sin(y), math.cos(y))], center, strict=True):
        a, b = a * factor, b * factor
        rows += [a, b, middle - a * (center[0] + shift[0]) - b * (center[1] + shift[1])]
    return rows


def perspective(old: Sequence[tuple[int, int]], new: Sequence[tuple[int, int]]) -> list[float]:
    """Pillow's eight numbers of the perspective that moves the four old corners to the new ones."""
    equations, results = [], []
    for (x, y), (u, v) in zip(new, old, strict=True):
        equations += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        results += [u, v]
    solution = np.linalg.lstsq(np.array(equations, float), np.array(results, float), rcond=None)[0]
    return [float(number) for number in solution]


def _shifts(translate: Sequence[float]) -> tuple[float, ...]:
    if len(as_list(translate)) != 2:
        allowed = "(x, y) in parts of the sides, each 0 to 1"
        raise ConfigError("not two shifts", argument="translate", value=translate, allowed=allowed)
    return tuple(probability_of(shift, "translate") for shift in translate)
