"""Sizes, parts and mirror images of images of Pillow."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from runner.dataset.draws import Draws
from runner.dataset.vision.border import Border
from runner.dataset.vision.crop_box import ATTEMPTS, DEFAULT_RATIO, DEFAULT_SCALE, Box, random_box
from runner.dataset.vision.image import (
    border_of,
    borders_of,
    fill_of,
    height_and_width,
    inter_of,
    probability_of,
    range_of,
    size_of,
)
from runner.dataset.vision.inter import Inter
from runner.dataset.vision.padding import padded
from runner.dataset.vision.pillow import PillowImage, pillow
from runner.dataset.vision.py_transforms.picture import (
    EVERY_INTER,
    PictureTransform,
    RandomPicture,
    filter_of,
)
from runner.errors import ConfigError
from runner.validation.arguments import flag, whole_number

__all__ = [
    "CenterCrop",
    "FiveCrop",
    "Pad",
    "RandomCrop",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomVerticalFlip",
    "Resize",
    "TenCrop",
]


class Resize(PictureTransform):
    """(height, width), or the length of the shorter side with the aspect ratio preserved, by Pillow's filters."""

    def __init__(self, size: int | Sequence[int], interpolation: Inter = Inter.BILINEAR) -> None:
        self.size = size_of(size)
        self.interpolation = inter_of(interpolation, EVERY_INTER)

    def picture(self, image: PillowImage, draws: Draws) -> PillowImage:
        """The resized image; the image itself when it has the size."""
        if len(self.size) == 2:
            new = (self.size[1], self.size[0])
        else:
            shorter, side = min(image.size), self.size[0]
            new = (max(1, side * image.width // shorter), max(1, side * image.height // shorter))
        return image if image.size == new else image.resize(new, filter_of(self.interpolation))


class CenterCrop(PictureTransform):
    """The middle of the image, `size` pixels (height and width, or one number for both); black around smaller ones."""

    def __init__(self, size: int | Sequence[int]) -> None:
        self.size = height_and_width(size)

    def picture(self, image: PillowImage, draws: Draws) -> PillowImage:
        """The crop."""
        return cropped(image, center_box(image, self.size))


class RandomResizedCrop(RandomPicture):
    """A random part of the image, in one size; see `c_transforms.RandomResizedCrop`."""

    def __init__(
        self,
        size: int | Sequence[int],
        scale: Sequence[float] = DEFAULT_SCALE,
        ratio: Sequence[float] = DEFAULT_RATIO,
        interpolation: Inter = Inter.BILINEAR,
        max_attempts: int = ATTEMPTS,
    ) -> None:
        self.size = height_and_width(size)
        self.scale = range_of("scale", scale, 0.0, 1e6)
        self.ratio = range_of("ratio", ratio, 1e-6, 1e6)
        self.interpolation = inter_of(interpolation, EVERY_INTER)
        self.max_attempts = whole_number("max_attempts", max_attempts, 1)

    def picture(self, image: PillowImage, draws: Draws) -> PillowImage:
        """The part, resized."""
        box = random_box(draws, (image.height, image.width), self.scale, self.ratio, self.max_attempts)
        return cropped(image, box).resize(self.size[::-1], filter_of(self.interpolation))


class RandomHorizontalFlip(RandomPicture):
    """The mirror image, left and right exchanged, with probability `prob`."""

    def __init__(self, prob: float = 0.5) -> None:
        self.prob = probability_of(prob)

    def picture(self, image: PillowImage, draws: Draws) -> PillowImage:
        """The same size."""
        return pillow().ImageOps.mirror(image) if draws.chance(self.prob) else image


class RandomVerticalFlip(RandomPicture):
    """The mirror image, top and bottom exchanged, with probability `prob`."""

    def __init__(self, prob: float = 0.5) -> None:
        self.prob = probability_of(prob)

    def picture(self, image: PillowImage, draws: Draws) -> PillowImage:
        """The same size."""
        return pillow().ImageOps.flip(image) if draws.chance(self.prob) else image


class FiveCrop(PictureTransform):
    """A tuple of five parts of one size: upper left, upper right, lower left, lower right, middle."""

    def __init__(self, size: int | Sequence[int]) -> None:
        self.size = height_and_width(size)

    def picture(self, image: PillowImage, draws: Draws) -> Any:
        """Five images. Raises ConfigError for an image that is smaller."""
        height, width = self.size
        down, across = image.height - height, image.width - width
        if down < 0 or across < 0:
            allowed = f"up to {(image.height, image.width)}"
            raise ConfigError("the crop is larger than the image", argument="size", value=self.size, allowed=allowed)
        corners = [(top, left) for top in (0, down) for left in (0, across)]
        parts = [cropped(image, Box(top, left, height, width)) for top, left in corners]
        return (*parts, cropped(image, center_box(image, self.size)))


class TenCrop(FiveCrop):
    """The five parts of `FiveCrop`, and those of the mirror image (with `use_vertical_flip`, upside down)."""

    def __init__(self, size: int | Sequence[int], use_vertical_flip: bool = False) -> None:
        flag({}, use_vertical_flip=use_vertical_flip)
        super().__init__(size)
        self.use_vertical_flip = use_vertical_flip

    def picture(self, image: PillowImage, draws: Draws) -> Any:
        """Ten images."""
        operations = pillow().ImageOps
        mirrored = operations.flip(image) if self.use_vertical_flip else operations.mirror(image)
        return (*super().picture(image, draws), *super().picture(mirrored, draws))


class Pad(PictureTransform):
    """Borders around the image; see `c_transforms.Pad`."""

    def __init__(
        self,
        padding: int | Sequence[int],
        fill_value: int | Sequence[int] = 0,
        padding_mode: Border = Border.CONSTANT,
    ) -> None:
        self.padding = borders_of(padding)
        self.fill_value = fill_of(fill_value)
        self.padding_mode = border_of(padding_mode)

    def picture(self, image: PillowImage, draws: Draws) -> PillowImage:
        """The larger image."""
        return bordered(image, *self.padding, self.padding_mode, self.fill_value)


class RandomCrop(RandomPicture):
    """A part of one size at a random place, after padding; see `c_transforms.RandomCrop`."""

    def __init__(
        self,
        size: int | Sequence[int],
        padding: int | Sequence[int] | None = None,
        pad_if_needed: bool = False,
        fill_value: int | Sequence[int] = 0,
        padding_mode: Border = Border.CONSTANT,
    ) -> None:
        flag({}, pad_if_needed=pad_if_needed)
        self.size = height_and_width(size)
        self.padding = borders_of(0 if padding is None else padding)
        self.pad_if_needed = pad_if_needed
        self.fill_value = fill_of(fill_value)
        self.padding_mode = border_of(padding_mode)

    def picture(self, image: PillowImage, draws: Draws) -> PillowImage:
        """The crop. Raises ConfigError for an image that is too small, padding included."""
        image = bordered(image, *self.padding, self.padding_mode, self.fill_value)
        height, width = self.size
        if self.pad_if_needed:
            down, across = max(0, height - image.height), max(0, width - image.width)
            image = bordered(image, (down, down), (across, across), self.padding_mode, self.fill_value)
        if height > image.height or width > image.width:
            allowed = f"up to {(image.height, image.width)}, padding included"
            raise ConfigError("the crop is larger than the image", argument="size", value=self.size, allowed=allowed)
        top, left = draws.integer(0, image.height - height), draws.integer(0, image.width - width)
        return cropped(image, Box(top, left, height, width))


def cropped(image: PillowImage, box: Box) -> PillowImage:
    """A part of an image; outside of it is black."""
    return image.crop((box.left, box.top, box.left + box.width, box.top + box.height))


def center_box(image: PillowImage, size: tuple[int, int]) -> Box:
    """The middle part of this size; half pixels are rounded to the nearest even number."""
    return Box(round((image.height - size[0]) / 2), round((image.width - size[1]) / 2), *size)


def bordered(
    image: PillowImage, rows: tuple[int, int], columns: tuple[int, int], mode: Border, fill: tuple[int, ...]
) -> PillowImage:
    """The image with (before, after) more rows and columns."""
    if not any((*rows, *columns)):
        return image
    array = np.asarray(image)
    planes = array.reshape(*array.shape[:2], -1)
    made = padded(planes[np.newaxis], rows, columns, 1, mode, fill)[0]
    return pillow().Image.fromarray(made.reshape(*made.shape[:2], *array.shape[2:]))  # type: ignore[no-any-return]
