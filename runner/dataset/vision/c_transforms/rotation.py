"""Random rotations and other affine images of UInt8 images, [H, W, C] or [H, W]."""

import math
from collections.abc import Sequence

import numpy as np

from runner.dataset.draws import Draws
from runner.dataset.vision.c_transforms.geometry import INTERPOLATIONS
from runner.dataset.vision.image import RandomImageSample, fill_of, filled, inter_of, range_of, symmetric_range
from runner.dataset.vision.inter import Inter
from runner.dataset.vision.warp import affine, rotation, warp
from runner.errors import ConfigError
from runner.validation.arguments import as_list, finite_number, flag

__all__ = ["RandomAffine", "RandomRotation"]


class RandomRotation(RandomImageSample):
    """A rotation by a random angle from `degrees` (low, high; one number x: -x to x), counter-clockwise.

    `resample` is Inter.NEAREST, LINEAR or CUBIC. `expand` enlarges the image to hold all of it. `center` is (x, y), by
    default the middle. `fill_value` is one number, or red, green and blue.
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
        self.resample = inter_of(resample, INTERPOLATIONS, "resample")
        self.expand = expand
        self.center = center_of(center)
        self.fill_value = fill_of(fill_value)

    def image(self, image: np.ndarray, draws: Draws) -> np.ndarray:
        """The same shape, unless `expand`."""
        return self._turned(image, draws.uniform(*self.degrees))

    def _turned(self, image: np.ndarray, degrees: float) -> np.ndarray:
        height, width = image.shape[:2]
        center = self.center or ((width - 1) / 2, (height - 1) / 2)
        matrix, size = rotation(center, degrees), (height, width)
        if self.expand:
            cosine, sine = abs(math.cos(math.radians(degrees))), abs(math.sin(math.radians(degrees)))
            across, down = width * cosine + height * sine, width * sine + height * cosine
            size = (round(down), round(across))
            matrix[:, 2] += (across / 2 - width / 2, down / 2 - height / 2)
        return warped(image, matrix, size, self.resample, self.fill_value)


class RandomAffine(RandomImageSample):
    """A random rotation, translation, scale and shear about the middle of the image.

    `degrees` and `shear` are (low, high) or x for -x to x, in degrees; `shear` may have a second range for y.
    `translate` has ranges of x, and of y, in parts of the sides, -1 to 1. `scale` is a range of factors.
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
        self.translate = _two_ranges("translate", translate, 1.0)
        self.scale = (1.0, 1.0) if scale is None else range_of("scale", scale, 1e-6, 1e6)
        single = shear is not None and len(as_list(shear)) == 1
        self.shear = _two_ranges("shear", symmetric_range("shear", shear, 180.0) if single else shear, 180.0)  # type: ignore[arg-type]
        self.resample = inter_of(resample, INTERPOLATIONS, "resample")
        self.fill_value = fill_of(fill_value)

    def image(self, image: np.ndarray, draws: Draws) -> np.ndarray:
        """The same shape."""
        height, width = image.shape[:2]
        angle = draws.uniform(*self.degrees)
        shift = (draws.uniform(*self.translate[:2]) * width, draws.uniform(*self.translate[2:]) * height)
        scale = draws.uniform(*self.scale)
        shear = (draws.uniform(*self.shear[:2]), draws.uniform(*self.shear[2:]))
        matrix = affine(((width - 1) / 2, (height - 1) / 2), angle, shift, scale, shear)
        return warped(image, matrix, (height, width), self.resample, self.fill_value)


def warped(
    image: np.ndarray, matrix: np.ndarray, size: tuple[int, int], interpolation: Inter, fill: tuple[int, ...]
) -> np.ndarray:
    """`warp` of an image with or without an axis of channels."""
    channels = image.reshape(*image.shape[:2], -1)
    made = warp(channels, matrix, size, interpolation, filled(fill, channels.shape[2]))
    return made.reshape(*size, *image.shape[2:])


def center_of(center: Sequence[float] | None) -> tuple[float, float] | None:
    """(x, y) or None. Raises ConfigError for anything else."""
    if center is None:
        return None
    values = [finite_number("center", value) for value in as_list(center)]
    if len(values) != 2:
        raise ConfigError("not a position", argument="center", value=center, allowed="(x, y)")
    return values[0], values[1]


def _two_ranges(argument: str, value: Sequence[float] | None, most: float) -> tuple[float, ...]:
    """Ranges of x and y: four numbers; of two, that of y is zero."""
    if value is None:
        return 0.0, 0.0, 0.0, 0.0
    if len(as_list(value)) == 2:
        return *range_of(argument, value, -most, most), 0.0, 0.0
    return range_of(argument, value, -most, most, 4)
