"""TensorBoard's event files: records with checksums, whose contents are messages of tensorboardX.

A record is a length (uint64), its checksum, the content and its checksum, all little-endian. A writer of our own
appends whole records: that of tensorboardX begins a file by emptying one that has its name.
"""

import socket
import struct
import time
from collections.abc import Iterator
from functools import cache
from math import isqrt
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from runner.errors import StorageError
from runner.host import files
from runner.host.files import Journal

# CRC-32C, the checksum of TensorBoard's records, for megabytes of images and tensors.
#
# The checksum is linear: the data are cut into rows, whose checksums numpy computes column by column, all rows at once,
# and which are then combined. A loop of Python over bytes, as in tensorboardX, takes 30 times as long for a megabyte.

POLYNOMIAL = 0x82F63B78
BITS = 0xFFFFFFFF
SMALL = 4096  # bytes up to which a loop is as fast


def masked_crc32c(data: bytes) -> int:
    """The checksum as in records: rotated by 15 bits, plus a constant."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & BITS


def crc32c(data: bytes) -> int:
    """The checksum of some bytes.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    columns = isqrt(len(data)) if len(data) > SMALL else 0
    rows = len(data) // columns if columns else 0
    head = len(data) - rows * columns
    state, table = BITS, _table().tolist()
    for byte in data[:head]:
        state = table[(state ^ byte) & 0xFF] ^ state >> 8
    if rows:
        state = _combined(state, np.frombuffer(data, np.uint8, offset=head).reshape(rows, columns))
    return state ^ BITS


def _combined(state: int, data: np.ndarray) -> int:
    """The state after the rows of `data`."""
    rows, columns = data.shape
    bits = np.arange(32, dtype=np.uint32)
    # The rows begin with 0; behind them, each bit of a state, which a row of zero bytes turns into `advanced`.
    states = np.concatenate([np.zeros(rows, np.uint32), np.uint32(1) << bits])
    table = _table()
    for column in range(columns):
        index = states & 0xFF
        index[:rows] ^= data[:, column]
        states = table[index] ^ states >> np.uint32(8)
    advanced = states[rows:]
    for own in states[:rows].tolist():
        state = int(np.bitwise_xor.reduce(advanced[np.uint32(state) >> bits & 1 == 1])) ^ own
    return state


@cache
def _table() -> np.ndarray:
    """The state that follows from each byte."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = table >> np.uint32(1) ^ np.where(table & 1, np.uint32(POLYNOMIAL), np.uint32(0))
    return table


# TensorBoard's event files: records with checksums, whose contents are messages of tensorboardX.

MARK = ".tfevents."
HEADER, FOOTER = 12, 4  # bytes: length and its checksum, checksum of the content


def load_library() -> SimpleNamespace:
    """The used parts of tensorboardX: a record writer, messages, and functions. Raises ImportError."""
    from tensorboardX import summary
    from tensorboardX.event_file_writer import EventsWriter
    from tensorboardX.proto import event_pb2, summary_pb2

    return SimpleNamespace(
        writer=EventsWriter,
        event=event_pb2.Event,
        session=event_pb2.SessionLog,
        summary=summary_pb2.Summary,
        text=summary.text,
    )


def records(path: Path) -> Iterator[bytes]:
    """The records of a file, up to the first incomplete one, left by a killed writer."""
    with open(path, "rb") as file:
        while len(header := file.read(HEADER)) == HEADER:
            (length,) = struct.unpack("<Q", header[:8])
            content = file.read(min(length, path.stat().st_size))
            if len(content) < length or len(file.read(FOOTER)) < FOOTER:
                return
            yield content


class EventLog:
    """A new event file in `folder`, which is created if necessary: `{prefix}.out.tfevents.{seconds}.{host}{suffix}`.

    `seconds` is the time, or later when another process has that name. Events are on the disk after `sync`; a kill cuts
    the last one at most. Raises ImportError without tensorboardX, and StorageError.
    """

    def __init__(self, folder: Path, prefix: str, suffix: str) -> None:
        self.library = load_library()
        self.path, self.seconds = _new_file(files.make_directory(folder), prefix, suffix)
        self._journal = Journal(self.path)
        self.size = 0
        self.write(file_version="brain.Event:2")

    def record(self, **fields: Any) -> bytes:
        """The bytes of an event with these fields, at this time."""
        content: bytes = self.library.event(wall_time=time.time(), **fields).SerializeToString()
        length = struct.pack("<Q", len(content))
        return b"".join([length, _checksum(length), content, _checksum(content)])

    def write(self, **fields: Any) -> None:
        """Append an event. Raises StorageError; the file is then as it was, if possible."""
        self.append(self.record(**fields))

    def append(self, record: bytes) -> None:
        """Append the bytes of an event."""
        try:
            self._journal.extend(record)
        except StorageError:
            self._journal.cut(self.size)
            raise
        self.size += len(record)

    def sync(self) -> None:
        """Return when all events are on the disk. Raises StorageError."""
        self._journal.sync()

    def close(self) -> None:
        """Sync and close; closing twice is allowed."""
        self._journal.close()


def _checksum(data: bytes) -> bytes:
    return struct.pack("<I", masked_crc32c(data))


def _new_file(folder: Path, prefix: str, suffix: str) -> tuple[Path, int]:
    seconds = int(time.time())
    while True:
        # The names of one host sort by time, which is the order in which TensorBoard reads them.
        path = folder / f"{prefix}.out{MARK}{seconds:010d}.{socket.gethostname()}{suffix}"
        try:
            files.write_new(path, b"")
            return path, seconds
        except FileExistsError:
            seconds += 1
        except (OSError, ValueError):
            with files.storage_errors("cannot create an event file", path):
                raise
