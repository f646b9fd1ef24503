"""`runner convert`: converts files of asynchronous dumps, ours and MindSpore's, to .npy or raw files.

A folder is converted recursively, and DIR gets the same subfolders. Damaged files are listed, and the others are
converted. `Converter` makes the files of one dump file, `main` is the command.
"""

import json
import os
import re
import sys
import uuid
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, NoReturn

import numpy as np

from runner.errors import ConfigError, DataError, nearest
from runner.host import files
from runner.host.files import make_directory, remove_parts
from runner.observe.dump import layouts
from runner.observe.dump.cann import DumpFile, LoadedTensor, TensorHeader, read
from runner.observe.dump.dumper import OVERFLOW_NAME, parse_overflow_record
from runner.observe.dump.files import CANN, INPUT, NPY, OUTPUT, OVERFLOW, Piece, add_long_names, long_names, sanitised
from runner.observe.dump.layouts import to_c_order
from runner.observe.dump.writers import write_pieces
from runner.types import Shape

# Conversion of dump files to .npy and raw files, named as MindSpore's msaccucmp.py names them.

MAX_NAME_BYTES = 255  # as in MindSpore, which shortens names of this length and above
_RECORD = f"{OVERFLOW}.{OVERFLOW_NAME}."


@dataclass(frozen=True)
class ConversionOptions:
    """Options of `runner convert`. `shape` is () if not given; `input` and `output` are slots, None if not given."""

    format: str | None = None
    shape: Shape = ()
    type: Literal["npy", "bin", "msnpy"] = "npy"
    input: int | None = None
    output: int | None = None
    version: Literal[1, 2] | None = None

    def select(self, file: DumpFile) -> Iterator[tuple[str, int, LoadedTensor]]:
        """The selected tensors with side and slot. Raises DataError if a slot does not exist."""
        everything = self.input is None and self.output is None
        for side, slot, tensors in (
            (INPUT, self.input, file.inputs),
            (OUTPUT, self.output, file.outputs),
        ):
            if slot is not None and slot >= len(tensors):
                raise DataError(f"the operator has no such {side}", slot=slot, allowed=f"below {len(tensors)}")
            for k, tensor in enumerate(tensors):
                if everything or k == slot:
                    yield side, k, tensor


class ConversionFailure(NamedTuple):
    """A tensor, as `{side}:{slot}`, that could not be converted; the whole file if `tensor` is empty."""

    tensor: str
    error: DataError


class Converter:
    """Converts dump files into `folder`; to be closed."""

    def __init__(self, folder: Path, options: ConversionOptions) -> None:
        self._folder, self._options = folder, options
        self._shortened: dict[Path, dict[str, str]] = {}
        self._folders: set[Path] = set()
        self.count = 0  # files written

    def close(self) -> None:
        """Write `mapping.csv` for names that were too long, and remove what a killed conversion has left."""
        for folder, names in self._shortened.items():
            add_long_names(folder, names)
        for folder in self._folders:
            remove_parts(folder)

    def convert(self, path: Path, name: str, subfolder: Path) -> list[ConversionFailure]:
        """Convert a file, whose full name is `name`, into a subfolder of the output; returns what failed.

        Raises StorageError.
        """
        try:
            file = read(path, self._options.version)
            selected = list(self._options.select(file))
        except DataError as error:
            return [ConversionFailure("", error.add(file=path))]
        folder, failures = make_directory(self._folder / subfolder), []
        for side, slot, tensor in selected:
            try:
                self._convert_tensor(folder, name, file.op_name, side, slot, tensor)
            except DataError as error:
                failures.append(ConversionFailure(f"{side}:{slot}", error.add(file=path, place=f"{side} {slot}")))
        if self._options.input is None and self._options.output is None:
            for kind, buffers in (("l1buffer", file.buffers), ("space", file.spaces)):
                for k, buffer in enumerate(buffers):
                    self._write(folder, f"{name}.{kind}.{k}", ".bin", [np.frombuffer(buffer, np.uint8)])
        return failures

    def _convert_tensor(
        self, folder: Path, name: str, op_name: str, side: str, slot: int, tensor: LoadedTensor
    ) -> None:
        if name.startswith(_RECORD) and side == OUTPUT:
            content = tensor.array.reshape(-1).view(np.uint8).data
            parsed = json.dumps(parse_overflow_record(content), indent=4).encode()
            self._write(folder, f"{name}.{side}.{slot}", ".json", [parsed])
            return
        options, array, format = self._options, tensor.array, tensor.format
        if options.format:
            format = options.format
            original = options.shape or tensor.original
            array = to_c_order(layouts.convert(array, tensor.format, format, original, tensor.groups))
        stem = f"{name}.{side}.{slot}"
        if options.type == "bin":
            stem += f".{'_'.join(map(str, array.shape))}.{array.dtype.name}.{format}"
            self._write(folder, stem, ".bin", [array])
            return
        if options.type == "msnpy":
            stem = f"{_short_name(name, op_name)}.{side}.{slot}.{format}"
        elif options.format:
            stem += "." + "x".join(map(str, array.shape))
        self._write(folder, stem, ".npy", [NPY.header(TensorHeader(tensor.dtype, format, array.shape, ())), array])

    def _write(self, folder: Path, stem: str, suffix: str, pieces: Sequence[Piece]) -> None:
        name = stem + suffix
        if len(os.fsencode(name)) >= MAX_NAME_BYTES:
            short = uuid.uuid3(uuid.NAMESPACE_DNS, name).hex + suffix
            self._shortened.setdefault(folder, {})[short] = name
            name = short
        write_pieces(folder / name, pieces)
        self._folders.add(folder)
        self.count += 1


