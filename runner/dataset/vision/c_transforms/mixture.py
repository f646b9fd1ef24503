"""Mixtures of the images of a batch with their labels, and parts of images that are cut out.

`CutMixBatch` and `MixUpBatch` take two columns after `batch`: images and one-hot labels. They draw from the numbers of
the call (`runner/dataset/draws.py`).
"""

import math

import numpy as np

from runner.dataset.draws import Draws, draws_of_call
from runner.dataset.vision.border import ImageBatchFormat
from runner.dataset.vision.image import RandomImageSample, probability_of
from runner.errors import ConfigError
from runner.validation.arguments import above, whole_number

__all__ = ["CutMixBatch", "CutOut", "MixUpBatch"]


class CutOut(RandomImageSample):
    """`num_patches` black squares of `length` pixels around random positions, partly outside at the edges."""

    bytes_only = False

    def __init__(self, length: int, num_patches: int = 1) -> None:
        self.length = whole_number("length", length, 1)
        self.num_patches = whole_number("num_patches", num_patches, 1)

    def image(self, image: np.ndarray, draws: Draws) -> np.ndarray:
        """The same shape."""
        result = image.copy()
        for _ in range(self.num_patches):
            top, left = (draws.integer(0, side - 1) - self.length // 2 for side in image.shape[:2])
            result[max(0, top) : max(0, top + self.length), max(0, left) : max(0, left + self.length)] = 0
        return result


class MixUpBatch:
    """A batch mixed with the same batch in another order: `x * share + x[order] * (1 - share)`, images and labels.

    One share for the batch, from the beta distribution (alpha, alpha). Called with images [B, ...] and one-hot labels
    [B, classes] (or [B, rows, classes]); returns both as Float32.
    """

    def __init__(self, alpha: float = 1.0) -> None:
        above({}, 0.0, alpha=alpha)
        self.alpha = alpha

    def __repr__(self) -> str:
        return f"MixUpBatch(alpha={self.alpha})"

    def __call__(self, images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mixed images and labels. Raises ConfigError unless labels are one-hot."""
        require_one_hot(self, images, labels)
        draws = draws_of_call()
        order = draws.order(range(len(images)))
        share = np.float32(draws.generator().beta(self.alpha, self.alpha))
        mixed = [
            part.astype(np.float32) * share + part[order].astype(np.float32) * (1 - share) for part in (images, labels)
        ]
        return mixed[0], mixed[1]


class CutMixBatch:
    """A random rectangle of each image replaced by that of another image of the batch, labels mixed by area.

    The area has the share `1 - x`, x from the beta distribution (alpha, alpha); each image is changed with probability
    `prob`. Called with images in `image_batch_format` and one-hot labels [B, classes] (or [B, rows, classes]); returns
    images in their type and Float32 labels.
    """

    def __init__(self, image_batch_format: ImageBatchFormat, alpha: float = 1.0, prob: float = 1.0) -> None:
        if not isinstance(image_batch_format, ImageBatchFormat):
            rows = {"value": image_batch_format, "allowed": "ImageBatchFormat.NHWC, ImageBatchFormat.NCHW"}
            raise ConfigError("not a layout of batches", argument="image_batch_format", **rows)
        above({}, 0.0, alpha=alpha)
        self.image_batch_format = image_batch_format
        self.alpha = alpha
        self.prob = probability_of(prob)

    def __repr__(self) -> str:
        return f"CutMixBatch({self.image_batch_format.name}, alpha={self.alpha}, prob={self.prob})"

    def __call__(self, images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mixed images and labels. Raises ConfigError unless there are four axes, and labels are one-hot."""
        if images.ndim != 4:
            raise ConfigError(f"{self!r} takes batches of images, four axes: map after batch", found=images.shape)
        require_one_hot(self, images, labels)
        draws = draws_of_call()
        order = draws.order(range(len(images)))
        first = 1 if self.image_batch_format is ImageBatchFormat.NHWC else 2
        changed, weights = images.copy(), labels.astype(np.float32)
        for number, other in enumerate(order):
            if not draws.chance(self.prob):
                continue
            box = self._box(draws, images.shape[first : first + 2])
            inside = (*[slice(None)] * (first - 1), *box)
            changed[number][inside] = images[other][inside]
            area = (box[0].stop - box[0].start) * (box[1].stop - box[1].start)
            share = np.float32(1 - area / math.prod(images.shape[first : first + 2]))
            weights[number] = labels[number] * share + labels[other] * (1 - share)
        return changed, weights

    def _box(self, draws: Draws, sides: tuple[int, ...]) -> list[slice]:
        """Rows and columns of the rectangle, cut at the edges."""
        part = math.sqrt(1 - draws.generator().beta(self.alpha, self.alpha))
        box = []
        for side in sides:
            length, middle = int(side * part), draws.integer(0, side - 1)
            start = max(0, middle - length // 2)
            box.append(slice(start, max(start, min(side, middle + length // 2))))
        return box


def require_one_hot(transform: object, images: np.ndarray, labels: np.ndarray) -> None:
    """Raise ConfigError unless labels have as many rows as images, and two or three axes."""
    if np.ndim(labels) not in (2, 3) or len(labels) != len(images):
        repair = "map(OneHot(num_classes)) the labels, then batch, then map both columns"
        found = f"images {np.shape(images)}, labels {np.shape(labels)}"
        raise ConfigError(f"{transform!r} takes a batch of images and one-hot labels", found=found, repair=repair)
