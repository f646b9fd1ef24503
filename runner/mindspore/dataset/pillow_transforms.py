"""Transforms of images of Pillow, and of arrays [C, H, W] after `ToTensor`: `py_transforms` exports them.

First what they share; then sizes and parts, transforms of arrays, rotations and other affine images, colours, parts
that are erased, and the ways between bytes, images and arrays. Constructors take the arguments of `c_transforms`.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from runner import dtype as dt
from runner.dataset.transforms.transform import (
    RandomSampleTransform,
    SampleTransform,
    require_transforms,
    transform_one,
)
from runner.dataset.vision.image import (
    Border,
    Inter,
    PillowImage,
    border_of,
    borders_of,
    decode_bytes,
    fill_of,
    height_and_width,
    image_of,
    inter_of,
    is_pillow_image,
    padded,
    pillow,
    probability_of,
    range_of,
    size_of,
    symmetric_range,
)
from runner.dataset.visits import Draws, draws_of_call
from runner.errors import ConfigError
from runner.mindspore.dataset import kernels
from runner.mindspore.dataset.array_transforms import (
    ATTEMPTS,
    DEFAULT_RATIO,
    DEFAULT_SCALE,
    LARGEST_FACTOR,
    Box,
    center_of,
    factors,
    random_box,
)
from runner.types import TensorType
from runner.validation.arguments import above, as_list, finite_number, flag, one_of, whole_number

EVERY_INTER = (Inter.NEAREST, Inter.ANTIALIAS, Inter.BILINEAR, Inter.BICUBIC)
TURNING_INTER = (Inter.NEAREST, Inter.BILINEAR, Inter.BICUBIC)


class PictureTransform(SampleTransform):
    """A transform of an image of Pillow, or of an array of bytes [H, W, C] or [H, W], which becomes one.

    The result is an image of Pillow; in a pipeline the array of its bytes.
    """

    def one(self, value: Any, draws: Draws) -> Any:
        return self.picture(picture_of(self, value), draws)

    @abstractmethod
    def picture(self, image: PillowImage, draws: Draws) -> Any:
        """The transformed image."""


class RandomPicture(PictureTransform, RandomSampleTransform):
    """A random `PictureTransform`."""


def picture_of(transform: SampleTransform, value: Any) -> PillowImage:
    """An image of Pillow, or an array of bytes as one. Raises ConfigError for other values."""
    if is_pillow_image(value):
        return value  # type: ignore[no-any-return]
    array = np.asarray(value)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[..., 0]
    if array.dtype != np.uint8 or not (array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (3, 4))):
        found = f"{array.dtype.name} of shape {array.shape}" if array.dtype.kind in "biuf" else type(value).__name__
        allowed = "an image of Pillow, or UInt8 [height, width, channels]"
        raise ConfigError(f"{transform!r} takes images", found=found, allowed=allowed, repair="Decode or ToPIL before")
    return pillow().Image.fromarray(array)  # type: ignore[no-any-return]


def filter_of(interpolation: Inter) -> Any:
    """Pillow's name of an interpolation."""
    names = pillow().Image.Resampling
    filters = {Inter.NEAREST: names.NEAREST, Inter.ANTIALIAS: names.LANCZOS, Inter.BICUBIC: names.BICUBIC}
    return filters.get(interpolation, names.BILINEAR)


def colour_for(image: PillowImage, fill: tuple[int, ...]) -> Any:
    """A colour for an image: one number for grey ones."""
    bands = len(image.getbands())
    if bands == 1:
        return fill[0]
    return fill[:1] * bands if len(fill) == 1 else fill


# Sizes, parts and mirror images of images of Pillow.


