"""Image transforms without random numbers, of whole batches: sizes, layouts, and values as Float32.

Those that have operators run inside of graphs too. The random ones are in `augment.py`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from runner import dtype as dt
from runner.dataset.transforms.transform import Affine, Transform
from runner.dataset.vision.image import (
    Border,
    Inter,
    StackTransform,
    border_of,
    borders_of,
    fill_of,
    height_and_width,
    inter_of,
    padded,
    require_image,
    size_of,
)
from runner.dataset.vision.resize import resize, resize_operators
from runner.errors import ConfigError
from runner.types import TensorType
from runner.validation.arguments import as_list, finite_number, one_of

INTERPOLATIONS = (Inter.NEAREST, Inter.LINEAR, Inter.CUBIC)


class Resize(StackTransform):
    """Resize images, in the same element type (UInt8 or Float32).

    `size` is (height, width), or one number: the length of the shorter side, with the aspect ratio preserved.
    LINEAR has pixel centres at halves, as OpenCV's INTER_LINEAR; bytes are the exact values rounded, halves up.
    CUBIC (BICUBIC) has the numbers of OpenCV's INTER_CUBIC.

    >>> Resize((2, 4))(np.array([[[[0], [100]]]], np.uint8))[0, 0, :, 0].tolist()
    [0, 25, 75, 100]
    """

    def __init__(self, size: int | Sequence[int], interpolation: Inter = Inter.LINEAR) -> None:
        self.size = size_of(size)
        self.interpolation = inter_of(interpolation, INTERPOLATIONS)

    def __repr__(self) -> str:
        return f"Resize({self.size}, {self.interpolation.name})"

    def infer(self, sample: TensorType) -> TensorType:
        """[height, width, C] for [H, W, C]."""
        require_image(self, sample)
        if sample.dtype not in (dt.uint8, dt.float32):
            raise ConfigError("Resize takes UInt8 or Float32 images", sample=sample)
        return sample.with_shape(*self._new_size(sample.shape[0], sample.shape[1]), sample.shape[2])

    def stack(self, batch: np.ndarray) -> np.ndarray:
        """[B, height, width, C]; the batch itself when it already has the size."""
        return resize(batch, *self._new_size(batch.shape[1], batch.shape[2]), self.interpolation)

    def lower(self, batch: Any, ops: Any) -> Any:
        """The same numbers; images of bytes may have any size."""
        new = self._new_size(batch.shape[1], batch.shape[2])
        return resize_operators(batch, *new, self.interpolation, ops)

    @property
    def has_operators(self) -> bool:
        """Not for CUBIC, which runs on the host."""
        return self.interpolation is not Inter.CUBIC and super().has_operators

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


class CenterCrop(StackTransform):
    """The middle of each image, `size` pixels (height and width, or one number for both); zeros around smaller images.

    >>> CenterCrop(1)(np.array([[[[1], [2], [3]]]], np.uint8)).ravel().tolist()
    [2]
    """

    def __init__(self, size: int | Sequence[int]) -> None:
        self.size = height_and_width(size)

    def __repr__(self) -> str:
        return f"CenterCrop({self.size})"

    def infer(self, sample: TensorType) -> TensorType:
        """[height, width, C] for [H, W, C]."""
        require_image(self, sample)
        return sample.with_shape(*self.size, sample.shape[2])

    def stack(self, batch: np.ndarray) -> np.ndarray:
        """[B, height, width, C]."""
        missing, starts = self._places(batch.shape[1:3])
        batch = padded(batch, missing[0], missing[1], 1, Border.CONSTANT, (0,))
        (top, left), (height, width) = starts, self.size
        return np.ascontiguousarray(batch[:, top : top + height, left : left + width])

    def lower(self, batch: Any, ops: Any) -> Any:
        missing, starts = self._places(batch.shape[1:3])
        if any(map(any, missing)):
            batch = ops.Pad(((0, 0), *missing, (0, 0)))(batch)
        return ops.Slice((0, *starts, 0), (batch.shape[0], *self.size, batch.shape[3]))(batch)

    def attributes(self) -> dict[str, Any]:
        """`size`: height and width."""
        return {"size": list(self.size)}

    def _places(self, sides: Sequence[int]) -> tuple[list[tuple[int, int]], tuple[int, ...]]:
        """The padding before and after rows and columns, and where the crop starts."""
        short = [max(0, new - old) for old, new in zip(sides, self.size, strict=True)]
        starts = tuple(max(0, old - new) // 2 for old, new in zip(sides, self.size, strict=True))
        return [(k - k // 2, k // 2) for k in short], starts


class Pad(StackTransform):
    """Borders around each image.

    `padding` is one number for all borders, two for left and top, and for right and bottom, or four for left, top,
    right and bottom. `fill_value` (one number, or three for red, green and blue) is that of `Border.CONSTANT`.

    >>> Pad(1, fill_value=7)(np.array([[[0]]], np.uint8))[..., 0].tolist()
    [[7, 7, 7], [7, 0, 7], [7, 7, 7]]
    """

    def __init__(
        self,
        padding: int | Sequence[int],
        fill_value: int | Sequence[int] = 0,
        padding_mode: Border = Border.CONSTANT,
    ) -> None:
        self.padding = borders_of(padding)
        self.fill_value = fill_of(fill_value)
        self.padding_mode = border_of(padding_mode)

    def __repr__(self) -> str:
        (top, bottom), (left, right) = self.padding
        return f"Pad({(left, top, right, bottom)}, {self.fill_value}, {self.padding_mode.name})"

    def infer(self, sample: TensorType) -> TensorType:
        """The sides with their borders. Raises ConfigError for a mirror image wider than the image."""
        require_image(self, sample)
        sides = [n + before + after for n, (before, after) in zip(sample.shape, self.padding, strict=False)]
        return sample.with_shape(*sides, sample.shape[2])

    def stack(self, batch: np.ndarray) -> np.ndarray:
        """[B, height, width, C]."""
        return padded(batch, *self.padding, 1, self.padding_mode, self.fill_value)

    def attributes(self) -> dict[str, Any]:
        """`padding`: (top, bottom) and (left, right); `fill_value`; `padding_mode`, by name."""
        borders = [list(pair) for pair in self.padding]
        return {"padding": borders, "fill_value": list(self.fill_value), "padding_mode": self.padding_mode.name}


class HWC2CHW(StackTransform):
    """[B, H, W, C] to [B, C, H, W]; with one channel, a view of the same memory."""

    def __repr__(self) -> str:
        return "HWC2CHW()"

    def infer(self, sample: TensorType) -> TensorType:
        """[C, H, W] for [H, W, C]."""
        require_image(self, sample)
        return sample.with_shape(sample.shape[2], *sample.shape[:2])

    def __call__(self, images: Any) -> np.ndarray:
        """The images, channels first; an image [H, W] stays as it is."""
        return np.asarray(images) if np.ndim(images) == 2 else super().__call__(images)

    def stack(self, batch: np.ndarray) -> np.ndarray:
        count, height, width, channels = batch.shape
        if channels == 1:
            return batch.reshape(count, 1, height, width)
        return np.ascontiguousarray(batch.transpose(0, 3, 1, 2))

    def lower(self, batch: Any, ops: Any) -> Any:
        return ops.Transpose((0, 3, 1, 2))(batch)

    def moved_before(self, other: Transform) -> Transform | None:
        """The channels-first form of `other`, such as of a transform per pixel or per channel."""
        return other.channels_first()


# Values of images as Float32: scaling and normalization.


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
        values = self.normalize.lower(batch, ops)
        return ops.Cast(self.dtype)(ops.Pad(((0, 0), (0, 0), (0, 0), (0, 1)))(values))

    def attributes(self) -> dict[str, Any]:
        """Those of `Normalize`, and `dtype`, by name."""
        return {**self.normalize.attributes(), "dtype": self.dtype.numpy.name}
