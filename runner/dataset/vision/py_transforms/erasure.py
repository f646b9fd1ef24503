"""Parts of arrays [C, H, W] that are erased at random."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from runner.dataset.draws import Draws
from runner.dataset.transforms.sample_transform import RandomSampleTransform
from runner.dataset.vision.image import image_of, probability_of, range_of
from runner.errors import ConfigError
from runner.types import TensorType
from runner.validation.arguments import as_list, finite_number, flag, whole_number

__all__ = ["Cutout", "RandomErasing"]


class RandomErasing(RandomSampleTransform):
    """A random rectangle of an image [C, H, W] replaced with probability `prob`.

    It has a share of the area from `scale` and a ratio of width and height from `ratio`. `value` is a number, three
    numbers (one per channel), or "random": normal random numbers. After `max_attempts` that do not fit, nothing is
    erased. `inplace` is accepted; the result is always new memory, as samples belong to the pipeline.
    """

    def __init__(
        self,
        prob: float = 0.5,
        scale: Sequence[float] = (0.02, 0.33),
        ratio: Sequence[float] = (0.3, 3.3),
        value: float | str | Sequence[float] = 0,
        inplace: bool = False,
        max_attempts: int = 10,
    ) -> None:
        flag({}, inplace=inplace)
        self.prob = probability_of(prob)
        self.scale = range_of("scale", scale, 0.0, 1e6)
        self.ratio = range_of("ratio", ratio, 1e-6, 1e6)
        self.value = _value(value)
        self.inplace = inplace
        self.max_attempts = whole_number("max_attempts", max_attempts, 1)

    def one(self, value: Any, draws: Draws) -> np.ndarray:
        """The same shape and type."""
        image = planes_of(self, value)
        if not draws.chance(self.prob):
            return image
        result, (height, width) = image.copy(), image.shape[1:]
        for _ in range(self.max_attempts):
            area, aspect = draws.uniform(*self.scale) * height * width, draws.uniform(*self.ratio)
            columns = round(math.sqrt(area * aspect))
            rows = round(columns / aspect)
            if rows < height and columns < width:
                top, left = draws.integer(0, height - rows), draws.integer(0, width - columns)
                result[:, top : top + rows, left : left + columns] = self._content(len(image), rows, columns, draws)
                break
        return result

    def _content(self, channels: int, rows: int, columns: int, draws: Draws) -> Any:
        if self.value == "random":
            return draws.generator().standard_normal((channels, rows, columns))
        if isinstance(self.value, list):
            if channels != 3:
                rows_ = {"argument": "value", "value": self.value, "allowed": "one number"}
                raise ConfigError("three values need three channels", **rows_)
            return np.array(self.value)[:, np.newaxis, np.newaxis]
        return self.value


class Cutout(RandomSampleTransform):
    """`num_patches` squares of `length` pixels of an image [C, H, W] set to zero, cut at the edges."""

    def __init__(self, length: int, num_patches: int = 1) -> None:
        self.length = whole_number("length", length, 1)
        self.num_patches = whole_number("num_patches", num_patches, 1)

    def one(self, value: Any, draws: Draws) -> np.ndarray:
        """The same shape and type. Raises ConfigError for a square as large as the image."""
        image = planes_of(self, value)
        height, width = image.shape[1:]
        if self.length >= min(height, width):
            allowed = f"up to {min(height, width) - 1}"
            raise ConfigError(
                "the patch is not smaller than the image", argument="length", value=self.length, allowed=allowed
            )
        result, half = image.copy(), self.length // 2
        for _ in range(self.num_patches):
            x, y = draws.integer(0, width), draws.integer(0, height)
            result[:, max(0, y - half) : min(height, y + half), max(0, x - half) : min(width, x + half)] = 0
        return result


def planes_of(transform: RandomSampleTransform, value: Any) -> np.ndarray:
    """An array [C, H, W]. Raises ConfigError for anything else."""
    image = image_of(transform, value)
    if image.ndim != 3:
        raise ConfigError(f"{transform!r} takes arrays [channels, height, width]", sample=TensorType.of(image))
    return image


def _value(value: Any) -> float | str | list[float]:
    if isinstance(value, str):
        if value != "random":
            raise ConfigError(
                "not a value", argument="value", value=value, allowed="a number, three numbers, or 'random'"
            )
        return value
    numbers = [finite_number("value", number) for number in as_list(value)]
    if len(numbers) not in (1, 3):
        raise ConfigError("not a value", argument="value", value=value, allowed="a number, three numbers, or 'random'")
    return numbers[0] if len(numbers) == 1 else numbers