class Resize(PictureTransform):
    """(height, width), or the length of the shorter side with the aspect ratio preserved, by Pillow's filters."""

    def __init__(self, size: int | Sequence[int], interpolation: Inter = Inter.BILINEAR) -> None:
        self.size = size_of(size)
        self.interpolation = inter_of(interpolation, EVERY_INTER)

    def picture(self, image: PillowImage, draws: Draws) -> PillowImage:
        """The resized image; the image itself when it has the size."""
        if len(self.size) == 2:
            new = (self.size[1], self.size[0])
        else:
            shorter, side = min(image.size), self.size[0]
            new = (max(1, side * image.width // shorter), max(1, side * image.height // shorter))
        return image if image.size == new else image.resize(new, filter_of(self.interpolation))


class CenterCrop(PictureTransform):
    """The middle of the image, `size` pixels (height and width, or one number for both); black around smaller ones."""

    def __init__(self, size: int | Sequence[int]) -> None:
        self.size = height_and_width(size)

    def picture(self, image: PillowImage, draws: Draws) -> PillowImage:
        return cropped(image, center_box(image, self.size))


class RandomResizedCrop(RandomPicture):
    """A random part of the image, in one size; see `c_transforms.RandomResizedCrop`."""

    def __init__(
        self,
        size: int | Sequence[int],
        scale: Sequence[float] = DEFAULT_SCALE,
        ratio: Sequence[float] = DEFAULT_RATIO,
        interpolation: Inter = Inter.BILINEAR,
        max_attempts: int = ATTEMPTS,
    ) -> None:
        self.size = height_and_width(size)
        self.scale = range_of("scale", scale, 0.0, 1e6)
        self.ratio = range_of("ratio", ratio, 1e-6, 1e6)
        self.interpolation = inter_of(interpolation, EVERY_INTER)
        self.max_attempts = whole_number("max_attempts", max_attempts, 1)

    def picture(self, image: PillowImage, draws: Draws) -> PillowImage:
        box = random_box(draws, (image.height, image.width), self.scale, self.ratio, self.max_attempts)
        return cropped(image, box).resize(self.size[::-1], filter_of(self.interpolation))


class RandomHorizontalFlip(RandomPicture):
    """The mirror image, left and right exchanged, with probability `prob`."""

    def __init__(self, prob: float = 0.5) -> None:
        self.prob = probability_of(prob)

    def picture(self, image: PillowImage, draws: Draws) -> PillowImage:
        return pillow().ImageOps.mirror(image) if draws.chance(self.prob) else image


class RandomVerticalFlip(RandomPicture):
    """The mirror image, top and bottom exchanged, with probability `prob`."""

    def __init__(self, prob: float = 0.5) -> None:
        self.prob = probability_of(prob)

    def picture(self, image: PillowImage, draws: Draws) -> PillowImage:
        return pillow().ImageOps.flip(image) if draws.chance(self.prob) else image


class FiveCrop(PictureTransform):
    """A tuple of five parts of one size: upper left, upper right, lower left, lower right, middle."""

    def __init__(self, size: int | Sequence[int]) -> None:
        self.size = height_and_width(size)

    def picture(self, image: PillowImage, draws: Draws) -> Any:
        """Five images. Raises ConfigError for an image that is smaller."""
        return five_parts(image, self.size)


class TenCrop(PictureTransform):
    """The five parts of `FiveCrop`, and those of the mirror image (with `use_vertical_flip`, upside down)."""

    def __init__(self, size: int | Sequence[int], use_vertical_flip: bool = False) -> None:
        flag({}, use_vertical_flip=use_vertical_flip)
        self.size = height_and_width(size)
        self.use_vertical_flip = use_vertical_flip

    def picture(self, image: PillowImage, draws: Draws) -> Any:
        """Ten images. Raises ConfigError for an image that is smaller."""
        operations = pillow().ImageOps
        mirrored = operations.flip(image) if self.use_vertical_flip else operations.mirror(image)
        return (*five_parts(image, self.size), *five_parts(mirrored, self.size))


def five_parts(image: PillowImage, size: tuple[int, int]) -> tuple[PillowImage, ...]:
    """The parts at the corners and in the middle. Raises ConfigError for an image that is smaller."""
    height, width = size
    down, across = image.height - height, image.width - width
    if down < 0 or across < 0:
        allowed = f"up to {(image.height, image.width)}"
        raise ConfigError("the crop is larger than the image", argument="size", value=size, allowed=allowed)
    corners = [(top, left) for top in (0, down) for left in (0, across)]
    parts = [cropped(image, Box(top, left, height, width)) for top, left in corners]
    return (*parts, cropped(image, center_box(image, size)))


class Pad(PictureTransform):
    """Borders around the image; see `c_transforms.Pad`."""

    def __init__(
        self,
        padding: int | Sequence[int],
        fill_value: int | Sequence[int] = 0,
        padding_mode: Border = Border.CONSTANT,
    ) -> None:
        self.padding = borders_of(padding)
        self.fill_value = fill_of(fill_value)
        self.padding_mode = border_of(padding_mode)

    def picture(self, image: PillowImage, draws: Draws) -> PillowImage:
        return bordered(image, *self.padding, self.padding_mode, self.fill_value)


class RandomCrop(RandomPicture):
    """A part of one size at a random place, after padding; see `c_transforms.RandomCrop`."""

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

    def picture(self, image: PillowImage, draws: Draws) -> PillowImage:
        """The crop. Raises ConfigError for an image that is too small, padding included."""
        image = bordered(image, *self.padding, self.padding_mode, self.fill_value)
        height, width = self.size
        if self.pad_if_needed:
            down, across = max(0, height - image.height), max(0, width - image.width)
            image = bordered(image, (down, down), (across, across), self.padding_mode, self.fill_value)
        if height > image.height or width > image.width:
            allowed = f"up to {(image.height, image.width)}, padding included"
            raise ConfigError("the crop is larger than the image", argument="size", value=self.size, allowed=allowed)
        top, left = draws.integer(0, image.height - height), draws.integer(0, image.width - width)
        return cropped(image, Box(top, left, height, width))


def cropped(image: PillowImage, box: Box) -> PillowImage:
    """A part of an image; outside of it is black."""
    return image.crop((box.left, box.top, box.left + box.width, box.top + box.height))


def center_box(image: PillowImage, size: tuple[int, int]) -> Box:
    """The middle part of this size; half pixels are rounded to the nearest even number."""
    return Box(round((image.height - size[0]) / 2), round((image.width - size[1]) / 2), *size)


def bordered(
    image: PillowImage, rows: tuple[int, int], columns: tuple[int, int], mode: Border, fill: tuple[int, ...]
) -> PillowImage:
    """The image with (before, after) more rows and columns."""
    if not any((*rows, *columns)):
        return image
    array = np.asarray(image)
    planes = array.reshape(*array.shape[:2], -1)
    made = padded(planes[np.newaxis], rows, columns, 1, mode, fill)[0]
    return pillow().Image.fromarray(made.reshape(*made.shape[:2], *array.shape[2:]))  # type: ignore[no-any-return]


# Transforms of arrays, [C, H, W] unless stated otherwise: what follows `ToTensor`.


class HWC2CHW(SampleTransform):
    """[H, W, C] as [C, H, W]."""

    def one(self, value: Any, draws: Draws) -> np.ndarray:
        """Contiguous; raises ConfigError unless there are three axes."""
        image = image_of(self, value)
        if image.ndim != 3:
            raise ConfigError("HWC2CHW takes images [height, width, channels]", sample=TensorType.of(image))
        return np.ascontiguousarray(image.transpose(2, 0, 1))


class Normalization(SampleTransform):
    """Base: one mean and one standard deviation for each channel of [C, H, W], or one of each for all."""

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        self.mean = [finite_number("mean", value) for value in as_list(mean)]
        self.std = [finite_number("std", value) for value in as_list(std)]
        if not self.mean or len(self.mean) != len(self.std) or min(self.std) <= 0:
            rows = {"argument": "std", "value": std, "allowed": "as many numbers as mean has, each greater than 0"}
            raise ConfigError("Normalize needs one mean and one standard deviation per channel", **rows)

    def normalized(self, value: Any) -> np.ndarray:
        """`(x - mean) / std`, in Float32, or in Float64 for Float64. Raises ConfigError for other channels."""
        image = image_of(self, value)
        if image.ndim != 3 or len(self.mean) not in (1, len(image)):
            allowed = "one number, or one per channel of [channels, height, width]"
            rows = {"argument": "mean", "value": len(self.mean), "allowed": allowed, "sample": TensorType.of(image)}
            raise ConfigError("the number of means differs from the number of channels", **rows)
        kind = image.dtype if image.dtype == np.float64 else np.dtype(np.float32)
        mean, std = (np.array(numbers, kind)[:, np.newaxis, np.newaxis] for numbers in (self.mean, self.std))
        result: np.ndarray = (image.astype(kind) - mean) / std
        return result


class Normalize(Normalization):
    """`(x - mean) / std` of [C, H, W], with one mean and one deviation for each channel, or one of each for all.

    The values are usually those of `ToTensor`, 0..1. The result is Float32, or Float64 for Float64.
    """

    def one(self, value: Any, draws: Draws) -> np.ndarray:
        """The same shape. Raises ConfigError for another number of channels."""
        return self.normalized(value)


class NormalizePad(Normalization):
    """`Normalize`, and a further channel of zeros; `dtype` is "float32" or "float16"."""

    def __init__(self, mean: Sequence[float], std: Sequence[float], dtype: str = "float32") -> None:
        super().__init__(mean, std)
        one_of({}, ("float32", "float16"), dtype=dtype)
        self.dtype = dt.of(dtype)

    def one(self, value: Any, draws: Draws) -> np.ndarray:
        """[C + 1, H, W]."""
        values = self.normalized(value)
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
        return _by_channels(self, value, self.is_hwc, kernels.from_rgb)


class HsvToRgb(SampleTransform):
    """The inverse of `RgbToHsv`."""

    def __init__(self, is_hwc: bool = False) -> None:
        flag({}, is_hwc=is_hwc)
        self.is_hwc = is_hwc

    def one(self, value: Any, draws: Draws) -> np.ndarray:
        return _by_channels(self, value, self.is_hwc, kernels.to_rgb)


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


# Random rotations, affine images and perspectives of images of Pillow.


class RandomRotation(RandomPicture):
    """A rotation by a random angle from `degrees` (low, high; one number x: -x to x), counter-clockwise.

    `expand` enlarges the image to hold all of it. `center` is (x, y), by default the middle.
    """

    def __init__(
        self,
        degrees: float | Sequence[float],
        resample: Inter = Inter.NEAREST,
        expand: bool = False,
        center: Sequence[float] | None = None,
        fill_value: int | Sequence[int] = 0,
    ) -> None:
        flag({}, expand=expand)
        self.degrees = symmetric_range("degrees", degrees)
        self.resample = inter_of(resample, TURNING_INTER, "resample")
        self.expand = expand
        self.center = center_of(center)
        self.fill_value = fill_of(fill_value)

    def picture(self, image: PillowImage, draws: Draws) -> PillowImage:
        """The same size, unless `expand`."""
        angle, colour = draws.uniform(*self.degrees), colour_for(image, self.fill_value)
        return image.rotate(angle, filter_of(self.resample), self.expand, self.center, fillcolor=colour)


class RandomAffine(RandomPicture):
    """A random rotation, translation, scale and shear about the middle of the image.

    `degrees` is (low, high) or x for -x to x, clockwise. `translate` has the largest shifts of x and y in parts of the
    sides. `scale` is a range of factors. `shear` is (low, high) or x for -x to x, or has a second range for y.
    """

    def __init__(
        self,
        degrees: float | Sequence[float],
        translate: Sequence[float] | None = None,
        scale: Sequence[float] | None = None,
        shear: float | Sequence[float] | None = None,
        resample: Inter = Inter.NEAREST,
        fill_value: int | Sequence[int] = 0,
    ) -> None:
        self.degrees = symmetric_range("degrees", degrees)
        self.translate = (0.0, 0.0) if translate is None else _shifts(translate)
        self.scale = (1.0, 1.0) if scale is None else range_of("scale", scale, 1e-6, 1e6)
        if shear is not None and len(as_list(shear)) == 4:
            self.shear = range_of("shear", shear, -180.0, 180.0, 4)
        else:
            self.shear = (*symmetric_range("shear", 0.0 if shear is None else shear, 180.0), 0.0, 0.0)
        self.resample = inter_of(resample, TURNING_INTER, "resample")
        self.fill_value = fill_of(fill_value)

    def picture(self, image: PillowImage, draws: Draws) -> PillowImage:
        angle = math.radians(draws.uniform(*self.degrees))
        shift = [round(draws.uniform(-k * n, k * n)) for k, n in zip(self.translate, image.size, strict=True)]
        scale = draws.uniform(*self.scale)
        shear = [math.radians(draws.uniform(*self.shear[k : k + 2])) for k in (0, 2)]
        center = [side * 0.5 + 0.5 for side in image.size]
        matrix = inverse_affine(angle, shear, scale, center, shift)
        method, colour = pillow().Image.Transform.AFFINE, colour_for(image, self.fill_value)
        return image.transform(image.size, method, matrix, filter_of(self.resample), fillcolor=colour)


class RandomPerspective(RandomPicture):
    """The image seen from a random side with probability `prob`.

    Each corner moves inwards by a random part of up to `distortion_scale` (0 to 1) of half the sides.
    """

    def __init__(self, distortion_scale: float = 0.5, prob: float = 0.5, interpolation: Inter = Inter.BICUBIC) -> None:
        self.distortion_scale = probability_of(distortion_scale, "distortion_scale")
        self.prob = probability_of(prob)
        self.interpolation = inter_of(interpolation, TURNING_INTER)

    def picture(self, image: PillowImage, draws: Draws) -> PillowImage:
        if not draws.chance(self.prob):
            return image
        (width, height), part = image.size, self.distortion_scale
        moves = [int(side / 2 * part) for side in (width, height)]
        corners = [(0, 0), (width - 1, 0), (width - 1, height - 1), (0, height - 1)]
        moved = []
        for x, y in corners:
            inwards = [draws.integer(0, most) for most in moves]
            moved.append((abs(x - inwards[0]), abs(y - inwards[1])))
        method = pillow().Image.Transform.PERSPECTIVE
        return image.transform(image.size, method, perspective(corners, moved), filter_of(self.interpolation))


def inverse_affine(
    angle: float, shear: Sequence[float], scale: float, center: Sequence[float], shift: Sequence[float]
) -> list[float]:
    """Pillow's six numbers of an affine image: from new to old positions; angles in radians."""
    x, y = angle + shear[0], angle + shear[1]
    factor = 1.0 / scale / (math.cos(x) * math.cos(y) + math.sin(x) * math.sin(y))
    rows = []
    for (a, b), middle in zip([(math.cos(x), math.sin(x)), (-math.sin(y), math.cos(y))], center, strict=True):
        a, b = a * factor, b * factor
        rows += [a, b, middle - a * (center[0] + shift[0]) - b * (center[1] + shift[1])]
    return rows


def perspective(old: Sequence[tuple[int, int]], new: Sequence[tuple[int, int]]) -> list[float]:
    """Pillow's eight numbers of the perspective that moves the four old corners to the new ones."""
    equations, results = [], []
    for (x, y), (u, v) in zip(new, old, strict=True):
        equations += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        results += [u, v]
    solution = np.linalg.lstsq(np.array(equations, float), np.array(results, float), rcond=None)[0]
    return [float(number) for number in solution]


def _shifts(translate: Sequence[float]) -> tuple[float, ...]:
    if len(as_list(translate)) != 2:
        allowed = "(x, y) in parts of the sides, each 0 to 1"
        raise ConfigError("not two shifts", argument="translate", value=translate, allowed=allowed)
    return tuple(probability_of(shift, "translate") for shift in translate)


# Colours of images of Pillow.


class AutoContrast(PictureTransform):
    """Values stretched to 0..255, without `cutoff` percent at each end and the values in `ignore`."""

    def __init__(self, cutoff: float = 0.0, ignore: int | Sequence[int] | None = None) -> None:
        self.cutoff = finite_number("cutoff", cutoff)
        if not 0.0 <= self.cutoff < 50.0:
            raise ConfigError("not a percentage to cut off", argument="cutoff", value=cutoff, allowed="0 to below 50")
        self.ignore = None if ignore is None else [whole_number("ignore", k, 0, 255) for k in as_list(ignore)]

    def picture(self, image: PillowImage, draws: Draws) -> PillowImage:
        return pillow().ImageOps.autocontrast(image, self.cutoff, self.ignore)  # type: ignore[no-any-return]


class Equalize(PictureTransform):
    """Values replaced so that their distribution is as even as possible."""

    def picture(self, image: PillowImage, draws: Draws) -> PillowImage:
        return pillow().ImageOps.equalize(image)  # type: ignore[no-any-return]


class Invert(PictureTransform):
    """255 minus every value."""

    def picture(self, image: PillowImage, draws: Draws) -> PillowImage:
        return pillow().ImageOps.invert(image)  # type: ignore[no-any-return]


class RandomColor(RandomPicture):
    """A random saturation: the factor is from `degrees` (low, high); 0 gives grey, 1 the image."""

    def __init__(self, degrees: Sequence[float] = (0.1, 1.9)) -> None:
        self.degrees = range_of("degrees", degrees, 0.0, LARGEST_FACTOR)

    def picture(self, image: PillowImage, draws: Draws) -> PillowImage:
        return enhanced("Color", image, draws.uniform(*self.degrees))


class RandomSharpness(RandomPicture):
    """A random sharpness: the factor is from `degrees` (low, high); 0 blurs, 1 is the image, 2 sharpens."""

    def __init__(self, degrees: Sequence[float] = (0.1, 1.9)) -> None:
        self.degrees = range_of("degrees", degrees, 0.0, LARGEST_FACTOR)

    def picture(self, image: PillowImage, draws: Draws) -> PillowImage:
        return enhanced("Sharpness", image, draws.uniform(*self.degrees))


class RandomColorAdjust(RandomPicture):
    """Random brightness, contrast, saturation and hue, applied in a random order.

    The first three are ranges of factors (low, high), or one number x for max(0, 1 - x) to 1 + x. `hue` is a range of
    parts of a turn within -0.5..0.5, or one number x for -x..x.
    """

    def __init__(
        self,
        brightness: float | Sequence[float] = (1, 1),
        contrast: float | Sequence[float] = (1, 1),
        saturation: float | Sequence[float] = (1, 1),
        hue: float | Sequence[float] = (0, 0),
    ) -> None:
        self.brightness = factors("brightness", brightness)
        self.contrast = factors("contrast", contrast)
        self.saturation = factors("saturation", saturation)
        self.hue = symmetric_range("hue", hue, 0.5)

    def picture(self, image: PillowImage, draws: Draws) -> PillowImage:
        names = {"Brightness": self.brightness, "Contrast": self.contrast, "Color": self.saturation, "Hue": self.hue}
        amounts = [(name, draws.uniform(*limits)) for name, limits in names.items()]
        for name, amount in draws.order(amounts):
            image = turned_hue(image, amount) if name == "Hue" else enhanced(name, image, amount)
        return image


class UniformAugment(RandomSampleTransform):
    """`num_ops` of the transforms, chosen at random without repetition, each applied with a random probability."""

    def __init__(self, transforms: Sequence[Any], num_ops: int = 2) -> None:
        self.transforms = require_transforms(transforms)
        self.num_ops = whole_number("num_ops", num_ops, 1, len(self.transforms))

    def one(self, value: Any, draws: Draws) -> Any:
        for operation in draws.order(self.transforms)[: self.num_ops]:
            if draws.chance(draws.uniform()):
                value = transform_one(operation, (value,), draws)
        return value


def enhanced(name: str, image: PillowImage, factor: float) -> PillowImage:
    """Pillow's `ImageEnhance` of this name with a factor; 1 is the image."""
    return getattr(pillow().ImageEnhance, name)(image).enhance(factor)  # type: ignore[no-any-return]


def turned_hue(image: PillowImage, shift: float) -> PillowImage:
    """Hues turned by `shift` of a whole turn; grey images have none."""
    if image.mode in ("L", "1", "I", "F"):
        return image
    hue, saturation, value = image.convert("HSV").split()
    turned = (np.array(hue, np.int64) + int(shift * 255)) % 256
    images = pillow().Image
    bands = (images.fromarray(turned.astype(np.uint8)), saturation, value)
    return images.merge("HSV", bands).convert(image.mode)  # type: ignore[no-any-return]


# Parts of arrays [C, H, W] that are erased at random.


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


# Between bytes of files, images of Pillow and arrays.


class Decode(SampleTransform):
    """The RGB image of Pillow in the bytes of a PNG, JPEG, WebP or BMP file, uint8 [length]."""

    def one(self, value: Any, draws: Draws) -> PillowImage:
        """Raises DataError for a damaged image."""
        return decode_bytes(value)


class ToPIL(SampleTransform):
    """An array of bytes, [H, W, C] or [H, W], as an image of Pillow."""

    def one(self, value: Any, draws: Draws) -> PillowImage:
        """An image of Pillow stays as it is."""
        return picture_of(self, value)


class ToTensor(SampleTransform):
    """An image, [H, W, C] with values 0..255, as an array [C, H, W] of 0..1 in `output_type`."""

    def __init__(self, output_type: Any = np.float32) -> None:
        self.output_type = dt.of(output_type)

    def one(self, value: Any, draws: Draws) -> np.ndarray:
        """[C, H, W]; one channel for [H, W]."""
        image = image_of(self, value)
        planes = image[np.newaxis] if image.ndim == 2 else image.transpose(2, 0, 1)
        return np.ascontiguousarray((planes / 255.0).astype(self.output_type.numpy))


class ToType(SampleTransform):
    """An array in another element type."""

    def __init__(self, output_type: Any) -> None:
        self.output_type = dt.of(output_type)

    def one(self, value: Any, draws: Draws) -> np.ndarray:
        return np.asarray(value).astype(self.output_type.numpy)


class Grayscale(PictureTransform):
    """Luminance, in 1 channel, or the same in 3."""

    def __init__(self, num_output_channels: int = 1) -> None:
        self.num_output_channels = whole_number("num_output_channels", num_output_channels, 1, 3)
        if self.num_output_channels == 2:
            rows = {"argument": "num_output_channels", "value": num_output_channels, "allowed": "1 or 3"}
            raise ConfigError("not a number of channels", **rows)

    def picture(self, image: PillowImage, draws: Draws) -> PillowImage:
        grey = image.convert("L")
        return grey if self.num_output_channels == 1 else grey.convert("RGB")


class RandomGrayscale(RandomPicture):
    """Without colours with probability `prob`; the number of channels stays."""

    def __init__(self, prob: float = 0.1) -> None:
        self.prob = probability_of(prob)

    def picture(self, image: PillowImage, draws: Draws) -> PillowImage:
        return image.convert("L").convert(image.mode) if draws.chance(self.prob) else image
