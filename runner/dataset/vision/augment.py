"""Random image transforms of whole batches, with random numbers per sample (`runner/dataset/visits.py`).

Source: `mindspore.dataset.vision.c_transforms` r1.2; `c_transforms` exports them. The reference draws from one
generator per worker, so its images depend on the number of workers; these do not.
"""

from collections.abc import Sequence
from copy import copy
from typing import Any, ClassVar, Self

import numpy as np
from numpy.lib.stride_tricks import as_strided

from runner.dataset.transforms.transform import RandomTransform, Transform
from runner.dataset.vision.image import (
    Border,
    StackTransform,
    border_of,
    borders_of,
    fill_of,
    height_and_width,
    padded,
    probability_of,
    require_image,
)
from runner.dataset.visits import Visits, bernoulli, bounded
from runner.errors import ConfigError
from runner.types import TensorType
from runner.validation.arguments import flag

PADDING_DIVISOR = 8  # of a side: the usual 4 pixels around CIFAR-10's 32


def crop_and_flip(side: int) -> list[Transform]:
    """The usual augmentation of training images of a size: a random crop after padding, and a random mirror image."""
    return [RandomCrop(side, padding=-(-side // PADDING_DIVISOR)), RandomHorizontalFlip()]


class RandomImageTransform(StackTransform, RandomTransform):
    """A random transform of images [H, W, C], or in its `channels_first` form of [C, H, W]."""

    row_axis = 0  # of a sample; the column axis is the next one

    def stack(self, batch: np.ndarray) -> np.ndarray:
        return self.apply(batch, Visits.of(np.arange(len(batch)), len(batch)))

    def channels_first(self) -> Self:
        """The same transform, with the same random numbers, for [C, H, W] images."""
        copied = copy(self)
        copied.row_axis = 1
        return copied


class RandomCrop(RandomImageTransform):
    """A crop of `size` (height and width, or one number for both) at a random position, after padding.

    `padding` is the number of pixels around the image: one for all borders, two for left and top, and for right and
    bottom, or four for left, top, right and bottom. They are black, or `fill_value` (one number, or red, green and
    blue), or for another `padding_mode` those of the image. With `pad_if_needed`, images that are smaller than the crop
    get wider borders on both sides. All positions are equally likely.

    >>> RandomCrop(32, padding=4)(np.zeros((8, 32, 32, 3), np.uint8)).shape
    (8, 32, 32, 3)
    """

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

    def __repr__(self) -> str:
        (top, bottom), (left, right) = self.padding
        return f"RandomCrop({self.size}, {(left, top, right, bottom)})"

    def infer(self, sample: TensorType) -> TensorType:
        """[height, width, C] for [H, W, C]. Raises ConfigError for images that are too small, padding included."""
        require_image(self, sample)
        shape = list(sample.shape)
        sides = shape[self.row_axis : self.row_axis + 2]
        borders = self._borders(sides)
        for k, (side, length, (before, after)) in enumerate(zip(sides, self.size, borders, strict=True)):
            if before + side + after < length:
                most = before + side + after
                allowed = f"1 to {most} ({side} and {before + after} of padding)"
                rows = {"argument": "size", "value": f"{('height', 'width')[k]} {length}", "allowed": allowed}
                raise ConfigError("the crop is larger than the padded image", **rows)
        shape[self.row_axis : self.row_axis + 2] = self.size
        return sample.with_shape(*shape)

    def apply(self, batch: np.ndarray, visits: Visits) -> np.ndarray:
        """The crops, [B, height, width, C], in new memory."""
        row, column = self.row_axis + 1, self.row_axis + 2
        rows, columns = self._borders(batch.shape[row : column + 1])
        larger = padded(batch, rows, columns, row, self.padding_mode, self.fill_value)
        offsets = [larger.shape[axis] - side + 1 for axis, side in zip((row, column), self.size, strict=True)]
        shape = list(larger.shape[1:])
        shape[self.row_axis : self.row_axis + 2] = self.size
        # A view of all crops of all images; indexing it copies one crop per image.
        strides = larger.strides
        crops = as_strided(
            larger, (len(batch), *offsets, *shape), (strides[0], strides[row], strides[column], *strides[1:])
        )
        numbers = visits.random(self.position, 2)
        tops, lefts = (bounded(drawn, limit) for drawn, limit in zip(numbers, offsets, strict=True))
        result: np.ndarray = crops[np.arange(len(batch)), tops, lefts]
        return result

    def attributes(self) -> dict[str, Any]:
        """The arguments; `padding` is (top, bottom) and (left, right)."""
        borders, names = [list(pair) for pair in self.padding], {"padding_mode": self.padding_mode.name}
        needed = {"pad_if_needed": self.pad_if_needed, "fill_value": list(self.fill_value)}
        return {"size": list(self.size), "padding": borders, **needed, **names}

    def _borders(self, sides: Sequence[int]) -> list[tuple[int, int]]:
        """Of rows and columns: before and after."""
        borders = []
        for side, length, (before, after) in zip(sides, self.size, self.padding, strict=True):
            more = max(0, length - (before + side + after)) if self.pad_if_needed else 0
            borders.append((before + more, after + more))
        return borders


class RandomFlip(RandomImageTransform):
    """Mirror each image with probability `prob`; subclasses name the axis."""

    flipped_axis: ClassVar[int]  # 0: rows, 1: columns

    def __init__(self, prob: float = 0.5) -> None:
        self.prob = probability_of(prob)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.prob})"

    def infer(self, sample: TensorType) -> TensorType:
        require_image(self, sample)
        return sample

    def apply(self, batch: np.ndarray, visits: Visits) -> np.ndarray:
        """[B, H, W, C], in new memory."""
        flipped = np.flatnonzero(bernoulli(visits.random(self.position, 1)[0], self.prob))
        result = batch.copy()
        result[flipped] = np.flip(batch[flipped], self.row_axis + 1 + self.flipped_axis)
        return result

    def attributes(self) -> dict[str, Any]:
        return {"prob": self.prob}


class RandomHorizontalFlip(RandomFlip):
    """Mirror each image horizontally with probability `prob`.

    >>> RandomHorizontalFlip(1.0)(np.array([[[[1], [2], [3]]]], np.uint8)).ravel().tolist()
    [3, 2, 1]
    """

    flipped_axis = 1


class RandomVerticalFlip(RandomFlip):
    """Mirror each image vertically with probability `prob`.

    >>> RandomVerticalFlip(1.0)(np.array([[[[1]], [[2]], [[3]]]], np.uint8)).ravel().tolist()
    [3, 2, 1]
    """

    flipped_axis = 0
