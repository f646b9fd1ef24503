"""Images from the bytes of files, and random parts of images in one size."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from runner.dataset.draws import Draws
from runner.dataset.transforms.sample_transform import SampleTransform
from runner.dataset.vision.c_transforms.geometry import INTERPOLATIONS, Resize
from runner.dataset.vision.crop_box import ATTEMPTS, DEFAULT_RATIO, DEFAULT_SCALE, random_box
from runner.dataset.vision.image import RandomImageSample, height_and_width, inter_of, range_of
from runner.dataset.vision.inter import Inter
from runner.dataset.vision.pillow import decode_bytes
from runner.errors import ConfigError
from runner.validation.arguments import whole_number

__all__ = [
    "Decode",
    "RandomCropDecodeResize",
    "RandomResize",
    "RandomResizedCrop",
    "SoftDvppDecodeRandomCropResizeJpeg",
    "SoftDvppDecodeResizeJpeg",
]

LARGEST_SCALE = 1e6


class Decode(SampleTransform):
    """The image in the bytes of a PNG, JPEG, WebP or BMP file, uint8 [length], as RGB uint8 [H, W, 3].

    `rgb=False` (BGR) is not supported, as the reference has deprecated it. Decoding needs Pillow (the extra `images`).
    Raises DataError for a damaged image.
    """

    def __init__(self, rgb: bool = True) -> None:
        if rgb is not True:
            repair = "Decode(), and reverse the channels in a function of your own"
            raise ConfigError("images are decoded as RGB", argument="rgb", value=rgb, allowed="True", repair=repair)

    def one(self, value: Any, draws: Draws) -> np.ndarray:
        """[H, W, 3] for the bytes of one file."""
        return np.array(decode_bytes(value), np.uint8)


class RandomResizedCrop(RandomImageSample):
    """A random part of each image, in one size (height and width, or one number for both).

    The part has a share of the area from `scale` and an aspect ratio from `ratio`; after `max_attempts` that
    do not fit, it is the middle of the image. UInt8 or Float32.
    """

    bytes_only = False

    def __init__(
        self,
        size: int | Sequence[int],
        scale: Sequence[float] = DEFAULT_SCALE,
        ratio: Sequence[float] = DEFAULT_RATIO,
        interpolation: Inter = Inter.BILINEAR,
        max_attempts: int = ATTEMPTS,
    ) -> None:
        self.size = height_and_width(size)
        self.scale = range_of("scale", scale, 0.0, LARGEST_SCALE)
        self.ratio = range_of("ratio", ratio, 1e-6, LARGEST_SCALE)
        self.interpolation = inter_of(interpolation, INTERPOLATIONS)
        self.max_attempts = whole_number("max_attempts", max_attempts, 1)

    def image(self, image: np.ndarray, draws: Draws) -> np.ndarray:
        """[height, width, C]."""
        box = random_box(draws, (image.shape[0], image.shape[1]), self.scale, self.ratio, self.max_attempts)
        part = image[box.top : box.top + box.height, box.left : box.left + box.width]
        return Resize(self.size, self.interpolation)(np.ascontiguousarray(part))


class RandomCropDecodeResize(RandomResizedCrop):
    """`Decode`, then `RandomResizedCrop`: bytes of files, uint8 [length], as RGB uint8 [height, width, 3]."""

    def one(self, value: Any, draws: Draws) -> np.ndarray:
        """[height, width, 3] for the bytes of one file."""
        return self.image(np.array(decode_bytes(value), np.uint8), draws)


class SoftDvppDecodeRandomCropResizeJpeg(RandomCropDecodeResize):
    """`RandomCropDecodeResize` with linear interpolation."""

    def __init__(
        self,
        size: int | Sequence[int],
        scale: Sequence[float] = DEFAULT_SCALE,
        ratio: Sequence[float] = DEFAULT_RATIO,
        max_attempts: int = ATTEMPTS,
    ) -> None:
        super().__init__(size, scale, ratio, Inter.LINEAR, max_attempts)


class SoftDvppDecodeResizeJpeg(SampleTransform):
    """`Decode`, then a linear `Resize`."""

    def __init__(self, size: int | Sequence[int]) -> None:
        self.resize = Resize(size)

    def one(self, value: Any, draws: Draws) -> np.ndarray:
        """[height, width, 3] for the bytes of one file."""
        return self.resize(decode_bytes(value))


class RandomResize(RandomImageSample):
    """`Resize` with an interpolation chosen at random."""

    bytes_only = False

    def __init__(self, size: int | Sequence[int]) -> None:
        self.size = Resize(size).size

    def image(self, image: np.ndarray, draws: Draws) -> np.ndarray:
        """[height, width, C]."""
        return Resize(self.size, draws.choice(INTERPOLATIONS))(image)
