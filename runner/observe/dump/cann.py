"""The file of an asynchronous dump: one operator with its inputs and outputs (CANN: "Data Dump").

    uint64 H | H bytes of the message DumpData, without data | inputs | outputs | buffers | spaces       version 2
    DumpData with the data inside                                                                        version 1

All numbers are little-endian, tensors are in C order without gaps, and nothing follows the last one. The package
`protobuf` would copy the tensors of version 1 (0.5 s and 1.2 GB for 400 MB, which are mapped here in 1 ms), and does
not report where a file is damaged. First the message DumpData, field by field, then the file: `header` begins one,
`read` opens one. Source of the message: `dump_data.proto` of MindSpore (mindspore/ccsrc/debug/debugger), proto3,
package toolkit.dumpdata.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np

from runner import dtype as dt
from runner.errors import ConfigError, DataError, nearest
from runner.host import protobuf
from runner.host.files import storage_errors
from runner.host.protobuf import MOST_AXES, fields, message, repeated_numbers, varint
from runner.types import Shape

# The message DumpData: field numbers, enumerations and parsing.

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


def message_shape(part: Values, field: int) -> Shape:
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


# The file.

HEADER_LIMIT = 1 << 24  # bytes
_CODES = {kind: code for code, kind in TYPES.items()}
_T = TypeVar("_T")


class TensorHeader(NamedTuple):
    """The description of a tensor in a file.

    `format` is one of FORMATS, or such as `FORMAT_41` for an unknown number. `shape` is in that format; `original` is
    the logical shape, or () if the file does not have it.
    """

    dtype: dt.DType
    format: str
    shape: Shape
    original: Shape

    @property
    def nbytes(self) -> int:
        """The size of the elements in bytes."""
        return math.prod(self.shape) * self.dtype.size


@dataclass(frozen=True, eq=False)
class LoadedTensor:
    """A tensor of a file that was opened: the fields of `TensorHeader`, and the elements.

    `array` has `shape` and is memory-mapped and read-only. `groups` is that of the convolution if the tensor has its
    weights, for FRACTAL_Z.
    """

    dtype: dt.DType
    format: str
    shape: Shape
    original: Shape
    array: np.ndarray
    groups: int = 1


@dataclass(frozen=True, eq=False)
class DumpFile:
    """One execution of one operator. `dump_time` is in microseconds.

    `buffers` are dumps of the device's L1 memory, `spaces` of its workspace memory.
    """

    op_name: str
    dump_time: int
    inputs: tuple[LoadedTensor, ...]
    outputs: tuple[LoadedTensor, ...]
    buffers: tuple[memoryview, ...]
    spaces: tuple[memoryview, ...] = ()


def header(op_name: str, microseconds: int, inputs: Sequence[TensorHeader], outputs: Sequence[TensorHeader]) -> bytes:
    """The beginning of a file of version 2.0: length and DumpData. The elements of inputs, then of outputs, follow.

    Raises ConfigError for a format that dump files do not support.
    """
    content = message(
        (VERSION, "2.0"),
        (TIME, microseconds),
        *((OUTPUT, _described(tensor, OUTPUT)) for tensor in outputs),
        *((INPUT, _described(tensor, INPUT)) for tensor in inputs),
        (NAME, op_name),
    )
    return len(content).to_bytes(8, "little") + content


def read(path: Path, version: Literal[1, 2] | None = None) -> DumpFile:
    """Open a dump file; with `version` None its version is detected. Elements are memory-mapped and read on access.

    Raises DataError with the file, the position and the expected value if the file is missing, truncated, longer than
    its header says, or describes impossible tensors or element types that numpy does not have; StorageError if it
    cannot be read.
    """
    content = _map(path)
    try:
        if version is None:
            version = _detect_version(content)
        if version == 1:
            return _load(DumpData(content), _ElementReader(None))
        head, rest = _split(content)
        return _load(DumpData(head), _ElementReader(rest))
    except DataError as error:
        raise error.add(file=path) from None


def _described(tensor: TensorHeader, side: int) -> bytes:
    if tensor.format not in FORMATS:
        raise ConfigError("not a format of dump files", value=tensor.format, nearest=nearest(tensor.format, FORMATS))
    original = [(SIDES[side].original, _dims(tensor.original))] if tensor.original else []
    return message(
        (DATA_TYPE, _CODES[tensor.dtype]),
        (FORMAT, FORMATS.index(tensor.format)),
        (SHAPE, _dims(tensor.shape)),
        (SIDES[side].size, tensor.nbytes),
        *original,
    )


def _dims(shape: Shape) -> bytes:
    return message((DIM, b"".join(map(varint, shape)))) if shape else b""


def _map(path: Path) -> memoryview:
    with storage_errors("cannot read a file", path):
        if not path.is_file():
            raise DataError("not a regular file" if path.exists() else "a file is missing", file=path)
        # An empty file cannot be mapped.
        return np.memmap(path, np.uint8, "r").data if path.stat().st_size else memoryview(b"")


def _detect_version(content: memoryview) -> Literal[1, 2]:
    """The length that begins version 2 ends with five zero bytes if it is within the limit; no DumpData begins so."""
    length = int.from_bytes(content[:8], "little")
    if length <= HEADER_LIMIT or len(content) < 8:
        return 2
    try:
        DumpData(content)
    except DataError as error:
        raise DataError(
            "neither the length of a header nor a message DumpData",
            as_a_length=f"{length} bytes in a file of {len(content)} bytes",
            as_a_message="; ".join((error.what, *(f"{label} {value}" for label, value in error.rows.items()))),
        ) from None
    return 1


def _split(content: memoryview) -> tuple[memoryview, memoryview]:
    """The message, and the elements after it."""
    if len(content) < 8:
        raise DataError("the file is too short for a header", expected="8 bytes or more", found=f"{len(content)} bytes")
    end = 8 + int.from_bytes(content[:8], "little")
    if not 8 < end <= len(content):
        found = f"{len(content)} bytes"
        raise DataError("the header does not fit the file", length=end - 8, expected=f"{end} bytes", found=found)
    if end - 8 > HEADER_LIMIT:
        raise DataError("the header is too long", expected=f"at most {HEADER_LIMIT} bytes", found=end - 8)
    return content[8:end], content[end:]


class _ElementReader:
    """Returns the bytes of one tensor after the other, from `rest` after the message, or with None from its parts."""

    def __init__(self, rest: memoryview | None) -> None:
        self._rest = rest

    def take(self, part: Values, side: int) -> memoryview:
        expected = number(part, SIDES[side].size)
        room = view(part, SIDES[side].data) if self._rest is None else self._rest
        if self._rest is None and not expected:
            return room
        if expected > len(room) or (self._rest is None and expected < len(room)):
            raise DataError("the elements are truncated", expected=f"{expected} bytes", found=f"{len(room)} bytes")
        if self._rest is not None:
            self._rest = self._rest[expected:]
        return room[:expected]

    def end(self) -> None:
        if self._rest:
            raise DataError("the file is longer than its header says", left_over=f"{len(self._rest)} bytes")


def _load(data: DumpData, elements: _ElementReader) -> DumpFile:
    def load_all(side: int, load: Callable[[Values, int, memoryview], _T]) -> tuple[_T, ...]:
        loaded = []
        for position, part in enumerate(data.parts[side]):
            try:
                loaded.append(load(part, side, elements.take(part, side)))
            except DataError as error:
                raise error.add(place=f"{SIDE_NAMES[side]} {position}") from None
        return tuple(loaded)

    name, time = text(data.values, NAME), number(data.values, TIME)
    tensors = load_all(INPUT, _load_tensor), load_all(OUTPUT, _load_tensor)
    file = DumpFile(name, time, *tensors, load_all(BUFFER, _load_bytes), load_all(SPACE, _load_bytes))
    elements.end()
    return file


def _load_bytes(part: Values, side: int, elements: memoryview) -> memoryview:
    return elements


def _load_tensor(part: Values, side: int, elements: memoryview) -> LoadedTensor:
    dtype, shape = element_type(part), message_shape(part, SHAPE)
    if not shape and not elements:
        shape = (0,)  # an omitted optional input
    original, groups = message_shape(part, SIDES[side].original), number(part, SIDES[side].sub_format)
    array = protobuf.array(dtype, shape, elements)
    return LoadedTensor(dtype, format_name(part), shape, original, array, groups or 1)
