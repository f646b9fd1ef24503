"""What image transforms share: enumerations, the ways to call them, checks of arguments and samples, and borders.

At the end is Pillow (the extra `images`), loaded when it is needed: its modules, and images from the bytes of a file.
"""

from abc import abstractmethod
from collections.abc import Sequence
from enum import IntEnum, StrEnum
from io import BytesIO
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from runner.dataset.transforms.transform import RandomSampleTransform, RandomTransform, SampleTransform, Transform
from runner.dataset.visits import Draws, draws_of_call
from runner.errors import ConfigError, DataError, RunnerError, known_names
from runner.types import TensorType
from runner.validation.arguments import as_list, finite_number, whole_number

if TYPE_CHECKING:
    from PIL import Image

MAX_SIDE = 1 << 14


class Border(StrEnum):
    """Values of padding: a constant, the edge, or the image mirrored without or with its edge.

    Source: `mindspore.dataset.vision.Border` r1.2.
    """

    CONSTANT = "constant"
    EDGE = "edge"
    REFLECT = "reflect"
    SYMMETRIC = "symmetric"


class ImageBatchFormat(IntEnum):
    """The order of axes of a batch of images. Source: `mindspore.dataset.vision.utils.ImageBatchFormat` r1.2."""

    NHWC = 0
    NCHW = 1


class Inter(IntEnum):
    """Interpolation, with MindSpore's names and numbers. Source: `mindspore.dataset.vision.Inter` r1.2."""

    NEAREST = 0
    ANTIALIAS = 1
    LINEAR = 2
    BILINEAR = 2
    CUBIC = 3
    BICUBIC = 3


class StackTransform(Transform):
    """A transform of a stack of images, [B, H, W, C].

    Called directly, it takes a stack, or one image: [H, W, C], [H, W] or an image of Pillow.
    """

    def __call__(self, images: Any) -> np.ndarray:
        array = np.asarray(images)
        if array.ndim == 4:
            return self.stack(array)
        image = image_of(self, array)
        plane = image[..., np.newaxis] if image.ndim == 2 else image
        self.infer(TensorType.of(plane))
        if isinstance(self, RandomTransform):
            made = self.apply(plane[np.newaxis], draws_of_call().visit())[0]
        else:
            made = self.stack(plane[np.newaxis])[0]
        result: np.ndarray = made[..., 0] if image.ndim == 2 and made.shape[-1] == 1 else made
        return result

    @abstractmethod
    def stack(self, batch: np.ndarray) -> np.ndarray:
        """The transformed stack."""


class ImageTransform(SampleTransform):
    """A transform of one image, [H, W, C] or [H, W], on the host.

    Called directly, it also takes an image of Pillow, or a stack [B, H, W, C].
    """

    bytes_only = True  # takes UInt8 images and no others

    def one(self, value: Any, draws: Draws) -> np.ndarray:
        """The transformed image. Raises ConfigError for other values."""
        image = image_of(self, value)
        if self.bytes_only and image.dtype != np.uint8:
            raise ConfigError(f"{self!r} takes UInt8 images", found=image.dtype.name)
        return self.image(image, draws)

    @abstractmethod
    def image(self, image: np.ndarray, draws: Draws) -> np.ndarray:
        """The transformed image."""

    def __call__(self, value: Any) -> np.ndarray:
        draws = draws_of_call()
        if np.ndim(value) != 4:
            return self.one(value, draws)
        return np.stack([self.one(image, draws) for image in value])


class RandomImageSample(ImageTransform, RandomSampleTransform):
    """A random `ImageTransform`."""


def image_of(transform: Transform, value: Any) -> np.ndarray:
    """An array or an image of Pillow as an array. Raises ConfigError unless it has two or three axes."""
    image = np.asarray(value)
    if image.ndim not in (2, 3) or image.dtype.kind not in "uif" or 0 in image.shape:
        found = f"{image.dtype.name} of shape {image.shape}" if image.dtype.kind in "uif" else type(value).__name__
        allowed = "an array [height, width, channels] or [height, width], or an image of Pillow"
        raise ConfigError(f"{transform!r} takes images", found=found, allowed=allowed)
    return image


def size_of(size: int | Sequence[int]) -> tuple[int, ...]:
    """One side, or height and width, each from 1 to `MAX_SIDE`. Raises ConfigError for anything else."""
    sides = as_list(size)
    if len(sides) not in (1, 2):
        raise ConfigError("a size is one number or two", argument="size", value=size, allowed="(height, width)")
    return tuple(whole_number("size", side, 1, MAX_SIDE) for side in sides)


