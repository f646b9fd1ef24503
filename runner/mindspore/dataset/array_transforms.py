"""Transforms of one image as an array, [H, W, C] or [H, W], that only scripts of r1.2 use: `c_transforms` exports them.

Colours (by `color.py`), mixtures of a batch with its labels, random parts, decoding, affine images (by `warp.py`), and
choices among transforms. Sizes, layouts and the usual augmentation are in `runner/dataset/vision/`.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from runner.dataset.transforms.transform import (
    RandomSampleTransform,
    SampleTransform,
    require_transforms,
    transform_one,
)
from runner.dataset.vision.array_transforms import INTERPOLATIONS, Resize
from runner.dataset.vision.image import (
    ImageBatchFormat,
    ImageTransform,
    Inter,
    RandomImageSample,
    decode_bytes,
    fill_of,
    filled,
    height_and_width,
    inter_of,
    probability_of,
    range_of,
    symmetric_range,
)
from runner.dataset.visits import Draws, draws_of_call
from runner.errors import ConfigError
from runner.mindspore.dataset import kernels
from runner.mindspore.dataset.kernels import affine, rotation, warp
from runner.validation.arguments import above, as_list, finite_number, flag, whole_number

LARGEST_FACTOR = float(1 << 24)

# Colours of UInt8 images: fixed and random changes.


class AutoContrast(ImageTransform):
    """The values of each channel stretched to 0..255.

    `cutoff` percent of the pixels at each end of the range are ignored (0 to below 50), and the values in `ignore`.
    """

    def __init__(self, cutoff: float = 0.0, ignore: int | Sequence[int] | None = None) -> None:
        self.cutoff = finite_number("cutoff", cutoff)
        if not 0.0 <= self.cutoff < 50.0:
            raise ConfigError("not a percentage to cut off", argument="cutoff", value=cutoff, allowed="0 to below 50")
        values = [] if ignore is None else as_list(ignore)
        self.ignore = [whole_number("ignore", value, 0, 255) for value in values]

    def image(self, image: np.ndarray, draws: Draws) -> np.ndarray:
        return kernels.auto_contrast(image, self.cutoff, self.ignore)


class Equalize(ImageTransform):
    """The values of each channel replaced so that their distribution is as even as possible."""

    def image(self, image: np.ndarray, draws: Draws) -> np.ndarray:
        return kernels.equalize(image)


class Invert(ImageTransform):
    """255 minus every value.

    >>> Invert()(np.array([[[0, 100, 255]]], np.uint8)).ravel().tolist()
    [255, 155, 0]
    """

    def image(self, image: np.ndarray, draws: Draws) -> np.ndarray:
        return 255 - image


class RandomColor(RandomImageSample):
    """A random saturation: the factor is from `degrees` (low, high); 0 gives grey, 1 the image."""

    def __init__(self, degrees: Sequence[float] = (0.1, 1.9)) -> None:
        self.degrees = range_of("degrees", degrees, 0.0, LARGEST_FACTOR)

    def image(self, image: np.ndarray, draws: Draws) -> np.ndarray:
        return kernels.saturation(image, draws.uniform(*self.degrees))


class RandomSharpness(RandomImageSample):
    """A random sharpness: the factor is from `degrees` (low, high); 0 blurs, 1 is the image, 2 sharpens."""

    def __init__(self, degrees: Sequence[float] = (0.1, 1.9)) -> None:
        self.degrees = range_of("degrees", degrees, 0.0, LARGEST_FACTOR)

    def image(self, image: np.ndarray, draws: Draws) -> np.ndarray:
        return kernels.sharpness(image, draws.uniform(*self.degrees))


class RandomPosterize(RandomImageSample):
    """Only the highest bits of every value: a random number of them from `bits` (low, high), or always one number."""

    def __init__(self, bits: int | Sequence[int] = (8, 8)) -> None:
        numbers = [whole_number("bits", number, 1, 8) for number in as_list(bits)]
        low, high = range_of("bits", numbers * 2 if len(numbers) == 1 else numbers, 1, 8)
        self.bits = (int(low), int(high))

    def image(self, image: np.ndarray, draws: Draws) -> np.ndarray:
        return kernels.posterize(image, draws.integer(*self.bits))


class RandomSolarize(RandomImageSample):
    """Values in a random part of the range `threshold` (low, high) inverted; of equal ends, all from there on."""

    def __init__(self, threshold: Sequence[int] = (0, 255)) -> None:
        low, high = range_of(
            "threshold", [whole_number("threshold", end, 0, 255) for end in as_list(threshold)], 0, 255
        )
        self.threshold = (int(low), int(high))

    def image(self, image: np.ndarray, draws: Draws) -> np.ndarray:
        low, high = sorted(draws.integer(*self.threshold) for _ in range(2))
        return kernels.solarize(image, low, high)


class RandomColorAdjust(RandomImageSample):
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

    def image(self, image: np.ndarray, draws: Draws) -> np.ndarray:
        changes = [
            (kernels.brightness, draws.uniform(*self.brightness), 1.0),
            (kernels.contrast, draws.uniform(*self.contrast), 1.0),
            (kernels.saturation, draws.uniform(*self.saturation), 1.0),
            (kernels.hue, draws.uniform(*self.hue), 0.0),
        ]
        for change, amount, neutral in draws.order(changes):
            image = image if amount == neutral else change(image, amount)
        return image


def factors(argument: str, value: object) -> tuple[float, ...]:
    """The range (low, high) of a factor: given as such, or as the largest distance from 1."""
    if len(numbers := as_list(value)) == 1:
        distance = range_of(argument, [0.0, *numbers], 0.0, LARGEST_FACTOR)[1]
        return max(0.0, 1.0 - distance), 1.0 + distance
    return range_of(argument, numbers, 0.0, LARGEST_FACTOR)


# Mixtures of the images of a batch with their labels, and parts of images that are cut out.
#
# `CutMixBatch` and `MixUpBatch` take two columns after `batch`: images and one-hot labels. They draw from the numbers
# of the call (`runner/dataset/visits.py`).


class CutOut(RandomImageSample):
    """`num_patches` black squares of `length` pixels around random positions, partly outside at the edges."""

    bytes_only = False

    def __init__(self, length: int, num_patches: int = 1) -> None:
        self.length = whole_number("length", length, 1)
        self.num_patches = whole_number("num_patches", num_patches, 1)

    def image(self, image: np.ndarray, draws: Draws) -> np.ndarray:
        result = image.copy()
        for _ in range(self.num_patches):
            top, left = (draws.integer(0, side - 1) - self.length // 2 for side in image.shape[:2])
            result[max(0, top) : max(0, top + self.length), max(0, left) : max(0, left + self.length)] = 0
        return result


class MixUpBatch:
    """A batch mixed with the same batch in another order: `x * share + x[order] * (1 - share)`, images and labels.

    One share for the batch, from the beta distribution (alpha, alpha). Called with images [B, ...] and one-hot labels
    [B, classes] (or [B, rows, classes]); returns both as Float32.
    """

    def __init__(self, alpha: float = 1.0) -> None:
        above({}, 0.0, alpha=alpha)
        self.alpha = alpha

    def __repr__(self) -> str:
        return f"MixUpBatch(alpha={self.alpha})"

    def __call__(self, images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mixed images and labels. Raises ConfigError unless labels are one-hot."""
        require_one_hot(self, images, labels)
        draws = draws_of_call()
        order = draws.order(range(len(images)))
        share = np.float32(draws.generator().beta(self.alpha, self.alpha))
        mixed = [
            part.astype(np.float32) * share + part[order].astype(np.float32) * (1 - share) for part in (images, labels)
        ]
        return mixed[0], mixed[1]


