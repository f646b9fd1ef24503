"""The values of summaries as fields of TensorBoard's message `Summary.Value`, by plugin.

Sources: tensorflow/core/framework/summary.proto, tensor.proto and types.proto.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from runner import dtype as dt
from runner.host import png

Fields = dict[str, Any]
CHANNELS = 1, 3
COLUMNS = 8  # images of a batch beside each other
FULL = 255  # the largest value of a pixel
# The numbers of types.proto.
_FLOATS = {dt.float32: 1, dt.float64: 2, dt.float16: 19}
_SIGNED = {dt.int32: 3, dt.int16: 5, dt.int8: 6, dt.int64: 9}
_UNSIGNED = {dt.uint8: 4, dt.bool_: 10, dt.uint16: 17, dt.uint32: 22, dt.uint64: 23}
DATA_TYPES = {**_FLOATS, **_SIGNED, **_UNSIGNED}


def scalar(value: np.ndarray) -> Fields:
    """A number, of an array with one element."""
    return {"simple_value": float(value.reshape(-1)[0])}


def tensor(value: np.ndarray) -> Fields:
    """All elements."""
    elements = np.asarray(value, value.dtype.newbyteorder("<"), order="C").tobytes()
    shape = {"dim": [{"size": length} for length in value.shape]}
    return {"tensor": {"dtype": DATA_TYPES[dt.of(value.dtype)], "tensor_shape": shape, "tensor_content": elements}}


def histogram(value: np.ndarray) -> Fields:
    """The numbers of finite elements between limits at equal distances: up to 90, 10 elements for each on average."""
    numbers = value.astype(np.float64).ravel()
    numbers = numbers[np.isfinite(numbers)]
    if not numbers.size:
        return {"histo": {"bucket_limit": [0.0], "bucket": [0.0]}}
    low, high = float(numbers.min()), float(numbers.max())
    # In units of the largest number: the distance of two finite numbers may be infinite.
    scale = max(abs(low), abs(high)) or 1.0
    buckets = min(90, max(2, numbers.size // 10 + 1))
    margin = 0.5 if low == high else 0.0
    limits = np.linspace(low / scale - margin, high / scale + margin, buckets + 1)
    counts, _ = np.histogram(numbers / scale, limits)
    with np.errstate(over="ignore"):
        moments = {"sum": float(numbers.sum()), "sum_squares": float(np.square(numbers).sum())}
        limits *= scale
    fields = {"min": low, "max": high, "num": float(numbers.size), **moments}
    return {"histo": {**fields, "bucket_limit": limits[1:].tolist(), "bucket": counts.astype(float).tolist()}}


def image(value: np.ndarray) -> Fields:
    """The images of a batch (N, C, H, W) beside each other, in rows of eight, as one PNG file."""
    number, channels, height, width = value.shape
    columns = min(number, COLUMNS)
    rows = -(-number // columns)
    canvas = np.zeros((rows * columns, channels, height, width), np.uint8)
    canvas[:number] = pixels(value)
    grid = canvas.reshape(rows, columns, channels, height, width).transpose(0, 3, 1, 4, 2)
    whole = grid.reshape(rows * height, columns * width, channels)
    fields = {"height": whole.shape[0], "width": whole.shape[1], "colorspace": channels}
    return {"image": {**fields, "encoded_image_string": png.encode(whole)}}


def pixels(value: np.ndarray) -> np.ndarray:
    """Numbers as uint8: bytes unchanged, numbers from 0 to 1 times 255, others from the least to the largest."""
    if value.dtype == np.uint8:
        return value
    numbers = np.nan_to_num(value.astype(np.float64), posinf=0.0, neginf=0.0)
    low, high = float(numbers.min(initial=0.0)), float(numbers.max(initial=0.0))
    if low < 0 or high > 1:
        low = float(numbers.min())
        numbers = (numbers / 2 - low / 2) / ((high / 2 - low / 2) or 1.0)
    pixels: np.ndarray = (numbers * FULL).astype(np.uint8)
    return pixels


def is_image(shape: tuple[int, ...]) -> bool:
    """Whether an array of this shape is a batch of images."""
    return len(shape) == 4 and shape[1] in CHANNELS and 0 not in shape


def table(values: Mapping[str, Any]) -> str:
    """Values by name as JSON in a code block of Markdown."""
    lines = json.dumps(dict(values), indent=2, default=str).splitlines()
    return "\n".join(f"    {line}" for line in lines)


PLUGINS: dict[str, Callable[[np.ndarray], Fields]] = {
    "scalar": scalar,
    "image": image,
    "tensor": tensor,
    "histogram": histogram,
}
