"""Random image transforms of whole batches, with random numbers per sample (`runner/dataset/visits.py`).

Source: `mindspore.dataset.vision.c_transforms` r1.2; `c_transforms` exports them. The reference draws from one
generator per worker, so its images depend on the number of workers; these do not.
"""

from collections.abc import Sequence
from copy import copy
from typing import Self

import numpy as np
from numpy.lib.stride_tricks import as_strided

from runner.dataset.transforms.transform import RandomTransform, Transform
from runner.dataset.vision.image import MAX_SIDE, require_image, size_of
from runner.dataset.visits import Visits, bernoulli, bounded
from runner.errors import ConfigError
from runner.types import TensorType
from runner.validation.arguments import as_list, finite_number, whole_number

PADDING_DIVISOR = 8  # of a side: the usual 4 pixels around CIFAR-10's 32


def crop_and_flip(side: int) -> list[Transform]:
    """The usual augmentation of training images of a size: a random crop after padding, and a random mirror image."""
    return [RandomCrop(side, padding=-(-side // PADDING_DIVISOR)), RandomHorizontalFlip()]


class RandomImageTransform(RandomTransform):
    """A random transform of images [H, W, C], or in its `channels_first` form of [C, H, W]."""

    row_axis = 0  # of a sample; the column axis is the next one

    def channels_first(self) -> Self:
        """The same transform, with the same random numbers, for [C, H, W] images."""
        copied = copy(self)
        copied.row_axis = 1
        return copied


class RandomCrop(RandomImageTransform):
    """A crop of `size` (height and width, or one number for both) at a random position, after padding.

    `padding` is the number of black pixels (zeros) around the image: one for all borders, two for left and top, and for
    right and bottom, or four for left, top, right and bottom. All positions are equally likely.

    >>> RandomCrop(32, padding=4)(np.zeros((8, 32, 32, 3), np.uint8)).shape
    (8, 32, 32, 3)
    """

    def __init__(self, size: int | Sequence[int], padding: int | Sequence[int] = 0) -> None:
        sides = size_of(size)
        self.size = (sides[0], sides[-1])
        borders = [whole_number("padding", border, 0, MAX_SIDE) for border in as_list(padding)]
        if len(borders) not in (1, 2, 4):
            allowed = "one number, (left and top, right and bottom), or (left, top, right, bottom)"
            raise ConfigError("not a padding", argument="padding", value=padding, allowed=allowed)
        left, top, right, bottom = (border for border in borders for _ in range(4 // len(borders)))
        self.padding = ((top, bottom), (left, right))

    def __repr__(self) -> str:
        (top, bottom), (left, right) = self.padding
        return f"RandomCrop({self.size}, {(left, top, right, bottom)})"

    def infer(self, sample: TensorType) -> TensorType:
        """[height, width, C] for [H, W, C]. Raises ConfigError for images that are too small, padding included."""
        require_image(self, sample)
        shape = list(sample.shape)
        for axis, length, borders in zip((self.row_axis, self.row_axis + 1), self.size, self.padding, strict=True):
            padded = shape[axis] + sum(borders)
            if padded < length:
                side = ("height", "width")[axis - self.row_axis]
                allowed = f"1 to {padded} ({shape[axis]} and {sum(borders)} of padding)"
                rows = {"argument": "size", "value": f"{side} {length}", "allowed": allowed}
                raise ConfigError("the crop is larger than the padded image", **rows)
            shape[axis] = length
        return sample.with_shape(*shape)

    def apply(self, batch: np.ndarray, visits: Visits) -> np.ndarray:
        """The crops, [B, height, width, C], in new memory."""
        padded, row, column = self._padded(batch), self.row_axis + 1, self.row_axis + 2
        offsets = [padded.shape[axis] - side + 1 for axis, side in zip((row, column), self.size, strict=True)]
        shape = list(padded.shape[1:])
        shape[self.row_axis : self.row_axis + 2] = self.size
        # A view of all crops of all images; indexing it copies one crop per image.
        strides = padded.strides
        crops = as_strided(
            padded, (len(batch), *offsets, *shape), (strides[0], strides[row], strides[column], *strides[1:])
        )
        numbers = visits.random(self.position, 2)
        tops, lefts = (bounded(drawn, limit) for drawn, limit in zip(numbers, offsets, strict=True))
        result: np.ndarray = crops[np.arange(len(batch)), tops, lefts]
        return result

    def _padded(self, batch: np.ndarray) -> np.ndarray:
        if not any(map(any, self.padding)):
            return batch
        shape, inside = list(batch.shape), [slice(None)] * batch.ndim
        for axis, (before, after) in enumerate(self.padding, start=self.row_axis + 1):
            inside[axis] = slice(before, before + shape[axis])
            shape[axis] += before + after
        padded = np.zeros(shape, batch.dtype)
        padded[tuple(inside)] = batch
        return padded


class RandomHorizontalFlip(RandomImageTransform):
    """Mirror each image horizontally with probability `prob`.

    >>> RandomHorizontalFlip(1.0)(np.array([[[[1], [2], [3]]]], np.uint8)).ravel().tolist()
    [3, 2, 1]
    """

    def __init__(self, prob: float = 0.5) -> None:
        self.prob = finite_number("prob", prob)
        if not 0.0 <= self.prob <= 1.0:
            raise ConfigError("not a probability", argument="prob", value=prob, allowed="0 to 1")

    def __repr__(self) -> str:
        return f"RandomHorizontalFlip({self.prob})"

    def infer(self, sample: TensorType) -> TensorType:
        """The same type."""
        require_image(self, sample)
        return sample

    def apply(self, batch: np.ndarray, visits: Visits) -> np.ndarray:
        """[B, H, W, C], in new memory."""
        flipped = np.flatnonzero(bernoulli(visits.random(self.position, 1)[0], self.prob))
        result = batch.copy()
        result[flipped] = np.flip(batch[flipped], self.row_axis + 2)
        return result
