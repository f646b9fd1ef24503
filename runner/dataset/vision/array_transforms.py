"""Image transforms of whole batches, as arrays: sizes, layouts, and values as Float32; and the random ones.

Those without random numbers have operators, which run inside of graphs too.
"""

from collections.abc import Sequence
from copy import copy
from typing import Any, ClassVar, Self

import numpy as np
from numpy.lib.stride_tricks import as_strided

from runner import dtype as dt
from runner.dataset.transforms.transform import Affine, RandomTransform, Transform
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
    probability_of,
    require_image,
    size_of,
)
from runner.dataset.vision.resize import resize, resize_operators
from runner.dataset.visits import Visits, bernoulli, bounded
from runner.errors import ConfigError
from runner.types import TensorType
from runner.validation.arguments import as_list, finite_number, flag, one_of

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


# Random image transforms of whole batches, with random numbers per sample (`runner/dataset/visits.py`).
#
# Source: `mindspore.dataset.vision.c_transforms` r1.2; `c_transforms` exports them. MindSpore draws from one
# generator per worker, so its images depend on the number of workers; these do not.

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
