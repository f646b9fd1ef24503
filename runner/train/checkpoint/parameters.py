"""Parameters in files: `save_checkpoint`, `load_checkpoint`, `load_param_into_net`.

First the format of `.ckpt` files, a sequence of protobuf messages, then the functions, which also read checkpoints of
runner and safetensors.
"""

import struct
import sys
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import IO, Any

import numpy as np

from runner import dtype as dt
from runner.core.values import Parameter, Tensor
from runner.errors import ConfigError, DataError, nearest, some
from runner.host import files, protobuf
from runner.host.machine import require_memory
from runner.host.protobuf import (
    FIXED64,
    LENGTH,
    TensorMessage,
    fields,
    key,
    message as protobuf_message,
    required_bytes,
    required_text,
    varint,
)
from runner.nn.cell import Cell
from runner.train.checkpoint import state
from runner.train.checkpoint.state import decode, plain_arrays
from runner.validation.arguments import flag, scalar

# MindSpore's `.ckpt` files: one protobuf message per parameter.

SLICE_BYTES = 512 << 20
FILE_LIMIT = 64 << 30  # maximal size of a file to read, in bytes
MODE = 0o400
REPAIR = "save it again, or fetch another copy"
TYPES = {kind.name: kind for kind in dt.ALL}
TEXT = "str"  # a type of MindSpore 2: annotations of the parameters
CRC = b"crc_num"
CRC_BYTES = len(CRC) + 10
FILE_SIZE = 1001  # our own field: the bytes of a whole protected file


def write(path: Path, arrays: Mapping[str, np.ndarray], *, crc_check: bool) -> None:
    """Write a `.ckpt` file, atomically; with `crc_check` a protected one, otherwise the bytes of MindSpore r1.2.

    Raises ConfigError for what cannot be saved, or StorageError.
    """
    parts = [part for name, array in plain_arrays(arrays).items() for part in _messages(name, array)]

    def content(file: IO[bytes]) -> None:
        checksum = 0
        for part in [_size_field(parts), *parts] if crc_check else parts:
            file.write(part)
            checksum = zlib.crc32(part, checksum) if crc_check else 0
        if crc_check:
            file.write(CRC + checksum.to_bytes(10, "big"))

    files.write_atomically(path, content, MODE)


