"""Operators without outputs, which act in every step: Print, the summary operators, and `ObserveStep`.

PyNative mode emits their operands at once, graph mode after the step, a sink after its call. First what Print prints:
its text, files in the format of MindSpore, and where it goes. The context sets `print_to`; commands read files by
`print_entries`. `train/summary` writes what summary operators mark.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from runner import dtype as dt
from runner.core.current import Current
from runner.core.interpreter import current
from runner.core.operators import Effect, family, primitive
from runner.core.values import Tensor, Value
from runner.errors import ConfigError, DataError, ShapeError, StorageError
from runner.host import files, protobuf
from runner.host.console import LOG
from runner.host.files import Journal
from runner.host.protobuf import fields, located_fields, message, required_bytes, required_text
from runner.types import TensorType

# The text of printed strings and tensors, as in graph mode of MindSpore.

Part = str | np.ndarray
# Enough digits to restore a Float32, in the column widths of MindSpore.
FORMATS = {dt.float16: "%11.4e", dt.float32: "%15.8e", dt.float64: "%15.8e", dt.bool_: "%5s"}


def text(parts: Sequence[Part]) -> str:
    """The lines of one Print: strings unchanged, tensors with all their elements.

    >>> print(text(["x is", np.ones((2, 1), np.int32), np.array([True, False]), np.array(0.5, np.float32)]))
    x is
    Tensor(shape=[2, 1], dtype=Int32, value=
    [[1]
     [1]])
    Tensor(shape=[2], dtype=Bool, value=[ True False])
    Tensor(shape=[], dtype=Float32, value=0.5)
    """
    return "\n".join(part if isinstance(part, str) else _tensor(part) for part in parts)


def _tensor(array: np.ndarray) -> str:
    kind = dt.of(array.dtype)
    elements = _nested(_cells(array, kind), array.shape, 1) if array.ndim else str(array[()])
    line_end = "\n" if array.ndim > 1 else ""
    return f"Tensor(shape={list(array.shape)}, dtype={kind}, value={line_end}{elements})"


def _cells(array: np.ndarray, kind: dt.DType) -> Iterator[str]:
    """The elements as texts of equal width, in row-major order."""
    values = array.ravel().tolist()
    if kind in FORMATS:
        return map(FORMATS[kind].__mod__, values)
    texts = list(map(str, values))
    width = max(map(len, texts), default=0)
    return (cell.rjust(width) for cell in texts)


def _nested(cells: Iterator[str], shape: tuple[int, ...], depth: int) -> str:
    """The next elements, in nested brackets."""
    length, *inner = shape
    if not inner:
        return f"[{' '.join([next(cells) for _ in range(length)])}]"
    rows = [_nested(cells, tuple(inner), depth + 1) for _ in range(length)]
    return f"[{(chr(10) + ' ' * depth).join(rows)}]"


# Print files in the format of MindSpore: a sequence of protobuf messages, one per Print.
#
#     Print { repeated Value value = 1; }
#     Value { oneof: string desc = 1; TensorProto tensor = 2; }
#
# A tensor without axes has no dims. MindSpore also omits the dims of a tensor of shape [1]; here they are written.
# The package `protobuf` can only read a whole file, up to 2 GB, and does not report where it is damaged.

FILE_LIMIT = 64 << 30  # maximum size of a file to read, in bytes
TYPES = {kind.name.lower(): kind for kind in dt.ALL}  # r1.2 writes Uint8, MindSpore 2 and runner UInt8
VALUE, DESC, TENSOR = 1, 1, 2


class PrintFile:
    """Appends one message per Print, each in one write. The first Print creates the file, or `added`.

    `path` is the requested name, or one with a suffix when another process created that file first. With `is_own` it is
    the file of the run that a resumed one continues, from the place to which it is rewound.
    """

    def __init__(self, path: Path, is_own: bool = False) -> None:
        self.path = path
        self._journal: Journal | None = None
        self._is_own, self._size = is_own, 0

    def append(self, parts: Sequence[Part]) -> None:
        """Add the strings and tensors of one Print.

        Raises StorageError when they cannot be written completely; the file is then unchanged.
        """
        journal, content = self.opened(), message(*((VALUE, _value(part)) for part in parts))
        try:
            journal.extend(content)
        except StorageError:
            with suppress(StorageError):
                journal.cut(self._size)
            raise
        self._size += len(content)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was printed."""
        return not self._size

    def position(self) -> dict[str, Any]:
        """Name, bytes and sha256 of the file, which is on the disk then. Raises StorageError."""
        journal = self.opened()
        journal.sync()
        size, digest = journal.position()
        return {"file": self.path.name, "bytes": size, "sha256": digest}

    def rewind(self, position: Mapping[str, Any] | None) -> None:
        """Continue the run's file from a place that `position` returned; None, or that of another file: from its start.

        Raises DataError when the file does not begin with what it had there, StorageError.
        """
        if not self._is_own:
            return
        size = position["bytes"] if position and position["file"] == self.path.name else 0
        if position and size and (found := files.sha256(self.path, size)) != position["sha256"]:
            repair = "restore it, or print_file_path=ANOTHER prints the rest to another file"
            rows = {"file": self.path, "expected": f"sha256 {position['sha256']} of {size} bytes", "found": found}
            raise DataError("the print file is not that of the run", **rows, repair=repair)
        self.opened().cut(size)
        self._size = size

    def close(self) -> None:
        """Return when all is on the disk. A later Print continues the file."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def opened(self) -> Journal:
        """The file, which is created if this has none yet. Raises StorageError."""
        while not self._is_own:
            try:
                files.write_new(self.path, b"")
                self._is_own = True
            except FileExistsError:
                self.path = unused_path(self.path)
            except OSError as reason:
                raise files.storage_error("cannot create the print file", self.path, reason) from reason
        if self._journal is None:
            self._journal = Journal(self.path)
            self._size = self._journal.size
        return self._journal


def unused_path(path: Path) -> Path:
    """The path, with the time in seconds as a suffix if the file exists, as in MindSpore."""
    name, seconds = path, int(time.time())
    while name.exists():
        name = path.with_name(f"{path.name}.{seconds}")
        seconds += 1
    return name


def new_path(path: str) -> Path:
    """The path of a new print file, with a warning when the requested one exists. Raises ConfigError."""
    requested = checked_path(path)
    name = unused_path(requested)
    if name != requested:
        LOG.warning("%s exists: prints go to %s", requested, name.name)
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


# The destination of prints: the screen, or a file while `print_file_path` is set.

_files: dict[str, PrintFile] = {}  # all files of this process, so that it can continue them
_FILE: Current[str] = Current("print file", "")  # the path of the file, or "" for the screen


def write(parts: Sequence[Part]) -> None:
    """Print strings and tensors, each on its own line. Raises StorageError when a file cannot be written."""
    if _FILE.get():
        _files[_FILE.get()].append(parts)
    elif parts:
        print(text(parts), flush=True)  # noqa: T201  the operator's purpose


def added(file: PrintFile) -> str:
    """The path of a file, which is created, as `print_to` takes it. Raises StorageError."""
    file.opened()
    _files[str(file.path)] = file
    return str(file.path)


def print_to(path: str) -> None:
    """Print to a file from now on, or to the screen when the path is empty.

    The previous file is closed, and continued when it is selected again.
    """
    if path == _FILE.get():
        return
    if _FILE.get():
        _files[_FILE.get()].close()
    if path:
        _files.setdefault(path, PrintFile(Path(path)))
    _FILE.of_process = path


# Print.


@primitive
class Print(Effect):
    """`Print()("x is", x, 3)` prints strings, tensors, arrays and numbers, each on its own line; it has no output.

    A tuple or list is printed as Python does, such as `x.shape`; one with tensors, element by element.

    It prints whenever the network runs, also in every step of a sink, to the screen or to the file `print_file_path` of
    the context. `parts` are the strings of one application, with None in place of tensors. Raises ConfigError for
    values of other types.
    """

    parts: tuple[str | None, ...] = ()

    def __call__(self, *parts: Any) -> None:  # type: ignore[override]  # it has no value
        """Print now (PyNative mode), or in every run of the graph."""
        flat = [(position, one) for position, part in enumerate(parts) for one in _flat(part)]
        op = Print(tuple([part if isinstance(part, str) else None for _, part in flat]))
        current().bind(op, tuple([op.operand(k, part) for k, part in flat if not isinstance(part, str)]))

    def operand(self, position: int, part: Any) -> Value:
        """The tensor of an argument. Raises ConfigError when it cannot be converted to one."""
        if isinstance(part, Value):
            return part
        error = ConfigError("a value of this type cannot be printed", given=type(part).__name__)
        if isinstance(part, bool | int | float | np.ndarray | np.generic):
            try:
                return Tensor(part)
            except ConfigError as reason:
                error = reason
        error.add(position=position + 1, allowed="strings, tensors, arrays, numbers, and tuples of them")
        raise current().add_location(error, self, ())

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        """No outputs. Raises ShapeError unless there is one tensor for each None in `parts`."""
        if len(types) != self.parts.count(None):
            raise ShapeError(
                "Print needs one tensor for each None in parts", places=self.parts.count(None), given=len(types)
            )
        return ()

    def emit(self, *arrays: np.ndarray) -> None:
        rest = iter(arrays)
        write([next(rest) if part is None else part for part in self.parts])


def _flat(part: object) -> Iterator[object]:
    """A part, or the text of a sequence whose elements are known, or the parts of another sequence."""
    if not isinstance(part, tuple | list):
        yield part
    elif _is_known(part):
        yield str(part)
    else:
        for element in part:
            yield from _flat(element)


def _is_known(part: object) -> bool:
    """Whether all elements are Python's numbers and strings, whose text does not depend on numpy's version."""
    return all(map(_is_known, part)) if isinstance(part, tuple | list) else type(part) in (bool, int, float, str)


# Summary operators: they mark values of a network for `SummaryRecord`, which writes them into event files.
#
# An operator emits in every step, in both modes and inside sinks. `NewestValues` keeps the newest value of each name; a
# network whose values are not recorded only computes them.

_OPEN: Current[list["NewestValues"]] = Current("collections of summaries", [])


class NewestValues:
    """The newest value of each summary operator by plugin and name, while it is open."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, str], np.ndarray] = {}

    def __enter__(self) -> Self:
        _OPEN.get().append(self)
        return self

    def __exit__(self, *error: object) -> None:
        if self in _OPEN.get():
            _OPEN.get().remove(self)

    def keep(self, plugin: str, tag: str, value: np.ndarray) -> None:
        """Replace the value of a name by a copy of this one: its memory belongs to the step."""
        self._values[plugin, tag] = np.array(value)

    def take(self) -> dict[tuple[str, str], np.ndarray]:
        """The values since the last call, in the order in which their names were first emitted."""
        taken, self._values = self._values, {}
        return taken


