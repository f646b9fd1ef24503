"""Pillow (the extra `images`), loaded when it is needed: its modules, and images from the bytes of a file.

Files are untrusted: only the formats below are decoded, whatever a file's name says (Pillow starts other programs for
some others), and the number of pixels is checked before memory is taken for them.
"""

from io import BytesIO
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from runner.errors import ConfigError, DataError, RunnerError

if TYPE_CHECKING:
    from PIL import Image

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
            return _in_colour(image)
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


def _in_colour(image: PillowImage) -> PillowImage:
    if image.mode.startswith("I"):  # 16 bits, which Pillow would clip to 255
        levels = (np.asarray(image).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8)
        image = pillow().Image.fromarray(levels)
    return image.convert("RGB")