def read(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a `.ckpt` file by name, as views of its content, without the text annotations of MindSpore 2.

    A checksum is verified if there is one. Without it, changed numbers and a cut between two parameters are not
    detected. Raises DataError with the file, and the parameter or position, when it is damaged or has unsupported
    content.
    """
    try:
        messages = _verified(memoryview(files.read_bytes(path, FILE_LIMIT)))
        arrays = {}
        for name, message in _parameters(messages):
            if name in arrays:
                raise DataError("a checkpoint names a parameter twice", parameter=name)
            if message.kind != TEXT:
                arrays[name] = _array(name, message)
        return arrays
    except DataError as error:
        raise error.add(file=path, repair=REPAIR) from None


def _messages(name: str, array: np.ndarray) -> Iterator[bytes | memoryview]:
    """The messages of one parameter, in parts: the header and the content of each."""
    elements = array.reshape(-1).view(np.uint8).data
    kind, dims = dt.of(array.dtype), array.shape or (0,)
    for start in range(0, max(1, len(elements)), SLICE_BYTES):
        piece = elements[start : start + SLICE_BYTES]
        tensor = protobuf.head(kind, dims, len(piece))
        value = protobuf_message((1, name)) + key(2, LENGTH) + varint(len(tensor) + len(piece)) + tensor
        yield key(1, LENGTH) + varint(len(value) + len(piece)) + value
        yield piece


def _array(name: str, message: TensorMessage) -> np.ndarray:
    try:
        return protobuf.decode(message, TYPES.get(message.kind))
    except DataError as error:
        raise error.add(parameter=name) from None


def _parameters(messages: memoryview) -> Iterator[tuple[str, TensorMessage]]:
    """The parameters of a file by name; consecutive messages with one tag are slices, which are merged."""
    # Later versions may add other fields.
    pieces = [_parameter(required_bytes(value)) for number, value in fields(messages) if number == 1]
    if not pieces:
        raise DataError("a checkpoint without parameters")
    for name, slices in groupby(pieces, itemgetter(0)):
        first, *rest = [message for _, message in slices]
        if any((one.dims, one.kind) != (first.dims, first.kind) for one in rest):
            raise DataError("slices of one parameter have several types", parameter=name)
        whole = memoryview(b"".join(one.content for one in (first, *rest))) if rest else first.content
        yield name, first._replace(content=whole)


def _parameter(value: memoryview) -> tuple[str, TensorMessage]:
    parts = dict(fields(value))
    name = required_text(parts.get(1))
    if 3 in parts:
        raise DataError("runner has no map parameters", parameter=name)
    return name, protobuf.parse(required_bytes(parts.get(2)))


def _size_field(parts: Sequence[bytes | memoryview]) -> bytes:
    """The first field of a protected file with these messages."""
    start = key(FILE_SIZE, FIXED64)
    return start + struct.pack("<Q", len(start) + 8 + sum(map(len, parts)) + CRC_BYTES)


def _verified(content: memoryview) -> memoryview:
    """The messages of a file; its size and its checksum are verified if it has them. Raises DataError."""
    start = key(FILE_SIZE, FIXED64)
    is_protected = content[: len(start)] == start and len(content) >= len(start) + 8
    if is_protected and (size := struct.unpack_from("<Q", content, len(start))[0]) != len(content):
        rows = {"expected": f"{size} bytes", "found": f"{len(content)} bytes"}
        raise DataError("a checkpoint is incomplete, or has additional bytes", **rows)
    if content[-CRC_BYTES:-10] != CRC:
        if is_protected:
            raise DataError("the checksum of a checkpoint is missing")
        return content
    expected, found = int.from_bytes(content[-10:], "big"), zlib.crc32(content[:-CRC_BYTES])
    if expected != found:
        raise DataError("the checksum of a checkpoint does not match", expected=expected, found=found)
    return content[:-CRC_BYTES]


# Saving and loading

SUFFIX, SAFETENSORS = ".ckpt", ".safetensors"
PICKLES = (".pt", ".pth", ".bin", ".pkl")  # which can contain code
MAX_NAMES = 8  # names listed in an error; the rest is counted


def save_checkpoint(
    save_obj: Cell | Sequence[Mapping[str, Any]],
    ckpt_file_name: str | Path,
    integrated_save: bool = True,
    async_save: bool = False,
    append_info: Mapping[str, int | float | bool] | None = None,
    *,
    crc_check: bool = True,
) -> None:
    """Save the parameters of a cell, or a list of `{"name": ..., "data": tensor}`, and the numbers of `append_info`.

    A name that ends with `/` selects a directory in runner's format; any other one a file of MindSpore's format,
    with `.ckpt` appended if missing. The file is complete when the call returns, also with `async_save`.
    `crc_check=False` omits the checksum, by which damage is detected: MindSpore before 2.3 cannot read files that have
    one. `append_info` has numbers by name, which `load_checkpoint` returns as parameters without axes (Int64, Float64
    or Bool). `integrated_save` has no effect, since runner does not split parameters. Raises ConfigError, or
    StorageError.
    """
    name = _checked_name(ckpt_file_name)
    flag({}, integrated_save=integrated_save, async_save=async_save, crc_check=crc_check)
    if isinstance(save_obj, Cell):
        arrays = {key: parameter.array for key, parameter in save_obj.parameters_dict().items()}
    else:
        arrays = _listed(save_obj)
    if not arrays:
        raise ConfigError("there are no parameters to save", file=name)
    numbers = appended_numbers(append_info)
    if both := [key for key in numbers if key in arrays]:
        raise ConfigError("append_info has the name of a parameter", file=name, name=both[0])
    arrays |= numbers
    if name.endswith("/"):
        state.save(Path(name), arrays, progress={}, identity={})
    else:
        write(Path(name if name.endswith(SUFFIX) else name + SUFFIX), arrays, crc_check=crc_check)


def load_checkpoint(
    ckpt_file_name: str | Path,
    net: Cell | None = None,
    strict_load: bool = False,
    filter_prefix: str | Sequence[str] | None = None,
) -> dict[str, Parameter]:
    """The parameters of a `.ckpt` or `.safetensors` file, or of a directory in runner's format, by name.

    Parameters whose names start with `filter_prefix` (or one of several) are omitted. With `net` they are also loaded
    into it, like by `load_param_into_net`, and a warning names parameters of `net` missing in the checkpoint. Raises
    ConfigError for invalid arguments, DataError for a missing or damaged checkpoint.
    """
    path = Path(_checked_name(ckpt_file_name))
    if net is not None:
        _check_cell(net)
    prefixes = _checked_prefixes(filter_prefix)
    arrays = _read(path)
    if not arrays:
        raise DataError("a checkpoint without parameters", file=path)
    kept = {name: array for name, array in arrays.items() if not name.startswith(prefixes)}
    if not kept:
        raise ConfigError("filter_prefix excludes all parameters", file=path, given=", ".join(prefixes))
    parameters = {name: Parameter(array, name) for name, array in kept.items()}
    if net is not None:
        try:
            missing = load_param_into_net(net, parameters, strict_load)
        except ConfigError as error:
            raise error.add(checkpoint=path) from None
        if missing:
            warnings.warn(f"parameters that {path} does not have: {some(missing, MAX_NAMES)}", stacklevel=2)
    return parameters


def load_param_into_net(net: Cell, parameter_dict: Mapping[str, Tensor], strict_load: bool = False) -> list[str]:
    """Set the parameters of a network by name, and return the names missing in `parameter_dict`.

    Raises ConfigError, before any value is changed, when a parameter has another shape or type, when no name matches,
    and with `strict_load` when a name is missing or surplus.
    """
    _check_cell(net)
    flag({}, strict_load=strict_load)
    if not isinstance(parameter_dict, Mapping) or not all(isinstance(v, Tensor) for v in parameter_dict.values()):
        raise ConfigError("parameter_dict must have tensors by name", given=_brief(parameter_dict))
    wanted = net.parameters_dict()
    missing = [name for name in wanted if name not in parameter_dict]
    surplus = [name for name in parameter_dict if name not in wanted]
    common = [name for name in wanted if name in parameter_dict]
    if not common or (strict_load and (missing or surplus)) or other_types(net, parameter_dict):
        raise other_network(net, parameter_dict, missing, surplus)
    for name in common:
        wanted[name].set_data(np.array(parameter_dict[name].array))
    return missing


def other_network(
    net: Cell,
    parameter_dict: Mapping[str, Tensor],
    missing: Sequence[str],
    surplus: Sequence[str],
    most: int = MAX_NAMES,
) -> ConfigError:
    """The error for a checkpoint of another network, with the parameters that are missing, surplus or differ.

    It lists `most` names of each.
    """
    return ConfigError(
        "the checkpoint is of another network",
        network=type(net).__name__,
        other_type=_lines(other_types(net, parameter_dict), most),
        missing=_lines([_with_nearest(name, surplus) for name in missing[:most]], most, len(missing)),
        surplus=_lines([_with_nearest(name, missing) for name in surplus[:most]], most, len(surplus)),
    )


def other_types(net: Cell, parameter_dict: Mapping[str, Tensor]) -> list[str]:
    """A line about each parameter whose shape or element type is another one in the checkpoint."""
    wanted = net.parameters_dict()
    pairs = [(name, wanted[name].type, parameter_dict[name].type) for name in wanted if name in parameter_dict]
    return [f"{name}: {own}, in the checkpoint {saved}" for name, own, saved in pairs if own != saved]


def _read(path: Path) -> dict[str, np.ndarray]:
    if path.is_dir():
        return state.load(path).arrays
    if not path.exists():
        names = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        raise DataError("there is no such checkpoint", file=path, nearest=nearest(path.name, names))
    if path.suffix == SAFETENSORS:
        require_memory(2 * path.stat().st_size, file=path)
        return decode(files.read_bytes(path, sys.maxsize), path)
    if path.suffix != SUFFIX:
        repair = "a .safetensors file: safetensors.torch.save_file(model.state_dict(), ...)"
        rows = {"given": path, "allowed": f"a file *{SUFFIX} or *{SAFETENSORS}, or a directory"}
        is_pickle = path.suffix in PICKLES
        raise ConfigError("not the name of a checkpoint", **rows, repair=repair if is_pickle else None)
    return read(path)


def appended_numbers(append_info: Mapping[str, int | float | bool] | None) -> dict[str, np.ndarray]:
    """The numbers of `append_info` as arrays. Raises ConfigError for anything else."""
    if append_info is not None and not isinstance(append_info, Mapping):
        raise ConfigError("append_info must be a dict", given=_brief(append_info))
    numbers: dict[str, np.ndarray] = {}
    for name, given in (append_info or {}).items():
        array = np.asarray(scalar(given))
        if not isinstance(name, str) or not name or array.ndim or array.dtype.kind not in "bif":
            rows = {"name": repr(name), "given": _brief(given), "allowed": "numbers by name, of 64 bits at most"}
            raise ConfigError("append_info has something that is no number with a name", **rows)
        numbers[name] = array
    return numbers


def _listed(save_obj: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    allowed = 'a Cell, or a list of {"name": str, "data": Tensor}'
    if not isinstance(save_obj, list | tuple):
        raise ConfigError("not something to save", given=_brief(save_obj), allowed=allowed)
    arrays: dict[str, np.ndarray] = {}
    for position, item in enumerate(save_obj):
        if not isinstance(item, Mapping) or set(item) != {"name", "data"} or not isinstance(item["data"], Tensor):
            raise ConfigError("not something to save", given=_brief(item), at=position, allowed=allowed)
        if item["name"] in arrays:
            raise ConfigError("two parameters have one name", name=item["name"], at=position)
        arrays[item["name"]] = item["data"].array
    return arrays


def _checked_name(name: str | Path) -> str:
    """The name as text. `Path` drops a trailing `/`, so only text can select a directory."""
    if not isinstance(name, str | Path) or not str(name):
        raise ConfigError("ckpt_file_name must be the name of a file", given=repr(name))
    return str(name)


def _checked_prefixes(prefix: str | Sequence[str] | None) -> tuple[str, ...]:
    if prefix is None:
        return ()
    prefixes = (prefix,) if isinstance(prefix, str) else tuple(prefix) if isinstance(prefix, list | tuple) else ()
    if not prefixes or not all(isinstance(one, str) and one for one in prefixes):
        raise ConfigError("filter_prefix must be a text or a list of texts, none empty", given=repr(prefix))
    return prefixes


def _check_cell(net: Cell) -> None:
    if not isinstance(net, Cell):
        raise ConfigError("net must be a Cell", given=_brief(net))


def _with_nearest(name: str, others: Sequence[str]) -> str:
    close = nearest(name, others)
    return f"{name} (nearest: {close})" if close else name


def _lines(texts: Sequence[str], most: int, count: int | None = None) -> str | None:
    """One text per line, at most `most` of `count`; None when there is none."""
    count = len(texts) if count is None else count
    rest = [f"and {count - most} more"] if count > most else []
    return "\n".join([*texts[:most], *rest]) or None


def _brief(value: object) -> str:
    """A short representation: the type only for networks and arrays, which would be too long."""
    return f"{value!r:.60}" if isinstance(value, str | int | float | None) else type(value).__name__
