"""Tensors in the reference's binary files: the message of checkpoints and print files, and the encoding of elements.

TensorProto { repeated int64 dims = 1; string tensor_type = 2; bytes tensor_content = 3; }
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from runner.dtype import ALL, DType, bool_
from runner.errors import DataError
from runner.host.protobuf import LENGTH, fields, key, message, repeated_numbers, required_bytes, required_text, varint

DIMS, KIND, CONTENT = 1, 2, 3
MOST_AXES = 32


class TensorMessage(NamedTuple):
    """A TensorProto; `kind` is the name of an element type, and `content` a view of the file."""

    dims: list[int]
    kind: str
    content: memoryview


def head(kind: DType, dims: Sequence[int], size: int) -> bytes:
    """The start of a TensorProto, up to its content of `size` bytes."""
    described = message(*((DIMS, length) for length in dims), (KIND, kind.name))
    return described + key(CONTENT, LENGTH) + varint(size)


def parse(content: memoryview) -> TensorMessage:
    """The parts of a TensorProto. Raises DataError when one is missing or damaged."""
    dims: list[int] = []
    rest: dict[int, int | memoryview] = {}
    for number, value in fields(content):
        if number == DIMS:
            dims += repeated_numbers(value)
        else:
            rest[number] = value
    return TensorMessage(dims, required_text(rest.get(KIND)), required_bytes(rest.get(CONTENT)))


def decode(message: TensorMessage, kind: DType | None) -> np.ndarray:
    """The array of a message; `kind` is the element type of that name, None if there is none. Raises DataError."""
    if kind is None:
        raise DataError("unknown element type", found=ascii(message.kind), allowed=", ".join(map(str, ALL)))
    shape = [] if message.dims == [0] and message.content else message.dims  # how the reference writes a scalar
    return array(kind, shape, message.content).astype(kind.numpy, copy=False)


def array(kind: DType, shape: Sequence[int], elements: bytes | memoryview) -> np.ndarray:
    """Elements in C order, little-endian, as an array: a view. Raises DataError unless the shape fits the elements."""
    if len(shape) > MOST_AXES or any(length >> 63 for length in shape):
        raise DataError("impossible shape of a tensor", found=list(shape))
    if (size := math.prod(shape) * kind.size) != len(elements):
        rows = {"shape": f"{kind}{list(shape)}", "expected": f"{size} bytes", "found": f"{len(elements)} bytes"}
        raise DataError("the size of a tensor differs from its shape", **rows)
    if kind is bool_ and np.frombuffer(elements, np.uint8).max(initial=0) > 1:
        raise DataError("a Bool is neither 0 nor 1")
    try:
        return np.frombuffer(elements, kind.numpy.newbyteorder("<")).reshape(shape)
    except ValueError as reason:  # an empty tensor with dimensions too large for numpy
        raise DataError("impossible shape of a tensor", found=reason) from None