def height_and_width(size: int | Sequence[int]) -> tuple[int, int]:
    """Both sides; one number is a square."""
    sides = size_of(size)
    return sides[0], sides[-1]


def borders_of(padding: int | Sequence[int]) -> tuple[tuple[int, int], tuple[int, int]]:
    """(top, bottom), (left, right) of one number, (left and top, right and bottom) or (left, top, right, bottom)."""
    borders = [whole_number("padding", border, 0, MAX_SIDE) for border in as_list(padding)]
    if len(borders) not in (1, 2, 4):
        allowed = "one number, (left and top, right and bottom), or (left, top, right, bottom)"
        raise ConfigError("not a padding", argument="padding", value=padding, allowed=allowed)
    left, top, right, bottom = (border for border in borders for _ in range(4 // len(borders)))
    return (top, bottom), (left, right)


def fill_of(fill_value: int | Sequence[int]) -> tuple[int, ...]:
    """One value for all channels, or one for each of red, green and blue, 0 to 255."""
    values = tuple(whole_number("fill_value", value, 0, 255) for value in as_list(fill_value))
    if len(values) not in (1, 3):
        raise ConfigError("not a colour", argument="fill_value", value=fill_value, allowed="one number, or three")
    return values


def filled(values: tuple[int, ...], channels: int) -> tuple[int, ...]:
    """A colour with as many values as an image has channels; grey images use the first one."""
    return values if len(values) == channels else values[:1] * channels


def border_of(padding_mode: Border) -> Border:
    """The argument itself. Raises ConfigError for anything else."""
    if not isinstance(padding_mode, Border):
        rows = known_names(padding_mode, [f"Border.{name}" for name in Border.__members__])
        raise ConfigError("not a way of padding", argument="padding_mode", value=padding_mode, **rows)
    return padding_mode


def inter_of(interpolation: Inter, allowed: Sequence[Inter], argument: str = "interpolation") -> Inter:
    """The argument itself. Raises ConfigError unless it is an allowed interpolation."""
    if not isinstance(interpolation, Inter) or interpolation not in allowed:
        rows = known_names(
            interpolation, [f"Inter.{name}" for name, value in Inter.__members__.items() if value in allowed]
        )
        raise ConfigError("not an interpolation", argument=argument, value=interpolation, **rows)
    return interpolation


def probability_of(prob: float, argument: str = "prob") -> float:
    """A number from 0 to 1. Raises ConfigError for anything else."""
    number = finite_number(argument, prob)
    if not 0.0 <= number <= 1.0:
        raise ConfigError("not a probability", argument=argument, value=prob, allowed="0 to 1")
    return number


def range_of(argument: str, value: object, least: float, most: float, count: int = 2) -> tuple[float, ...]:
    """`count` / 2 ranges (low, high, ...), all from `least` to `most`. Raises ConfigError for anything else."""
    numbers = [finite_number(argument, number) for number in as_list(value)]
    pairs = list(zip(numbers[::2], numbers[1::2], strict=False))
    fits = len(numbers) == count and all(least <= low <= high <= most for low, high in pairs)
    if not fits:
        allowed = f"{', '.join(['low, high'] * (count // 2))} with {least:g} <= low <= high <= {most:g}"
        raise ConfigError("not a range", argument=argument, value=value, allowed=allowed)
    return tuple(numbers)


def symmetric_range(argument: str, value: object, most: float = 3.4e38) -> tuple[float, ...]:
    """(-x, x) for one number x of at least 0, otherwise the range (low, high)."""
    if len(numbers := as_list(value)) == 1:
        limit = range_of(argument, [0.0, *numbers], 0.0, most)[1]
        return -limit, limit
    return range_of(argument, numbers, -most, most)


def require_image(transform: Transform, sample: TensorType) -> None:
    """Raise ConfigError for samples that do not have three axes."""
    if sample.ndim != 3:
        raise ConfigError(f"{transform!r} takes images [height, width, channels]", sample=sample)


# Borders around a stack of images.

Borders = tuple[int, int]
KINDS: dict[Border, Literal["edge", "reflect", "symmetric"]] = {
    Border.EDGE: "edge",
    Border.REFLECT: "reflect",
    Border.SYMMETRIC: "symmetric",
}


def padded(
    batch: np.ndarray, rows: Borders, columns: Borders, row_axis: int, mode: Border, fill: Sequence[int]
) -> np.ndarray:
    """The stack with (before, after) more rows and columns; the batch itself when there are none.

    Rows are axis `row_axis`, columns the next one; the channels are the last axis, or the one before the rows. Raises
    ConfigError when a mirror image would be larger than the image.
    """
    if not any((*rows, *columns)):
        return batch
    widths = [(0, 0)] * batch.ndim
    widths[row_axis : row_axis + 2] = [rows, columns]
    if mode is Border.CONSTANT:
        return _constant(batch, widths, row_axis, tuple(fill))
    if mode is Border.REFLECT or mode is Border.SYMMETRIC:
        most = min(batch.shape[row_axis : row_axis + 2]) - (mode is Border.REFLECT)
        if max(*rows, *columns) > most:
            described = {"argument": "padding", "value": max(*rows, *columns), "allowed": f"0 to {most} for this image"}
            raise ConfigError(f"a border of Border.{mode.name} is larger than the image", **described)
    result: np.ndarray = np.pad(batch, widths, KINDS[mode])
    return result


def _constant(batch: np.ndarray, widths: list[Borders], row_axis: int, fill: tuple[int, ...]) -> np.ndarray:
    sides = [before + length + after for length, (before, after) in zip(batch.shape, widths, strict=True)]
    inside = tuple(slice(before, before + length) for length, (before, _) in zip(batch.shape, widths, strict=True))
    if not any(fill):
        result = np.zeros(sides, batch.dtype)
    else:
        channels_last = row_axis == 1
        colour = np.array(filled(fill, batch.shape[-1 if channels_last else 1]), batch.dtype)
        result = np.empty(sides, batch.dtype)
        result[...] = colour if channels_last else colour[:, np.newaxis, np.newaxis]
    result[inside] = batch
    return result


# Pillow. Files are untrusted: only the formats below are decoded, whatever a file's name says (Pillow starts other
# programs for some others), and the number of pixels is checked before memory is taken for them.

PillowImage: TypeAlias = "Image.Image"
FORMATS = ("PNG", "JPEG", "WEBP", "BMP")
JPEG_QUALITY = 95
MAX_PIXELS = 1 << 26  # 8192 x 8192: decoded, 256 MiB


def pillow() -> ModuleType:
    """Pillow, with its modules `Image`, `ImageEnhance` and `ImageOps`. Raises ConfigError without it."""
    try:
        import PIL
        from PIL import Image, ImageEnhance, ImageOps  # noqa: F401  attributes of the package from now on
    except ImportError:
        repair = "pip install 'runner-ml[images]'"
        raise ConfigError("Pillow, which reads images, is not installed", repair=repair) from None
    return PIL


def is_pillow_image(value: object) -> bool:
    """Whether a value is an image of Pillow; without Pillow, nothing is."""
    return type(value).__module__.partition(".")[0] == "PIL" and isinstance(value, pillow().Image.Image)


def decode_bytes(content: np.ndarray) -> PillowImage:
    """The RGB image in the bytes of a file, uint8 [length]; a transparent one loses its transparency.

    Raises ConfigError for other arrays, DataError for bytes that are no image of these formats or a damaged one.
    """
    content = np.asarray(content)
    if content.ndim != 1 or content.dtype != np.uint8:
        found = f"{content.dtype.name} of shape {content.shape}"
        raise ConfigError("Decode takes the bytes of an image file, UInt8 [length]", found=found)
    images = pillow().Image
    try:
        with images.open(BytesIO(content.tobytes()), formats=FORMATS) as image:
            if not 0 < image.width * image.height <= MAX_PIXELS:
                found = f"{image.width} x {image.height} pixels"
                raise DataError("an image is too large", expected=f"at most {MAX_PIXELS} pixels", found=found)
            return in_bytes(image).convert("RGB")
    except (RunnerError, MemoryError):
        raise
    except images.UnidentifiedImageError:
        rows = {"found": f"{content.size} bytes", "expected": ", ".join(FORMATS)}
        raise DataError("not an image", **rows, repair="Decode only what is not decoded yet") from None
    except Exception as reason:  # Pillow has no common class of its errors
        text = str(reason).strip().splitlines()
        raise DataError("a damaged image", found=text[0][:200] if text else type(reason).__name__) from None


def jpeg(image: np.ndarray) -> bytes:
    """A JPEG file of an image, uint8 [H, W, 3] or [H, W], in the quality that OpenCV writes by default."""
    stream = BytesIO()
    pillow().Image.fromarray(image).save(stream, "JPEG", quality=JPEG_QUALITY)
    return stream.getvalue()


def in_bytes(image: PillowImage) -> PillowImage:
    """The image itself, or one of 16 bits, which Pillow would clip to 255, with 8 bits per value."""
    if not image.mode.startswith("I"):
        return image
    levels = (np.asarray(image).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8)
    return pillow().Image.fromarray(levels)  # type: ignore[no-any-return]
