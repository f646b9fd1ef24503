"""Images as the built-in datasets prepare them: those of the datasets, and new files for a trained network."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from runner.dataset.column import Column
from runner.dataset.order import SourceOrder
from runner.dataset.pipeline import Dataset
from runner.dataset.preprocessing import Preprocessing
from runner.dataset.readers.arguments import require_files
from runner.dataset.readers.image_file import decode, read_header
from runner.dataset.transforms.transform import Transform
from runner.dataset.vision.augment import crop_and_flip
from runner.dataset.vision.c_transforms.geometry import HWC2CHW, Resize
from runner.dataset.vision.c_transforms.intensity import Normalize, Rescale
from runner.dataset.vision.image import MAX_SIDE
from runner.host.json import StoredValues
from runner.host.machine import require_memory

__all__ = ["CatalogImages"]

# Mean and standard deviation of the training images, as in the reference's examples of the two datasets.
NORMALIZATIONS: dict[str, Transform] = {
    "mnist": Rescale(1 / 0.3081, -1 * 0.1307 / 0.3081),
    "cifar10": Normalize((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
}
IMAGE = "image"


class CatalogImages(Preprocessing):
    """Images of any size as Float32 [channels, image_size, image_size], resized by `vision.Resize`, scaled to 0..1.

    `normalization` is one of NORMALIZATIONS; None: values stay 0 to 1.
    """

    def __init__(self, image_size: int, channels: int, normalization: str | None) -> None:
        self.image_size, self.channels, self.normalization = image_size, channels, normalization

    def transforms(self, augment: bool = False) -> list[Transform]:
        """From bytes [H, W, channels] to the network's input."""
        steps: list[Transform] = [Resize((self.image_size, self.image_size))]
        if augment:
            steps += crop_and_flip(self.image_size)
        steps.append(Rescale(1.0 / 255.0, 0.0))
        if self.normalization is not None:
            steps.append(NORMALIZATIONS[self.normalization])
        return [*steps, HWC2CHW()]

    def read(self, paths: Sequence[Path]) -> Dataset:
        """The images in these files: column `image`. Raises DataError for a file that is no image."""
        require_files(paths)
        for path in paths:
            read_header(path)
        data = self.from_pixels(decode(path, None, self.channels)[np.newaxis] for path in paths)
        data.row_names = [str(path) for path in paths]
        return data

    def from_pixels(self, stacks: Iterable[np.ndarray]) -> Dataset:
        """The images in stacks of bytes [N, H, W, channels], each with its own height and width."""
        resize = self.transforms()[0]
        resized = [resize(stack) for stack in stacks]
        count = sum(map(len, resized))
        require_memory(4 * count * self.channels * self.image_size**2, images=count, image_size=self.image_size)
        data = Dataset([Column(IMAGE, np.concatenate(resized))], SourceOrder(count)).map(self.transforms(), IMAGE)
        data.preprocessing = self
        return data

    def as_json(self) -> dict[str, Any]:
        """The values of the constructor."""
        values = {"image_size": self.image_size, "channels": self.channels, "normalization": self.normalization}
        return {"reader": "catalog", **values}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """The preprocessing from the result of `as_json`. Raises DataError for any other values."""
        stored = StoredValues(values)
        name = values.get("normalization")
        stored.require(name is None or name in tuple(NORMALIZATIONS), "normalization", ", ".join(NORMALIZATIONS))
        return cls(stored.whole("image_size", 1, MAX_SIDE), stored.whole("channels", 1, 3), name)
