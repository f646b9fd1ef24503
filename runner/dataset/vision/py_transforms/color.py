"""Colours of images of Pillow."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from runner.dataset.draws import Draws
from runner.dataset.transforms.sample_transform import RandomSampleTransform, require_transforms, transform_one
from runner.dataset.vision.c_transforms.color import LARGEST_FACTOR, factors
from runner.dataset.vision.image import range_of, symmetric_range
from runner.dataset.vision.pillow import PillowImage, pillow
from runner.dataset.vision.py_transforms.picture import PictureTransform, RandomPicture
from runner.errors import ConfigError
from runner.validation.arguments import as_list, finite_number, whole_number

__all__ = [
    "AutoContrast",
    "Equalize",
    "Invert",
    "RandomColor",
    "RandomColorAdjust",
    "RandomSharpness",
    "UniformAugment",
]


class AutoContrast(PictureTransform):
    """Values stretched to 0..255, without `cutoff` percent at each end and the values in `ignore`."""

    def __init__(self, cutoff: float = 0.0, ignore: int | Sequence[int] | None = None) -> None:
        self.cutoff = finite_number("cutoff", cutoff)
        if not 0.0 <= self.cutoff < 50.0:
            raise ConfigError("not a percentage to cut off", argument="cutoff", value=cutoff, allowed="0 to below 50")
        self.ignore = None if ignore is None else [whole_number("ignore", k, 0, 255) for k in as_list(ignore)]

    def picture(self, image: PillowImage, draws: Draws) -> PillowImage:
        """The same size and mode."""
        return pillow().ImageOps.autocontrast(image, self.cutoff, self.ignore)  # type: ignore[no-any-return]


class Equalize(PictureTransform):
    """Values replaced so that their distribution is as even as possible."""

    def picture(self, image: PillowImage, draws: Draws) -> PillowImage:
        """The same size and mode."""
        return pillow().ImageOps.equalize(image)  # type: ignore[no-any-return]


class Invert(PictureTransform):
    """255 minus every value."""

    def picture(self, image: PillowImage, draws: Draws) -> PillowImage:
        """The same size and mode."""
        return pillow().ImageOps.invert(image)  # type: ignore[no-any-return]


class RandomColor(RandomPicture):
    """A random saturation: the factor is from `degrees` (low, high); 0 gives grey, 1 the image."""

    def __init__(self, degrees: Sequence[float] = (0.1, 1.9)) -> None:
        self.degrees = range_of("degrees", degrees, 0.0, LARGEST_FACTOR)

    def picture(self, image: PillowImage, draws: Draws) -> PillowImage:
        """The same size and mode."""
        return enhanced("Color", image, draws.uniform(*self.degrees))


class RandomSharpness(RandomPicture):
    """A random sharpness: the factor is from `degrees` (low, high); 0 blurs, 1 is the image, 2 sharpens."""

    def __init__(self, degrees: Sequence[float] = (0.1, 1.9)) -> None:
        self.degrees = range_of("degrees", degrees, 0.0, LARGEST_FACTOR)

    def picture(self, image: PillowImage, draws: Draws) -> PillowImage:
        """The same size and mode."""
        return enhanced("Sharpness", image, draws.uniform(*self.degrees))


class RandomColorAdjust(RandomPicture):
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

    def picture(self, image: PillowImage, draws: Draws) -> PillowImage:
        """The same size and mode."""
        names = {"Brightness": self.brightness, "Contrast": self.contrast, "Color": self.saturation, "Hue": self.hue}
        amounts = [(name, draws.uniform(*limits)) for name, limits in names.items()]
        for name, amount in draws.order(amounts):
            image = turned_hue(image, amount) if name == "Hue" else enhanced(name, image, amount)
        return image


class UniformAugment(RandomSampleTransform):
    """`num_ops` of the transforms, chosen at random without repetition, each applied with a random probability."""

    def __init__(self, transforms: Sequence[Any], num_ops: int = 2) -> None:
        self.transforms = require_transforms(transforms)
        self.num_ops = whole_number("num_ops", num_ops, 1, len(self.transforms))

    def one(self, value: Any, draws: Draws) -> Any:
        """The transformed sample."""
        for operation in draws.order(self.transforms)[: self.num_ops]:
            if draws.chance(draws.uniform()):
                value = transform_one(operation, (value,), draws)
        return value


def enhanced(name: str, image: PillowImage, factor: float) -> PillowImage:
    """Pillow's `ImageEnhance` of this name with a factor; 1 is the image."""
    return getattr(pillow().ImageEnhance, name)(image).enhance(factor)  # type: ignore[no-any-return]


def turned_hue(image: PillowImage, shift: float) -> PillowImage:
    """Hues turned by `shift` of a whole turn; grey images have none."""
    if image.mode in ("L", "1", "I", "F"):
        return image
    hue, saturation, value = image.convert("HSV").split()
    turned = (np.array(hue, np.int64) + int(shift * 255)) % 256
    images = pillow().Image
    bands = (images.fromarray(turned.astype(np.uint8)), saturation, value)
    return images.merge("HSV", bands).convert(image.mode)  # type: ignore[no-any-return]
