"""Print files in the format of the reference (spec section 4): a sequence of protobuf messages, one per Print.

    Print { repeated Value value = 1; }
    Value { oneof: string desc = 1; TensorProto tensor = 2; }

A tensor without axes has no dims. The reference also omits the dims of a tensor of shape [1]; here they are written.
The package `protobuf` can only read a whole file, up to 2 GB, and does not report where it is damaged.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from runner import dtype as dt
from runner.core.values import Tensor
from runner.errors import ConfigError, DataError, StorageError
from runner.host import files, protobuf
from runner.host.files import Journal
from runner.host.protobuf import fields, located_fields, message, required_bytes, required_text
from runner.ops.print.screen import Part

FILE_LIMIT = 64 << 30  # maximum size of a file to read, in bytes
TYPES = {kind.name.lower(): kind for kind in dt.ALL}  # r1.2 writes Uint8, MindSpore 2 and runner UInt8
VALUE, DESC, TENSOR = 1, 1, 2


class PrintFile:
    """Appends one message per Print, each in one write. The first Print creates the file.

    `path` is the requested name, or one with a suffix when another process created that file first.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._journal: Journal | None = None
        self._size = 0

    def append(self, parts: Sequence[Part]) -> None:
        """Add the strings and tensors of one Print.

        Raises StorageError when they cannot be written completely; the file is then unchanged.
        """
        if self._journal is None:
            self._open()
        assert self._journal is not None
        content = message(*((VALUE, _value(part)) for part in parts))
        try:
            self._journal.extend(content)
        except StorageError:
            with suppress(StorageError):
                self._journal.cut(self._size)
            raise
        self._size += len(content)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was printed; there is no file then."""
        return not self._size

    def close(self) -> None:
        """Return when all is on the disk. A later Print continues the file."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def _open(self) -> None:
        while not self._size:
            try:
                files.write_new(self.path, b"")
                break
            except FileExistsError:
                self.path = unused_path(self.path)
            except OSError as reason:
                raise files.storage_error("cannot create the print file", self.path, reason) from reason
        self._journal = Journal(self.path)


def unused_path(path: Path) -> Path:
    """The path, with the time in seconds as a suffix if the file exists, as in the reference."""
    name, seconds = path, int(time.time())
    while name.exists():
        name = path.with_name(f"{path.name}.{seconds}")
        seconds += 1
    return name


def checked_path(path: str) -> Path:
    """The absolute path of a print file. Raises ConfigError when it is a folder, or its folder does not exist."""
    absolute = Path(path).absolute()
    rows = {"key": "print_file_path", "value": path}
    if absolute.is_dir():
        raise ConfigError("the print file is a folder", **rows, hint=Path(path, "print.pb"))
    if not absolute.parent.is_dir():
        raise ConfigError("the folder of the print file does not exist", **rows, folder=absolute.parent)
    return absolute


def parse_print(print_file_name: str | Path) -> list[str | Tensor]:
    """The strings and tensors that Print operators wrote into a file, in order.

    Raises DataError (a ValueError), with entry and offset, when the file is missing, empty or damaged; a list without
    its end would look complete. `print_entries` gives what precedes the damage.
    """
    return list(print_entries(print_file_name))


def print_entries(print_file_name: str | Path) -> Iterator[str | Tensor]:
    """Iterate over the strings and tensors of a print file.

    In a file that was cut, such as by a kill in the middle of a write, and in one that is damaged, all entries before
    the damage come first. Then it raises DataError with the entry (counted from 1) and `offset`, the byte at which it
    begins: a file cut to this length is complete.
    """
    path = Path(print_file_name)
    offset, count = 0, 0
    try:
        content = memoryview(files.read_bytes(path, FILE_LIMIT))
        if not content:
            raise DataError("the print file is empty", hint="nothing was printed, or this is another file")
    except DataError as error:
        raise error.add(file=path) from None
    try:
        for end, number, value in located_fields(content):
            if number == VALUE:
                yield _parse_entry(value)
                count += 1
            offset = end
    except DataError as error:
        raise error.add(file=path, entry=count + 1, offset=f"{offset} of {len(content)} bytes") from None


def _value(part: Part) -> bytes:
    if isinstance(part, str):
        return message((DESC, part))
    elements = np.asarray(part, part.dtype.newbyteorder("<"), order="C").tobytes()
    return message((TENSOR, protobuf.head(dt.of(part.dtype), part.shape, len(elements)) + elements))


def _parse_entry(value: int | memoryview) -> str | Tensor:
    """One string or tensor."""
    parts = dict(fields(required_bytes(value)))
    if DESC in parts:
        return required_text(parts[DESC])
    message = protobuf.parse(required_bytes(parts.get(TENSOR)))
    return Tensor(protobuf.decode(message, TYPES.get(message.kind.lower())).copy())
