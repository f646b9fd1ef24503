"""Transforms of arrays, [C, H, W] unless stated otherwise: what follows `ToTensor`."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from runner import dtype as dt
from runner.dataset.draws import Draws, draws_of_call
from runner.dataset.transforms.sample_transform import SampleTransform
from runner.dataset.vision import hsv
from runner.dataset.vision.image import image_of
from runner.errors import ConfigError
from runner.types import TensorType
from runner.validation.arguments import above, as_list, finite_number, flag, one_of, whole_number

__all__ = ["HWC2CHW", "HsvToRgb", "LinearTransformation", "MixUp", "Normalize", "NormalizePad", "RgbToHsv"]


class HWC2CHW(SampleTransform):
    """[H, W, C] as [C, H, W]."""

    def one(self, value: Any, draws: Draws) -> np.ndarray:
        """Contiguous; raises ConfigError unless there are three axes."""
        image = image_of(self, value)
        if image.ndim != 3:
            raise ConfigError("HWC2CHW takes images [height, width, channels]", sample=TensorType.of(image))
        return np.ascontiguousarray(image.transpose(2, 0, 1))


class Normalize(SampleTransform):
    """`(x - mean) / std` of [C, H, W], with one mean and one deviation for each channel, or one of each for all.

    The values are usually those of `ToTensor`, 0..1. The result is Float32, or Float64 for Float64.
    """

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        self.mean = [finite_number("mean", value) for value in as_list(mean)]
        self.std = [finite_number("std", value) for value in as_list(std)]
        if not self.mean or len(self.mean) != len(self.std) or min(self.std) <= 0:
            rows = {"argument": "std", "value": std, "allowed": "as many numbers as mean has, each greater than 0"}
            raise ConfigError("Normalize needs one mean and one standard deviation per channel", **rows)

    def one(self, value: Any, draws: Draws) -> np.ndarray:
        """The same shape. Raises ConfigError for another number of channels."""
        image = image_of(self, value)
        if image.ndim != 3 or len(self.mean) not in (1, len(image)):
            allowed = "one number, or one per channel of [channels, height, width]"
            rows = {"argument": "mean", "value": len(self.mean), "allowed": allowed, "sample": TensorType.of(image)}
            raise ConfigError("the number of means differs from the number of channels", **rows)
        kind = image.dtype if image.dtype == np.float64 else np.dtype(np.float32)
        mean, std = (np.array(numbers, kind)[:, np.newaxis, np.newaxis] for numbers in (self.mean, self.std))
        result: np.ndarray = (image.astype(kind) - mean) / std
        return result


class NormalizePad(Normalize):
    """`Normalize`, and a further channel of zeros; `dtype` is "float32" or "float16"."""

    def __init__(self, mean: Sequence[float], std: Sequence[float], dtype: str = "float32") -> None:
        super().__init__(mean, std)
        one_of({}, ("float32", "float16"), dtype=dtype)
        self.dtype = dt.of(dtype)

    def one(self, value: Any, draws: Draws) -> np.ndarray:
        """[C + 1, H, W]."""
        values = super().one(value, draws)
        zeros = np.zeros((1, *values.shape[1:]), values.dtype)
        return np.concatenate([values, zeros]).astype(self.dtype.numpy)


class LinearTransformation(SampleTransform):
    """`(x - mean_vector) @ transformation_matrix` of the flattened image, in its shape.

    `transformation_matrix` is [D, D] and `mean_vector` [D], D the number of elements of an image.
    """

    def __init__(self, transformation_matrix: np.ndarray, mean_vector: np.ndarray) -> None:
        self.transformation_matrix, self.mean_vector = np.asarray(transformation_matrix), np.asarray(mean_vector)
        length = len(np.atleast_1d(self.mean_vector))
        if self.mean_vector.ndim != 1 or self.transformation_matrix.shape != (length, length):
            found = f"{self.transformation_matrix.shape} and {self.mean_vector.shape}"
            raise ConfigError("not a transformation", argument="mean_vector", value=found, allowed="[D, D] and [D]")

    def one(self, value: Any, draws: Draws) -> np.ndarray:
        """The same shape. Raises ConfigError for another number of elements."""
        image = np.asarray(value)
        if image.size != len(self.mean_vector):
            rows = {"argument": "mean_vector", "value": len(self.mean_vector), "sample": TensorType.of(image)}
            raise ConfigError("the image has another number of elements", **rows)
        result: np.ndarray = ((image.reshape(-1) - self.mean_vector) @ self.transformation_matrix).reshape(image.shape)
        return result


class RgbToHsv(SampleTransform):
    """Hue, saturation and value of RGB images [C, H, W] or [B, C, H, W]; channels last with `is_hwc`."""

    def __init__(self, is_hwc: bool = False) -> None:
        flag({}, is_hwc=is_hwc)
        self.is_hwc = is_hwc

    def one(self, value: Any, draws: Draws) -> np.ndarray:
        """The same shape and float type; Float64 for integers. Hues are in parts of a turn."""
        return _by_channels(self, value, self.is_hwc, hsv.from_rgb)


class HsvToRgb(SampleTransform):
    """The inverse of `RgbToHsv`."""

    def __init__(self, is_hwc: bool = False) -> None:
        flag({}, is_hwc=is_hwc)
        self.is_hwc = is_hwc

    def one(self, value: Any, draws: Draws) -> np.ndarray:
        """The same shape."""
        return _by_channels(self, value, self.is_hwc, hsv.to_rgb)


class MixUp:
    """Each sample of a batch mixed with another one: `x * share + other * (1 - share)`, images and labels.

    Shares are from the beta distribution (alpha, alpha), one for each sample. With `is_single` the other one is the
    next sample of the batch, otherwise the same row of the previous result. Called with images [batch_size, ...] and
    one-hot labels [batch_size, classes].

    Without `is_single`, results depend on the previous batch, so they are not those of an uninterrupted run after a
    resume.
    """

    def __init__(self, batch_size: int, alpha: float, is_single: bool = True) -> None:
        flag({}, is_single=is_single)
        above({}, 0.0, alpha=alpha)
        self.batch_size = whole_number("batch_size", batch_size, 1)
        self.alpha, self.is_single = alpha, is_single
        self._previous: tuple[np.ndarray, np.ndarray] | None = None

    def __repr__(self) -> str:
        return f"MixUp({self.batch_size}, {self.alpha}, {self.is_single})"

    def __call__(self, image: np.ndarray, label: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mixed images and labels, Float64. Raises ConfigError for another batch size."""
        if len(image) != self.batch_size or len(label) != self.batch_size or np.ndim(label) != 2:
            found = f"images {np.shape(image)}, labels {np.shape(label)}"
            repair = "batch(batch_size, drop_remainder=True) one-hot labels before"
            raise ConfigError(
                "MixUp takes batches of its batch_size", value=self.batch_size, found=found, repair=repair
            )
        shares = draws_of_call().generator().beta(self.alpha, self.alpha, self.batch_size)
        if self.is_single:
            others = np.roll(image, -1, axis=0), np.roll(label, -1, axis=0)
        else:
            others, shares = (self._previous, shares) if self._previous else ((image, label), np.ones_like(shares))
        mixed = []
        for part, other in zip((image, label), others, strict=True):
            weights = shares.reshape(-1, *[1] * (part.ndim - 1))
            mixed.append(weights * part + (1 - weights) * other)
        self._previous = mixed[0], mixed[1]
        return self._previous


def _by_channels(transform: SampleTransform, value: Any, is_hwc: bool, convert: Any) -> np.ndarray:
    image = np.asarray(value)
    axis = -1 if is_hwc else -3
    if image.ndim not in (3, 4) or image.shape[axis] != 3:
        allowed = "[..., H, W, 3]" if is_hwc else "[..., 3, H, W]"
        raise ConfigError(f"{transform!r} takes images of three channels", sample=TensorType.of(image), allowed=allowed)
    kind = image.dtype if image.dtype.kind == "f" else np.dtype(np.float64)
    converted = convert(np.moveaxis(image.astype(np.float64), axis, 0))
    return np.ascontiguousarray(np.moveaxis(converted, 0, axis)).astype(kind)
