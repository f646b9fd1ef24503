"""Values of images as Float32: scaling and normalization."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from runner import dtype as dt
from runner.dataset.transforms.transform import Affine, Transform
from runner.dataset.vision.image import require_image
from runner.errors import ConfigError
from runner.types import TensorType
from runner.validation.arguments import as_list, finite_number, one_of

__all__ = ["Normalize", "NormalizePad", "Rescale"]


class Rescale(Affine):
    """`x * rescale + shift`, in Float32.

    >>> Rescale(0.5, -1.0)(np.array([0, 51, 255], np.uint8)).tolist()
    [-1.0, 24.5, 126.5]
    """

    def __init__(self, rescale: float, shift: float) -> None:
        super().__init__(np.asarray(finite_number("rescale", rescale)), np.asarray(finite_number("shift", shift)))


class Normalize(Affine):
    """`(x - mean) / std` with one mean and one standard deviation per channel, or one of each for all, in Float32.

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
        if self.scale.size not in (1, sample.shape[-1]):
            rows = {"argument": "mean", "value": self.scale.size, "sample": sample}
            raise ConfigError("the number of means differs from the number of channels", **rows)
        return super().infer(sample)


class NormalizePad(Transform):
    """`Normalize`, and a further channel of zeros; `dtype` is "float32" or "float16".

    >>> NormalizePad([10.0], [2.0])(np.array([[[12]]], np.uint8)).ravel().tolist()
    [1.0, 0.0]
    """

    def __init__(self, mean: Sequence[float], std: Sequence[float], dtype: str = "float32") -> None:
        self.normalize = Normalize(mean, std)
        one_of({}, ("float32", "float16"), dtype=dtype)
        self.dtype = dt.of(dtype)

    def __repr__(self) -> str:
        return f"NormalizePad({self.normalize}, {self.dtype})"

    def infer(self, sample: TensorType) -> TensorType:
        """[H, W, C + 1]."""
        height, width, channels = self.normalize.infer(sample).shape
        return TensorType(self.dtype, (height, width, channels + 1))

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        """[..., H, W, C + 1], in new memory."""
        values = self.normalize(batch)
        zeros = np.zeros((*values.shape[:-1], 1), values.dtype)
        return np.concatenate([values, zeros], -1).astype(self.dtype.numpy, copy=False)

    def lower(self, batch: Any, ops: Any) -> Any:
        """Zeros after the channels."""
        values = self.normalize.lower(batch, ops)
        return ops.Cast(self.dtype)(ops.Pad(((0, 0), (0, 0), (0, 0), (0, 1)))(values))

    def attributes(self) -> dict[str, Any]:
        """Those of `Normalize`, and `dtype`, by name."""
        return {**self.normalize.attributes(), "dtype": self.dtype.numpy.name}