@family
class SummaryOperator(Effect):
    """Base: `plugin` is the kind of data, `rank` what `allowed` describes; `tag` is the name of one application."""

    plugin: ClassVar[str]
    allowed: ClassVar[str]
    tag: str = ""

    def __call__(self, name: str, value: Any) -> None:  # type: ignore[override]  # it has no value
        """Mark `value` under `name` in this step (PyNative mode), or in every run of the graph.

        Raises ConfigError unless the name is a str with characters and the value a tensor, ShapeError for its shape.
        """
        op = type(self)(name if isinstance(name, str) else "")
        if not op.tag:
            rows = {"given": repr(name), "allowed": "a str with at least one character"}
            raise current().add_location(ConfigError("a summary needs a name", **rows), self, ())
        if not isinstance(value, Value):
            rows = {"name": name, "given": type(value).__name__, "allowed": "a tensor"}
            raise current().add_location(ConfigError("a summary needs a tensor", **rows), self, ())
        current().bind(op, (value,))

    def infer(self, value: TensorType) -> tuple[TensorType, ...]:
        """No outputs. Raises ShapeError for a shape that the plugin does not have."""
        if not self.accepts(value):
            rows = {"name": self.tag, "given": value, "allowed": self.allowed}
            raise ShapeError(f"{self.name} cannot take a tensor of this shape", **rows)
        return ()

    @staticmethod
    def accepts(kind: TensorType) -> bool:
        """Whether the plugin has values of this type."""
        return len(kind.shape) > 0

    def emit(self, *arrays: np.ndarray) -> None:
        for collection in _OPEN.get():
            collection.keep(self.plugin, self.tag, arrays[0])


