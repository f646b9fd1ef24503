"""Between bytes of files, images of Pillow and arrays."""

from typing import Any

import numpy as np

from runner import dtype as dt
from runner.dataset.draws import Draws
from runner.dataset.transforms.sample_transform import SampleTransform
from runner.dataset.vision.image import image_of, probability_of
from runner.dataset.vision.pillow import PillowImage, decode_bytes
from runner.dataset.vision.py_transforms.picture import PictureTransform, RandomPicture, picture_of
from runner.errors import ConfigError
from runner.validation.arguments import whole_number

__all__ = ["Decode", "Grayscale", "RandomGrayscale", "ToPIL", "ToTensor", "ToType"]


class Decode(SampleTransform):
    """The RGB image of Pillow in the bytes of a PNG, JPEG, WebP or BMP file, uint8 [length]."""

    def one(self, value: Any, draws: Draws) -> PillowImage:
        """Raises DataError for a damaged image."""
        return decode_bytes(value)


class ToPIL(SampleTransform):
    """An array of bytes, [H, W, C] or [H, W], as an image of Pillow."""

    def one(self, value: Any, draws: Draws) -> PillowImage:
        """An image of Pillow stays as it is."""
        return picture_of(self, value)


class ToTensor(SampleTransform):
    """An image, [H, W, C] with values 0..255, as an array [C, H, W] of 0..1 in `output_type`."""

    def __init__(self, output_type: Any = np.float32) -> None:
        self.output_type = dt.of(output_type)

    def one(self, value: Any, draws: Draws) -> np.ndarray:
        """[C, H, W]; one channel for [H, W]."""
        image = image_of(self, value)
        planes = image[np.newaxis] if image.ndim == 2 else image.transpose(2, 0, 1)
        return np.ascontiguousarray((planes / 255.0).astype(self.output_type.numpy))


class ToType(SampleTransform):
    """An array in another element type."""

    def __init__(self, output_type: Any) -> None:
        self.output_type = dt.of(output_type)

    def one(self, value: Any, draws: Draws) -> np.ndarray:
        """The same shape."""
        return np.asarray(value).astype(self.output_type.numpy)


class Grayscale(PictureTransform):
    """Luminance, in 1 channel, or the same in 3."""

    def __init__(self, num_output_channels: int = 1) -> None:
        self.num_output_channels = whole_number("num_output_channels", num_output_channels, 1, 3)
        if self.num_output_channels == 2:
            rows = {"argument": "num_output_channels", "value": num_output_channels, "allowed": "1 or 3"}
            raise ConfigError("not a number of channels", **rows)

    def picture(self, image: PillowImage, draws: Draws) -> PillowImage:
        """One band, or three."""
        grey = image.convert("L")
        return grey if self.num_output_channels == 1 else grey.convert("RGB")


class RandomGrayscale(RandomPicture):
    """Without colours with probability `prob`; the number of channels stays."""

    def __init__(self, prob: float = 0.1) -> None:
        self.prob = probability_of(prob)

    def picture(self, image: PillowImage, draws: Draws) -> PillowImage:
        """The same size and mode."""
        return image.convert("L").convert(image.mode) if draws.chance(self.prob) else image
