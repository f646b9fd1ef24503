"""Named arrays in the safetensors format, which cannot contain code."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import safetensors
import safetensors.numpy

from runner import dtype as dt
from runner.errors import ConfigError, DataError

TYPES = {
    **{f"F{bits}": f"<f{bits // 8}" for bits in (16, 32, 64)},
    **{f"{kind}{bits}": f"<{kind.lower()}{bits // 8}" for kind in "IU" for bits in (8, 16, 32, 64)},
    "BOOL": "?",
}


def plain_arrays(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays in the form of file formats: native byte order, C order, printable names.

    safetensors 0.8 writes the memory of an array, so it would write other values for strided arrays. Raises ConfigError
    with the name of an array that cannot be saved.
    """
    plain = {}
    for name, array in arrays.items():
        if not isinstance(name, str) or not name or not name.isprintable() or name == "__metadata__":
            raise ConfigError("not a name for an array of a checkpoint", name=ascii(name))
        value = np.asarray(array)
        try:
            plain[name] = value.astype(dt.of(value.dtype).numpy, order="C", copy=False)
        except ConfigError as error:
            raise error.add(array=name) from None
    return plain


def encode(arrays: Mapping[str, np.ndarray]) -> bytes:
    """The content of a safetensors file; equal arrays give equal bytes. Raises ConfigError."""
    return bytes(safetensors.numpy.save(plain_arrays(arrays)))


def decode(content: bytes, path: Path) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file, those of BFloat16 as Float32; `path` is for errors. Raises DataError."""
    try:
        arrays = {name: _array(**part) for name, part in safetensors.deserialize(content)}  # type: ignore[no-untyped-call]
        for array in arrays.values():
            dt.of(array.dtype)
    except (safetensors.SafetensorError, ValueError, KeyError) as reason:
        raise DataError("not a safetensors file", file=path, found=reason) from None
    return arrays


def _array(dtype: str, shape: list[int], data: bytes) -> np.ndarray:
    """One array of a file. Raises KeyError for an unknown type."""
    if dtype == "BF16":  # the upper halves of Float32
        halves = np.frombuffer(data, "<u2").astype(np.uint32)
        return (halves << 16).view(np.float32).reshape(shape)
    return np.frombuffer(data, TYPES[dtype]).reshape(shape)