def _short_name(name: str, op_name: str) -> str:
    """The name of a dump file with only the last part of the operator's full name."""
    parts = name.split(".")
    last = sanitised(op_name.rpartition("/")[2])
    return ".".join((parts[0], last, *parts[2:])) if last and CANN.parse(name, 0) else name


# The command.

FAILED_LIST = "convert_failed_file_list.txt"
MAX_ERRORS = 10  # that are printed; the list of failed files is complete
_SHAPE = re.compile(r"[1-9]\d{0,17}(,[1-9]\d{0,17})*")


class _Source(NamedTuple):
    """A dump file: its path, its name without shortening (`mapping.csv`), and its folder relative to the given one."""

    path: Path
    name: str
    subfolder: Path = Path()


def main(args: Namespace) -> int:
    """Convert and return the exit code. Raises ConfigError for invalid values and if there is no dump file."""
    options, folder = _options(args), Path(args.folder)
    if folder.exists() and not folder.is_dir():
        raise ConfigError("results go to a folder, and this is a file", option="-out", value=folder)
    sources = list(_sources(Path(args.path)))
    if not sources:
        hint = "files of an asynchronous dump are named {op_type}.{op_name}.{task_id}.{stream_id}.{timestamp}"
        raise ConfigError("there is no dump file in the folder", option="-d", value=args.path, hint=hint)
    if args.script is not None:
        print(f"-c {args.script} has no effect: FRACTAL_Z is built in, and no script is run")  # noqa: T201
    return _convert(sources, options, files.make_directory(folder))


def _convert(sources: Sequence[_Source], options: ConversionOptions, folder: Path) -> int:
    failed_list = folder / FAILED_LIST
    with files.storage_errors("cannot remove a file", failed_list):
        files.remove(failed_list)
    failed, printed = [], 0
    with closing(Converter(folder, options)) as converter:
        for source in sources:
            failures = converter.convert(*source)
            if failures:
                failed.append(",".join((str(source.path), *(tensor for tensor, _ in failures if tensor))))
            for _, error in failures[: MAX_ERRORS - printed]:
                _print_error(error)
                printed += 1
    print(f"{converter.count} file{'s' * (converter.count != 1)} in {folder}")  # noqa: T201  output of the command
    if not failed:
        return 0
    files.write_atomically(failed_list, os.fsencode("\n".join(failed) + "\n"))
    _print_error(f"{len(failed)} of {len(sources)} dump files could not be converted; they are listed in {failed_list}")
    return DataError.exit_code


def _print_error(error: object) -> None:
    print(error, file=sys.stderr)  # noqa: T201  the conversion continues


def _sources(path: Path) -> Iterator[_Source]:
    if path.is_file():
        yield _Source(path, long_names(path.parent).get(path.name, path.name))
        return
    if not path.is_dir():
        names = files.names(path.parent) if path.parent.is_dir() else []
        raise ConfigError("no such file or folder", option="-d", value=path, nearest=nearest(path.name, names))
    for directory, folders, names in os.walk(path, onerror=_raise_storage_error):
        folders.sort()
        full_names = long_names(Path(directory))
        for name in sorted(names):
            full_name = full_names.get(name, name)
            if CANN.parse(full_name, 0):
                yield _Source(Path(directory, name), full_name, Path(directory).relative_to(path))


def _raise_storage_error(reason: OSError) -> NoReturn:
    raise files.storage_error("cannot list a directory", Path(reason.filename), reason) from reason


def _options(args: Namespace) -> ConversionOptions:
    if args.format is not None and args.format not in layouts.LAYOUTS:
        near, allowed = nearest(args.format, layouts.LAYOUTS), ", ".join(layouts.LAYOUTS)
        raise ConfigError("not a format", option="-f", value=args.format, allowed=allowed, nearest=near)
    if args.shape is not None and args.format is None:
        raise ConfigError("a shape requires a format", option="-s", value=args.shape, hint="-f NCHW converts")
    for option, slot in (("-i", args.input), ("-o", args.output)):
        if slot is not None and slot < 0:
            raise ConfigError("inputs and outputs are counted from 0", option=option, value=slot, allowed="0 or more")
    return ConversionOptions(args.format, _shape(args.shape), args.type, args.input, args.output, args.version)


def _shape(value: str | None) -> Shape:
    if value is None:
        return ()
    if not _SHAPE.fullmatch(value):
        allowed = "numbers above 0 with commas between them, such as 64,3,3,3"
        raise ConfigError("not a shape", option="-s", value=value, allowed=allowed)
    return tuple(map(int, value.split(",")))
