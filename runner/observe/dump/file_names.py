"""Formatting and parsing of dump file names: synchronous (spec section 3.5) and asynchronous (3.4, 3.9).

{name}_{io}_{slot}_shape_{d0}_{d1}_{Type}_{format}.bin                       sync; `/` of the name is `--`
{op_type}.{op_name}.{task_id}.{stream_id}.{timestamp}                        async, one file per operator
{op_type}.{op_name}.{task_id}.{stream_id}.{timestamp}.{io}.{slot}.{format}.npy       async, one .npy file per tensor
"""

import re
from typing import NamedTuple

from runner import dtype as dt
from runner.types import Shape, TensorType

DEFAULT_FORMAT = "DefaultFormat"
INPUT, OUTPUT = "input", "output"
PARAMETER = "Parameter"  # the operator type of parameters and constants in asynchronous dumps
_TYPES = {kind.name: kind for kind in dt.ALL} | {"kNumberType" + kind.name: kind for kind in dt.ALL}
_SYNC = re.compile(r"(.+)_(input|output)_(\d+)_shape_(\d+(?:_\d+)*)_([A-Za-z]+\d*)_([A-Za-z0-9_]+)\.bin")
_ASYNC = re.compile(r"([^.]+)\.([^.]+)\.(\d+)(?:\.(\d+))?\.(\d+)")
# MindSpore 2.x adds the element type after the format.
_NPY = re.compile(r"(.+)\.(input|output)\.(\d+)\.([A-Za-z0-9_]+)(?:\.[A-Za-z]+\d*)?\.npy")


class SyncName(NamedTuple):
    """A file of a synchronous dump. `name` is the full name of an operator, or that of a parameter or constant."""

    name: str
    io: str
    slot: int
    type: TensorType
    format: str = DEFAULT_FORMAT

    def __str__(self) -> str:
        dims = "_".join(map(str, self.type.shape)) or "0"
        flat = self.name.replace("/", "--")
        return f"{flat}_{self.io}_{self.slot}_shape_{dims}_{self.type.dtype}_{self.format}.bin"

    @classmethod
    def parse(cls, file: str, size: int) -> "SyncName | None":
        """Parse a file name; None if it has another format. `size` in bytes: `shape_0` is a scalar if it is not 0."""
        found = _SYNC.fullmatch(file)
        if found is None or found[5] not in _TYPES:
            return None
        shape: Shape = tuple(map(int, found[4].split("_")))
        if shape == (0,) and size:
            shape = ()
        return cls(found[1].replace("--", "/"), found[2], int(found[3]), TensorType(_TYPES[found[5]], shape), found[6])


class AsyncName(NamedTuple):
    """A file of an asynchronous dump: one execution of one operator. `op_name` is sanitised."""

    op_type: str
    op_name: str
    task_id: int
    stream_id: int
    timestamp: int

    def __str__(self) -> str:
        return ".".join(map(str, self))

    @classmethod
    def parse(cls, file: str) -> "AsyncName | None":
        """Parse a file name; None if it has another format. Names with four parts have no stream."""
        found = _ASYNC.fullmatch(file)
        return found and cls(found[1], found[2], int(found[3]), int(found[4] or 0), int(found[5]))


class NpyName(NamedTuple):
    """A file of an asynchronous dump with `file_format=npy`: one tensor."""

    operator: AsyncName
    io: str
    slot: int
    format: str

    def __str__(self) -> str:
        return ".".join(map(str, self)) + ".npy"

    @classmethod
    def parse(cls, file: str) -> "NpyName | None":
        """Parse a file name; None if it has another format."""
        found = _NPY.fullmatch(file)
        operator = found and AsyncName.parse(found[1])
        return cls(operator, found[2], int(found[3]), found[4]) if found and operator else None


def sanitised(name: str) -> str:
    """A name as a part of the file names of an asynchronous dump: without dots, slashes and spaces.

    >>> sanitised("Default/network-LeNet5/Conv2D-op12")
    'Default_network-LeNet5_Conv2D-op12'
    """
    return re.sub(r"[./\\ ]", "_", name)
