"""Image transforms under the reference's names (imported as `CV`). Images are height x width x channels.

Source: `mindspore.dataset.vision.c_transforms` r1.2.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from runner import dtype as dt
from runner.dataset.transforms.transform import Affine, Transform
from runner.dataset.vision.augment import RandomCrop, RandomHorizontalFlip
from runner.dataset.vision.image import require_image, size_of
from runner.dataset.vision.inter import Inter
from runner.dataset.vision.resize import resize
from runner.dataset.vision.resize_operators import resize_operators
from runner.errors import ConfigError, known_names
from runner.types import TensorType
from runner.validation.arguments import as_list, finite_number

__all__ = ["HWC2CHW", "Normalize", "RandomCrop", "RandomHorizontalFlip", "Rescale", "Resize"]


class Resize(Transform):
    """Resize images, in the same element type (UInt8 or Float32).

    `size` is (height, width), or one number: the length of the shorter side, with the aspect ratio preserved.
    LINEAR has pixel centres at halves, as OpenCV's INTER_LINEAR; bytes are the exact values rounded, halves up.

    >>> Resize((2, 4))(np.array([[[[0], [100]]]], np.uint8))[0, 0, :, 0].tolist()
    [0, 25, 75, 100]
    """

    def __init__(self, size: int | Sequence[int], interpolation: Inter = Inter.LINEAR) -> None:
        self.size = size_of(size)
        if not isinstance(interpolation, Inter):
            names = [f"Inter.{name}" for name in Inter.__members__]
            rows = known_names(interpolation, names)
            raise ConfigError("not an interpolation", argument="interpolation", value=interpolation, **rows)
        self.interpolation = interpolation

    def __repr__(self) -> str:
        return f"Resize({self.size}, {self.interpolation.name})"

    def infer(self, sample: TensorType) -> TensorType:
        """[height, width, C] for [H, W, C]."""
        require_image(self, sample)
        if sample.dtype not in (dt.uint8, dt.float32):
            raise ConfigError("Resize takes UInt8 or Float32 images", sample=sample)
        return sample.with_shape(*self._new_size(sample.shape[0], sample.shape[1]), sample.shape[2])

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        """[B, height, width, C]; the batch itself when it already has the size."""
        return resize(batch, *self._new_size(batch.shape[1], batch.shape[2]), self.interpolation)

    def lower(self, batch: Any, ops: Any) -> Any:
        """The same numbers; images of bytes may have any size."""
        new = self._new_size(batch.shape[1], batch.shape[2])
        return resize_operators(batch, *new, self.interpolation, ops)

    @property
    def free_axes(self) -> tuple[str, ...]:
        """Height and width, unless the new size depends on them."""
        return ("height", "width") if len(self.size) == 2 else ()

    def attributes(self) -> dict[str, Any]:
        """`size`: height and width, or the shorter side; `interpolation`, by name."""
        return {"size": list(self.size), "interpolation": self.interpolation.name}

    def _new_size(self, height: int, width: int) -> tuple[int, int]:
        if len(self.size) == 2:
            return self.size[0], self.size[1]
        shorter = min(height, width)
        return max(1, self.size[0] * height // shorter), max(1, self.size[0] * width // shorter)


class Rescale(Affine):
    """`x * rescale + shift`, in Float32.

    >>> Rescale(0.5, -1.0)(np.array([0, 51, 255], np.uint8)).tolist()
    [-1.0, 24.5, 126.5]
    """

    def __init__(self, rescale: float, shift: float) -> None:
        super().__init__(np.asarray(finite_number("rescale", rescale)), np.asarray(finite_number("shift", shift)))


class Normalize(Affine):
    """`(x - mean) / std` with one mean and one standard deviation per channel, in Float32.

    >>> Normalize(mean=[10.0, 20.0], std=[2.0, 4.0])(np.array([[[[12, 12]]]], np.uint8)).ravel().tolist()
    [1.0, -2.0]
    """

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        means = np.array([finite_number("mean", value) for value in as_list(mean)])
        deviations = np.array([finite_number("std", value) for value in as_list(std)])
        if means.size == 0 or means.shape != deviations.shape or not (deviations > 0).all():
            rows = {"argument": "std", "value": std, "allowed": "as many numbers as mean has, each greater than 0"}
            raise ConfigError("Normalize needs one mean and one standard deviation per channel", **rows)
        super().__init__(1 / deviations, -means / deviations)

    def infer(self, sample: TensorType) -> TensorType:
        """[H, W, C] in Float32."""
        require_image(self, sample)
        if sample.shape[-1] != self.scale.size:
            rows = {"argument": "mean", "value": self.scale.size, "sample": sample}
            raise ConfigError("the number of means differs from the number of channels", **rows)
        return super().infer(sample)


class HWC2CHW(Transform):
    """[B, H, W, C] to [B, C, H, W]; with one channel, a view of the same memory."""

    def __repr__(self) -> str:
        return "HWC2CHW()"

    def infer(self, sample: TensorType) -> TensorType:
        """[C, H, W] for [H, W, C]."""
        require_image(self, sample)
        return sample.with_shape(sample.shape[2], *sample.shape[:2])

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        """Contiguous channels-first images."""
        count, height, width, channels = batch.shape
        if channels == 1:
            return batch.reshape(count, 1, height, width)
        return np.ascontiguousarray(batch.transpose(0, 3, 1, 2))

    def lower(self, batch: Any, ops: Any) -> Any:
        """A transposition."""
        return ops.Transpose((0, 3, 1, 2))(batch)

    def moved_before(self, other: Transform) -> Transform | None:
        """The channels-first form of `other`, such as of a transform per pixel or per channel."""
        return other.channels_first()