@primitive
class ScalarSummary(SummaryOperator):
    """`ScalarSummary()("loss", loss)` marks a number, a tensor of shape () or (1,)."""

    plugin: ClassVar = "scalar"
    allowed: ClassVar = "shape () or (1,)"

    @staticmethod
    def accepts(kind: TensorType) -> bool:
        return kind.shape in ((), (1,))


@primitive
class ImageSummary(SummaryOperator):
    """`ImageSummary()("input", x)` marks images (N, C, H, W) with one or three channels."""

    plugin: ClassVar = "image"
    allowed: ClassVar = "four axes: (N, C, H, W)"

    @staticmethod
    def accepts(kind: TensorType) -> bool:
        return len(kind.shape) == 4


@primitive
class TensorSummary(SummaryOperator):
    """`TensorSummary()("weight", w)` marks a tensor with at least one axis."""

    plugin: ClassVar = "tensor"
    allowed: ClassVar = "at least one axis"


@primitive
class HistogramSummary(SummaryOperator):
    """`HistogramSummary()("weight", w)` marks the distribution of a tensor with at least one axis."""

    plugin: ClassVar = "histogram"
    allowed: ClassVar = "at least one axis"


# `ObserveStep`: passes values of a training step to a function on the host.


@primitive
class ObserveStep(Effect):
    """`ObserveStep(receive)(x, y, ...)` calls `receive` with the operands as arrays, once per step and in their order.

    PyNative mode calls it at once, graph mode after the step, a sink after the call to the device that executed the
    step. `receive` must not change the arrays. Raises ConfigError when it cannot be called.
    """

    receive: Callable[..., object] = field(compare=False)

    def __post_init__(self) -> None:
        if not callable(self.receive):
            raise ConfigError(
                "ObserveStep needs a function", given=type(self.receive).__name__, takes="receive(*arrays)"
            )

    def infer(self, *types: TensorType) -> tuple[TensorType, ...]:
        return ()

    def emit(self, *arrays: np.ndarray) -> None:
        self.receive(*arrays)
