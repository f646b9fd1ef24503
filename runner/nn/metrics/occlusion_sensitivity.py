"""Which parts of an image the score of a class depends on."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from runner.core.values import Tensor
from runner.errors import ConfigError, ShapeError
from runner.nn.cell import Cell
from runner.nn.metrics.base import Metric, rearrange_inputs, require_data
from runner.validation.arguments import whole

__all__ = ["OcclusionSensitivity"]


class OcclusionSensitivity(Metric):
    """How much the score of a class falls when a part of an image is covered: an array, large where it matters.

    `update(network, image, label)` takes a cell from (N, ...) to scores (N, C), one image (1, ...), and a class number.
    Around each element of the image, elements at a distance of up to `margin` (one number, or one per axis) become
    `pad_val`: from `margin` before it to `margin` - 1 after it. The network computes `n_batch` such images at once.
    `b_box` [first, last, first, last, ...] limits the elements along each axis; a negative `last` is the end. The value
    is that of the last update, without axes of length 1.
    """

    is_scalar = False

    def __init__(
        self,
        pad_val: float = 0.0,
        margin: int | Sequence[int] = 2,
        n_batch: int = 128,
        b_box: Sequence[int] | None = None,
    ) -> None:
        for one in [margin] if isinstance(margin, int) else margin:
            whole({}, 0, margin=one)
        whole({}, 1, n_batch=n_batch)
        self.pad_val, self.margin, self.n_batch, self.b_box = pad_val, margin, n_batch, b_box
        self.clear()

    def clear(self) -> None:
        self.value, self.count = np.zeros(0), 0

    @rearrange_inputs
    def update(self, network: Cell, image: Any, label: Any) -> None:
        if not isinstance(network, Cell):
            raise ConfigError("the first input is no network", given=type(network).__name__, allowed="a Cell")
        pixels, number = self._convert_data(image), self._convert_data(label)
        if len(pixels) != 1 or number.size != 1:
            raise ShapeError("one image and one label", image=pixels.shape, label=number.shape)
        margins = [self.margin] * (pixels.ndim - 1) if isinstance(self.margin, int) else list(self.margin)
        if len(margins) != pixels.ndim - 1:
            raise ConfigError("margin needs a number for each axis", given=margins, image=pixels.shape)
        first, last = self._box(pixels.shape[1:])
        places = [np.add(place, first) for place in np.ndindex(*np.add(np.subtract(last, first), 1))]
        scores = []
        for start in range(0, len(places), self.n_batch):
            covered = [self._covered(pixels, place, margins) for place in places[start : start + self.n_batch]]
            scores.append(_scores(network, np.concatenate(covered), int(number.item())))
        before = _scores(network, pixels, int(number.item()))
        shape = tuple(np.add(np.subtract(last, first), 1))
        self.value, self.count = np.squeeze(before - np.concatenate(scores).reshape(shape)), 1

    def eval(self) -> np.ndarray:
        require_data(self, self.count)
        return self.value

    def _covered(self, image: np.ndarray, place: np.ndarray, margins: Sequence[int]) -> np.ndarray:
        """The image with covered elements around a place."""
        ends = zip(place, margins, strict=True)
        around = tuple(slice(max(0, at - margin), at + margin) for at, margin in ends)
        covered = image.copy()
        covered[(slice(None), *around)] = self.pad_val
        return covered

    def _box(self, shape: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
        """The first and the last element along each axis. Raises ConfigError."""
        if self.b_box is None:
            return [0] * len(shape), [length - 1 for length in shape]
        rows = {"given": self.b_box, "image": tuple(shape)}
        if len(self.b_box) != 2 * len(shape):
            raise ConfigError("b_box needs two numbers for each axis", **rows)
        first = [max(0, one) for one in self.b_box[::2]]
        last = [length - 1 if one < 0 else one for one, length in zip(self.b_box[1::2], shape, strict=True)]
        if not all(start <= end < length for start, end, length in zip(first, last, shape, strict=True)):
            raise ConfigError("b_box is not in the image", **rows)
        return first, last


def _scores(network: Cell, images: np.ndarray, label: int) -> np.ndarray:
    """The scores (N,) that a network gives to a class."""
    scores: np.ndarray = network(Tensor(images)).asnumpy()[:, label]
    return scores
