"""The message DumpData of dump files: field numbers, enumerations and parsing (spec section 3.8).

Source: `dump_data.proto` of MindSpore (mindspore/ccsrc/debug/debugger), proto3, package toolkit.dumpdata.
"""

import math
from itertools import islice
from typing import NamedTuple, TypeAlias

from runner import dtype as dt
from runner.errors import DataError
from runner.host.protobuf import MOST_AXES, fields, repeated_numbers
from runner.types import Shape

FORMATS = (
    *("NCHW", "NHWC", "ND", "NC1HWC0", "FRACTAL_Z", "NC1C0HWPAD", "NHWC1C0", "FSR_NCHW", "FRACTAL_DECONV", "C1HWNC0"),
    *("FRACTAL_DECONV_TRANSPOSE", "FRACTAL_DECONV_SP_STRIDE_TRANS", "NC1HWC0_C04", "FRACTAL_Z_C04", "CHWN"),
    *("FRACTAL_DECONV_SP_STRIDE8_TRANS", "HWCN", "NC1KHKWHWC0", "BN_WEIGHT", "FILTER_HWCK", "HASHTABLE_LOOKUP_LOOKUPS"),
    *("HASHTABLE_LOOKUP_KEYS", "HASHTABLE_LOOKUP_VALUE", "HASHTABLE_LOOKUP_OUTPUT", "HASHTABLE_LOOKUP_HITS"),
    *("C1HWNCoC0", "MD", "NDHWC", "FRACTAL_ZZ", "FRACTAL_NZ", "NCDHW", "DHWCN", "NDC1HWC0", "FRACTAL_Z_3D", "CN", "NC"),
    *("DHWNC", "FRACTAL_Z_3D_TRANSPOSE", "FRACTAL_ZN_LSTM", "FRACTAL_Z_G", "RESERVED"),
)
_LIKE_NUMPY = (
    *(dt.float32, dt.float16, dt.int8, dt.uint8, dt.int16, dt.uint16, dt.int32, dt.int64, dt.uint32, dt.uint64),
    *(dt.bool_, dt.float64),
)
_FOREIGN = (
    *("STRING", "DUAL_SUB_INT8", "DUAL_SUB_UINT8", "COMPLEX64", "COMPLEX128", "QINT8", "QINT16", "QINT32", "QUINT8"),
    *("QUINT16", "RESOURCE", "STRING_REF", "DUAL", "VARIANT", "BF16", "INT4", "UINT1", "INT2", "UINT2"),
)
TYPES = dict(enumerate(_LIKE_NUMPY, start=1))
_NAMES: dict[int, object] = dict(enumerate(("UNDEFINED", *_LIKE_NUMPY, *_FOREIGN)))

# Fields.
VERSION, TIME, OUTPUT, INPUT, BUFFER, NAME, SPACE = range(1, 8)
SIDE_NAMES = {INPUT: "input", OUTPUT: "output", BUFFER: "buffer", SPACE: "space"}
DATA_TYPE, FORMAT, SHAPE = 1, 2, 3
DIM = 1

MAX_TENSORS = 4096
Values: TypeAlias = dict[int, int | memoryview]


class SideFields(NamedTuple):
    """The field numbers that differ between inputs, outputs and memory buffers."""

    data: int
    size: int
    original: int = 0
    sub_format: int = 0


SIDES = {
    INPUT: SideFields(4, 5, 6, 7),
    OUTPUT: SideFields(5, 6, 7, 8),
    BUFFER: SideFields(2, 3),
    SPACE: SideFields(2, 3),
}


class DumpData:
    """A parsed message: `values` of its scalar fields, and `parts`, the values of its embedded messages by field.

    Raises DataError with the offset and the position.
    """

    def __init__(self, content: memoryview) -> None:
        self.values: Values = {}
        self.parts: dict[int, list[Values]] = {number: [] for number in SIDES}
        for number, value in fields(content):
            if number in self.parts:
                self._add(number, value)
            else:
                self.values[number] = value

    def _add(self, number: int, value: int | memoryview) -> None:
        parts = self.parts[number]
        try:
            if len(parts) == MAX_TENSORS:
                raise DataError("too many tensors", expected=f"at most {MAX_TENSORS}")
            if isinstance(value, int):
                raise DataError("bytes were expected", found="a number")
            parts.append(dict(fields(value)))
        except DataError as error:
            raise error.add(place=f"{SIDE_NAMES[number]} {len(parts)}") from None


def number(part: Values, field: int) -> int:
    """The value of a number field; 0 if it is missing. Raises DataError."""
    value = part.get(field, 0)
    if not isinstance(value, int):
        raise DataError("a number was expected", field=field, found=f"{len(value)} bytes")
    return value


def view(part: Values, field: int) -> memoryview:
    """The value of a length-delimited field; empty if it is missing. Raises DataError."""
    value = part.get(field, memoryview(b""))
    if isinstance(value, int):
        raise DataError("bytes were expected", field=field, found="a number")
    return value


def text(part: Values, field: int) -> str:
    """The value of a string field. Raises DataError if it is not UTF-8 or contains NUL, which no name does."""
    content = view(part, field)
    try:
        value = str(content, "utf-8")
    except UnicodeDecodeError:
        raise DataError("a string is not UTF-8", field=field, found=bytes(content[:80])) from None
    if "\0" in value:
        raise DataError("a string has the character 0", field=field, found=ascii(value[:80]))
    return value


def element_type(part: Values) -> dt.DType:
    """The element type of a tensor. Raises DataError for a type that numpy does not have."""
    code = number(part, DATA_TYPE)
    if code not in TYPES:
        found, allowed = _NAMES.get(code, code), ", ".join(map(str, _LIKE_NUMPY))
        raise DataError("numpy has no such element type", found=found, allowed=allowed)
    return TYPES[code]


def format_name(part: Values) -> str:
    """The format of a tensor: one of FORMATS, or such as `FORMAT_41` for an unknown number."""
    code = number(part, FORMAT)
    return FORMATS[code] if code < len(FORMATS) else f"FORMAT_{code}"


def shape(part: Values, field: int) -> Shape:
    """The value of a field of type Shape; () if it is missing. Raises DataError for impossible shapes."""
    dims: list[int] = []
    for field_of_shape, value in fields(view(part, field)):
        if field_of_shape == DIM:
            dims += islice(repeated_numbers(value), MOST_AXES + 1)
        if len(dims) > MOST_AXES:
            raise DataError("impossible shape of a tensor", expected=f"at most {MOST_AXES} axes")
    if math.prod(max(length, 1) for length in dims) >> 56:
        raise DataError("impossible shape of a tensor", found=dims)
    return tuple(dims)