class CutMixBatch:
    """A random rectangle of each image replaced by that of another image of the batch, labels mixed by area.

    The area has the share `1 - x`, x from the beta distribution (alpha, alpha); each image is changed with probability
    `prob`. Called with images in `image_batch_format` and one-hot labels [B, classes] (or [B, rows, classes]); returns
    images in their type and Float32 labels.
    """

    def __init__(self, image_batch_format: ImageBatchFormat, alpha: float = 1.0, prob: float = 1.0) -> None:
        if not isinstance(image_batch_format, ImageBatchFormat):
            rows = {"value": image_batch_format, "allowed": "ImageBatchFormat.NHWC, ImageBatchFormat.NCHW"}
            raise ConfigError("not a layout of batches", argument="image_batch_format", **rows)
        above({}, 0.0, alpha=alpha)
        self.image_batch_format = image_batch_format
        self.alpha = alpha
        self.prob = probability_of(prob)

    def __repr__(self) -> str:
        return f"CutMixBatch({self.image_batch_format.name}, alpha={self.alpha}, prob={self.prob})"

    def __call__(self, images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mixed images and labels. Raises ConfigError unless there are four axes, and labels are one-hot."""
        if images.ndim != 4:
            raise ConfigError(f"{self!r} takes batches of images, four axes: map after batch", found=images.shape)
        require_one_hot(self, images, labels)
        draws = draws_of_call()
        order = draws.order(range(len(images)))
        first = 1 if self.image_batch_format is ImageBatchFormat.NHWC else 2
        changed, weights = images.copy(), labels.astype(np.float32)
        for number, other in enumerate(order):
            if not draws.chance(self.prob):
                continue
            box = self._box(draws, images.shape[first : first + 2])
            inside = (*[slice(None)] * (first - 1), *box)
            changed[number][inside] = images[other][inside]
            area = (box[0].stop - box[0].start) * (box[1].stop - box[1].start)
            share = np.float32(1 - area / math.prod(images.shape[first : first + 2]))
            weights[number] = labels[number] * share + labels[other] * (1 - share)
        return changed, weights

    def _box(self, draws: Draws, sides: tuple[int, ...]) -> list[slice]:
        """Rows and columns of the rectangle, cut at the edges."""
        part = math.sqrt(1 - draws.generator().beta(self.alpha, self.alpha))
        box = []
        for side in sides:
            length, middle = int(side * part), draws.integer(0, side - 1)
            start = max(0, middle - length // 2)
            box.append(slice(start, max(start, min(side, middle + length // 2))))
        return box


def require_one_hot(transform: object, images: np.ndarray, labels: np.ndarray) -> None:
    """Raise ConfigError unless labels have as many rows as images, and two or three axes."""
    if np.ndim(labels) not in (2, 3) or len(labels) != len(images):
        repair = "map(OneHot(num_classes)) the labels, then batch, then map both columns"
        found = f"images {np.shape(images)}, labels {np.shape(labels)}"
        raise ConfigError(f"{transform!r} takes a batch of images and one-hot labels", found=found, repair=repair)


# Random parts of an image, by share of its area and by aspect ratio.

DEFAULT_SCALE, DEFAULT_RATIO, ATTEMPTS = (0.08, 1.0), (3.0 / 4.0, 4.0 / 3.0), 10


class Box(NamedTuple):
    """The upper left corner of a part of an image, and its sides, in pixels."""

    top: int
    left: int
    height: int
    width: int


def random_box(
    draws: Draws,
    sides: tuple[int, int],
    scale: tuple[float, ...] = DEFAULT_SCALE,
    ratio: tuple[float, ...] = DEFAULT_RATIO,
    attempts: int = ATTEMPTS,
) -> Box:
    """A box with a share of the area from `scale`, and width / height from `ratio` (uniform in its logarithm).

    When no attempt fits into an image of `sides` (height, width), it is the largest one in the middle with a permitted
    ratio.
    """
    height, width = sides
    for _ in range(attempts):
        area = draws.uniform(*scale) * height * width
        aspect = math.exp(draws.uniform(math.log(ratio[0]), math.log(ratio[1])))
        new_width = round(math.sqrt(area * aspect))
        new_height = round(new_width / aspect)
        if 0 < new_width <= width and 0 < new_height <= height:
            top, left = draws.integer(0, height - new_height), draws.integer(0, width - new_width)
            return Box(top, left, new_height, new_width)
    aspect = min(max(width / height, ratio[0]), ratio[1])
    new_width = width if aspect >= width / height else max(1, round(height * aspect))
    new_height = height if aspect <= width / height else max(1, round(width / aspect))
    return Box((height - new_height) // 2, (width - new_width) // 2, new_height, new_width)


# Images from the bytes of files, and random parts of images in one size.

LARGEST_SCALE = 1e6


class Decode(SampleTransform):
    """The image in the bytes of a PNG, JPEG, WebP or BMP file, uint8 [length], as RGB uint8 [H, W, 3].

    `rgb=False` (BGR) is not supported, as MindSpore has deprecated it. Decoding needs Pillow (the extra `images`).
    Raises DataError for a damaged image.
    """

    def __init__(self, rgb: bool = True) -> None:
        if rgb is not True:
            repair = "Decode(), and reverse the channels in a function of your own"
            raise ConfigError("images are decoded as RGB", argument="rgb", value=rgb, allowed="True", repair=repair)

    def one(self, value: Any, draws: Draws) -> np.ndarray:
        """[H, W, 3] for the bytes of one file."""
        return np.array(decode_bytes(value), np.uint8)


class ResizedPart(RandomImageSample):
    """Base: a random part of each image, in one size (height and width, or one number for both).

    The part has a share of the area from `scale` and an aspect ratio from `ratio`; after `max_attempts` that
    do not fit, it is the middle of the image.
    """

    def __init__(
        self,
        size: int | Sequence[int],
        scale: Sequence[float] = DEFAULT_SCALE,
        ratio: Sequence[float] = DEFAULT_RATIO,
        interpolation: Inter = Inter.BILINEAR,
        max_attempts: int = ATTEMPTS,
    ) -> None:
        self.size = height_and_width(size)
        self.scale = range_of("scale", scale, 0.0, LARGEST_SCALE)
        self.ratio = range_of("ratio", ratio, 1e-6, LARGEST_SCALE)
        self.interpolation = inter_of(interpolation, INTERPOLATIONS)
        self.max_attempts = whole_number("max_attempts", max_attempts, 1)

    def image(self, image: np.ndarray, draws: Draws) -> np.ndarray:
        """[height, width, C]."""
        box = random_box(draws, (image.shape[0], image.shape[1]), self.scale, self.ratio, self.max_attempts)
        part = image[box.top : box.top + box.height, box.left : box.left + box.width]
        return Resize(self.size, self.interpolation)(np.ascontiguousarray(part))


class RandomResizedCrop(ResizedPart):
    """A random part of each image, in one size (height and width, or one number for both).

    The part has a share of the area from `scale` and an aspect ratio from `ratio`; after `max_attempts` that
    do not fit, it is the middle of the image. UInt8 or Float32.
    """

    bytes_only = False


class RandomCropDecodeResize(ResizedPart):
    """`Decode`, then `RandomResizedCrop`: bytes of files, uint8 [length], as RGB uint8 [height, width, 3]."""

    def one(self, value: Any, draws: Draws) -> np.ndarray:
        """[height, width, 3] for the bytes of one file."""
        return self.image(np.array(decode_bytes(value), np.uint8), draws)


class SoftDvppDecodeRandomCropResizeJpeg(ResizedPart):
    """`RandomCropDecodeResize` with linear interpolation."""

    def __init__(
        self,
        size: int | Sequence[int],
        scale: Sequence[float] = DEFAULT_SCALE,
        ratio: Sequence[float] = DEFAULT_RATIO,
        max_attempts: int = ATTEMPTS,
    ) -> None:
        super().__init__(size, scale, ratio, Inter.LINEAR, max_attempts)

    def one(self, value: Any, draws: Draws) -> np.ndarray:
        """[height, width, 3] for the bytes of one file."""
        return self.image(np.array(decode_bytes(value), np.uint8), draws)


class SoftDvppDecodeResizeJpeg(SampleTransform):
    """`Decode`, then a linear `Resize`."""

    def __init__(self, size: int | Sequence[int]) -> None:
        self.resize = Resize(size)

    def one(self, value: Any, draws: Draws) -> np.ndarray:
        """[height, width, 3] for the bytes of one file."""
        return self.resize(decode_bytes(value))


class RandomResize(RandomImageSample):
    """`Resize` with an interpolation chosen at random."""

    bytes_only = False

    def __init__(self, size: int | Sequence[int]) -> None:
        self.size = Resize(size).size

    def image(self, image: np.ndarray, draws: Draws) -> np.ndarray:
        """[height, width, C]."""
        return Resize(self.size, draws.choice(INTERPOLATIONS))(image)


# Random rotations and other affine images of UInt8 images, [H, W, C] or [H, W].


class RandomRotation(RandomImageSample):
    """A rotation by a random angle from `degrees` (low, high; one number x: -x to x), counter-clockwise.

    `resample` is Inter.NEAREST, LINEAR or CUBIC. `expand` enlarges the image to hold all of it. `center` is (x, y), by
    default the middle. `fill_value` is one number, or red, green and blue.
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
        self.resample = inter_of(resample, INTERPOLATIONS, "resample")
        self.expand = expand
        self.center = center_of(center)
        self.fill_value = fill_of(fill_value)

    def image(self, image: np.ndarray, draws: Draws) -> np.ndarray:
        """The same shape, unless `expand`."""
        return self._turned(image, draws.uniform(*self.degrees))

    def _turned(self, image: np.ndarray, degrees: float) -> np.ndarray:
        height, width = image.shape[:2]
        center = self.center or ((width - 1) / 2, (height - 1) / 2)
        matrix, size = rotation(center, degrees), (height, width)
        if self.expand:
            cosine, sine = abs(math.cos(math.radians(degrees))), abs(math.sin(math.radians(degrees)))
            across, down = width * cosine + height * sine, width * sine + height * cosine
            size = (round(down), round(across))
            matrix[:, 2] += (across / 2 - width / 2, down / 2 - height / 2)
        return warped(image, matrix, size, self.resample, self.fill_value)


class RandomAffine(RandomImageSample):
    """A random rotation, translation, scale and shear about the middle of the image.

    `degrees` and `shear` are (low, high) or x for -x to x, in degrees; `shear` may have a second range for y.
    `translate` has ranges of x, and of y, in parts of the sides, -1 to 1. `scale` is a range of factors.
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
        self.translate = _two_ranges("translate", translate, 1.0)
        self.scale = (1.0, 1.0) if scale is None else range_of("scale", scale, 1e-6, 1e6)
        single = shear is not None and len(as_list(shear)) == 1
        self.shear = _two_ranges("shear", symmetric_range("shear", shear, 180.0) if single else shear, 180.0)  # type: ignore[arg-type]
        self.resample = inter_of(resample, INTERPOLATIONS, "resample")
        self.fill_value = fill_of(fill_value)

    def image(self, image: np.ndarray, draws: Draws) -> np.ndarray:
        height, width = image.shape[:2]
        angle = draws.uniform(*self.degrees)
        shift = (draws.uniform(*self.translate[:2]) * width, draws.uniform(*self.translate[2:]) * height)
        scale = draws.uniform(*self.scale)
        shear = (draws.uniform(*self.shear[:2]), draws.uniform(*self.shear[2:]))
        matrix = affine(((width - 1) / 2, (height - 1) / 2), angle, shift, scale, shear)
        return warped(image, matrix, (height, width), self.resample, self.fill_value)


def warped(
    image: np.ndarray, matrix: np.ndarray, size: tuple[int, int], interpolation: Inter, fill: tuple[int, ...]
) -> np.ndarray:
    """`warp` of an image with or without an axis of channels."""
    channels = image.reshape(*image.shape[:2], -1)
    made = warp(channels, matrix, size, interpolation, filled(fill, channels.shape[2]))
    return made.reshape(*size, *image.shape[2:])


def center_of(center: Sequence[float] | None) -> tuple[float, float] | None:
    """(x, y) or None. Raises ConfigError for anything else."""
    if center is None:
        return None
    values = [finite_number("center", value) for value in as_list(center)]
    if len(values) != 2:
        raise ConfigError("not a position", argument="center", value=center, allowed="(x, y)")
    return values[0], values[1]


def _two_ranges(argument: str, value: Sequence[float] | None, most: float) -> tuple[float, ...]:
    """Ranges of x and y: four numbers; of two, that of y is zero."""
    if value is None:
        return 0.0, 0.0, 0.0, 0.0
    if len(as_list(value)) == 2:
        return *range_of(argument, value, -most, most), 0.0, 0.0
    return range_of(argument, value, -most, most, 4)


# Random choices among transforms: sub-policies with probabilities, and a uniform choice.

APPLY_PROBABILITY = 0.5

Operation = Callable[..., Any]


class RandomSelectSubpolicy(RandomSampleTransform):
    """One of the sub-policies, chosen at random; each is a list of (transform, probability), applied in order."""

    def __init__(self, policy: Sequence[Sequence[tuple[Operation, float]]]) -> None:
        self.policy = [self._checked(part, policy) for part in require_policy(policy)]

    def one(self, value: Any, draws: Draws) -> Any:
        for operation, probability in draws.choice(self.policy):
            if draws.chance(probability):
                value = transform_one(operation, (value,), draws)
        return value

    @staticmethod
    def _checked(part: Any, policy: Any) -> list[tuple[Operation, float]]:
        try:
            return [(require_transforms([step], "policy")[0], probability_of(prob, "policy")) for step, prob in part]
        except (TypeError, ValueError):
            allowed = "a list of lists of (transform, probability)"
            raise ConfigError("not a policy", argument="policy", value=policy, allowed=allowed) from None


class UniformAugment(RandomSampleTransform):
    """`num_ops` of the transforms, chosen at random without repetition, each applied with probability 1/2."""

    def __init__(self, transforms: Sequence[Operation], num_ops: int = 2) -> None:
        self.transforms = require_transforms(transforms)
        self.num_ops = whole_number("num_ops", num_ops, 1, len(self.transforms))

    def one(self, value: Any, draws: Draws) -> Any:
        for operation in draws.order(self.transforms)[: self.num_ops]:
            if draws.chance(APPLY_PROBABILITY):
                value = transform_one(operation, (value,), draws)
        return value


def require_policy(policy: Any) -> Sequence[Any]:
    """The policy itself. Raises ConfigError unless it is a list of lists that are not empty."""
    parts = isinstance(policy, Sequence) and all(isinstance(part, Sequence) and part for part in policy)
    if not parts or not policy:
        allowed = "a list of lists of (transform, probability)"
        raise ConfigError("not a policy", argument="policy", value=policy, allowed=allowed)
    return policy  # type: ignore[no-any-return]
