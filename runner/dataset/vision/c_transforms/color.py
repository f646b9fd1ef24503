"""Colours of UInt8 images, [H, W, C] or [H, W]: fixed and random changes."""

from collections.abc import Sequence

import numpy as np

from runner.dataset.draws import Draws
from runner.dataset.vision import color
from runner.dataset.vision.image import ImageTransform, RandomImageSample, range_of, symmetric_range
from runner.errors import ConfigError
from runner.validation.arguments import as_list, finite_number, whole_number

__all__ = [
    "AutoContrast",
    "Equalize",
    "Invert",
    "RandomColor",
    "RandomColorAdjust",
    "RandomPosterize",
    "RandomSharpness",
    "RandomSolarize",
]

LARGEST_FACTOR = float(1 << 24)


class AutoContrast(ImageTransform):
    """The values of each channel stretched to 0..255.

    `cutoff` percent of the pixels at each end of the range are ignored (0 to below 50), and the values in `ignore`.
    """

    def __init__(self, cutoff: float = 0.0, ignore: int | Sequence[int] | None = None) -> None:
        self.cutoff = finite_number("cutoff", cutoff)
        if not 0.0 <= self.cutoff < 50.0:
            raise ConfigError("not a percentage to cut off", argument="cutoff", value=cutoff, allowed="0 to below 50")
        values = [] if ignore is None else as_list(ignore)
        self.ignore = [whole_number("ignore", value, 0, 255) for value in values]

    def image(self, image: np.ndarray, draws: Draws) -> np.ndarray:
        """The same shape."""
        return color.auto_contrast(image, self.cutoff, self.ignore)


class Equalize(ImageTransform):
    """The values of each channel replaced so that their distribution is as even as possible."""

    def image(self, image: np.ndarray, draws: Draws) -> np.ndarray:
        """The same shape."""
        return color.equalize(image)


class Invert(ImageTransform):
    """255 minus every value.

    >>> Invert()(np.array([[[0, 100, 255]]], np.uint8)).ravel().tolist()
    [255, 155, 0]
    """

    def image(self, image: np.ndarray, draws: Draws) -> np.ndarray:
        """The same shape."""
        return 255 - image


class RandomColor(RandomImageSample):
    """A random saturation: the factor is from `degrees` (low, high); 0 gives grey, 1 the image."""

    def __init__(self, degrees: Sequence[float] = (0.1, 1.9)) -> None:
        self.degrees = range_of("degrees", degrees, 0.0, LARGEST_FACTOR)

    def image(self, image: np.ndarray, draws: Draws) -> np.ndarray:
        """The same shape."""
        return color.saturation(image, draws.uniform(*self.degrees))


class RandomSharpness(RandomImageSample):
    """A random sharpness: the factor is from `degrees` (low, high); 0 blurs, 1 is the image, 2 sharpens."""

    def __init__(self, degrees: Sequence[float] = (0.1, 1.9)) -> None:
        self.degrees = range_of("degrees", degrees, 0.0, LARGEST_FACTOR)

    def image(self, image: np.ndarray, draws: Draws) -> np.ndarray:
        """The same shape."""
        return color.sharpness(image, draws.uniform(*self.degrees))


class RandomPosterize(RandomImageSample):
    """Only the highest bits of every value: a random number of them from `bits` (low, high), or always one number."""

    def __init__(self, bits: int | Sequence[int] = (8, 8)) -> None:
        numbers = [whole_number("bits", number, 1, 8) for number in as_list(bits)]
        low, high = range_of("bits", numbers * 2 if len(numbers) == 1 else numbers, 1, 8)
        self.bits = (int(low), int(high))

    def image(self, image: np.ndarray, draws: Draws) -> np.ndarray:
        """The same shape."""
        return color.posterize(image, draws.integer(*self.bits))


class RandomSolarize(RandomImageSample):
    """Values in a random part of the range `threshold` (low, high) inverted; of equal ends, all from there on."""

    def __init__(self, threshold: Sequence[int] = (0, 255)) -> None:
        low, high = range_of(
            "threshold", [whole_number("threshold", end, 0, 255) for end in as_list(threshold)], 0, 255
        )
        self.threshold = (int(low), int(high))

    def image(self, image: np.ndarray, draws: Draws) -> np.ndarray:
        """The same shape."""
        low, high = sorted(draws.integer(*self.threshold) for _ in range(2))
        return color.solarize(image, low, high)


class RandomColorAdjust(RandomImageSample):
    """Random brightness, contrast, saturation and hue, applied in a random order.

    The first three are ranges of factors (low, high), or one number x for max(0, 1 - x) to 1 + x. `hue` is a range of
    parts of a turn within -0.5..0.5, or one number x for -x..x.
    """

    def __init__(
        self,
        brightness: float | Sequence[float] = (1, 1),
        contrast: float | Sequence[float] = (1, 1),
        saturation: float | Sequence[float] = (1, 1),
        hue: float | Sequence[float] = (0, 0),
    ) -> None:
        self.brightness = factors("brightness", brightness)
        self.contrast = factors("contrast", contrast)
        self.saturation = factors("saturation", saturation)
        self.hue = symmetric_range("hue", hue, 0.5)

    def image(self, image: np.ndarray, draws: Draws) -> np.ndarray:
        """The same shape."""
        changes = [
            (color.brightness, draws.uniform(*self.brightness), 1.0),
            (color.contrast, draws.uniform(*self.contrast), 1.0),
            (color.saturation, draws.uniform(*self.saturation), 1.0),
            (color.hue, draws.uniform(*self.hue), 0.0),
        ]
        for change, amount, neutral in draws.order(changes):
            image = image if amount == neutral else change(image, amount)
        return image


def factors(argument: str, value: object) -> tuple[float, ...]:
    """The range (low, high) of a factor: given as such, or as the largest distance from 1."""
    if len(numbers := as_list(value)) == 1:
        distance = range_of(argument, [0.0, *numbers], 0.0, LARGEST_FACTOR)[1]
        return max(0.0, 1.0 - distance), 1.0 + distance
    return range_of(argument, numbers, 0.0, LARGEST_FACTOR)
