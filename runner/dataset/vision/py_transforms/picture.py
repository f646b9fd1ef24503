"""What the transforms of Pillow's images share."""

from abc import abstractmethod
from typing import Any

import numpy as np

from runner.dataset.draws import Draws
from runner.dataset.transforms.sample_transform import RandomSampleTransform, SampleTransform
from runner.dataset.vision.inter import Inter
from runner.dataset.vision.pillow import PillowImage, is_pillow_image, pillow
from runner.errors import ConfigError

EVERY_INTER = (Inter.NEAREST, Inter.ANTIALIAS, Inter.BILINEAR, Inter.BICUBIC)
TURNING_INTER = (Inter.NEAREST, Inter.BILINEAR, Inter.BICUBIC)


class PictureTransform(SampleTransform):
    """A transform of an image of Pillow, or of an array of bytes [H, W, C] or [H, W], which becomes one.

    The result is an image of Pillow; in a pipeline the array of its bytes.
    """

    def one(self, value: Any, draws: Draws) -> Any:
        """The transformed image."""
        return self.picture(picture_of(self, value), draws)

    @abstractmethod
    def picture(self, image: PillowImage, draws: Draws) -> Any:
        """The transformed image."""


class RandomPicture(PictureTransform, RandomSampleTransform):
    """A random `PictureTransform`."""


def picture_of(transform: SampleTransform, value: Any) -> PillowImage:
    """An image of Pillow, or an array of bytes as one. Raises ConfigError for other values."""
    if is_pillow_image(value):
        return value  # type: ignore[no-any-return]
    array = np.asarray(value)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[..., 0]
    if array.dtype != np.uint8 or not (array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (3, 4))):
        found = f"{array.dtype.name} of shape {array.shape}" if array.dtype.kind in "biuf" else type(value).__name__
        allowed = "an image of Pillow, or UInt8 [height, width, channels]"
        raise ConfigError(f"{transform!r} takes images", found=found, allowed=allowed, repair="Decode or ToPIL before")
    return pillow().Image.fromarray(array)  # type: ignore[no-any-return]


def filter_of(interpolation: Inter) -> Any:
    """Pillow's name of an interpolation."""
    names = pillow().Image.Resampling
    filters = {Inter.NEAREST: names.NEAREST, Inter.ANTIALIAS: names.LANCZOS, Inter.BICUBIC: names.BICUBIC}
    return filters.get(interpolation, names.BILINEAR)


def colour_for(image: PillowImage, fill: tuple[int, ...]) -> Any:
    """A colour for an image: one number for grey ones."""
    bands = len(image.getbands())
    if bands == 1:
        return fill[0]
    return fill[:1] * bands if len(fill) == 1 else fill
