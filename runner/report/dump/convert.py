"""`runner convert`: converts files of asynchronous dumps, ours and the reference's, to .npy or raw files.

A folder is converted recursively, and DIR gets the same subfolders. Damaged files are listed, and the others are
converted.
"""

import os
import re
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, NoReturn

from runner.errors import ConfigError, DataError, nearest
from runner.host import files
from runner.observe.dump import formats, mapping_csv
from runner.observe.dump.file_names import AsyncName
from runner.report.dump.convert_files import ConversionOptions, Converter
from runner.types import Shape

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
        yield _Source(path, mapping_csv.read(path.parent).get(path.name, path.name))
        return
    if not path.is_dir():
        names = files.names(path.parent) if path.parent.is_dir() else []
        raise ConfigError("no such file or folder", option="-d", value=path, nearest=nearest(path.name, names))
    for directory, folders, names in os.walk(path, onerror=_raise_storage_error):
        folders.sort()
        full_names = mapping_csv.read(Path(directory))
        for name in sorted(names):
            full_name = full_names.get(name, name)
            if AsyncName.parse(full_name):
                yield _Source(Path(directory, name), full_name, Path(directory).relative_to(path))


def _raise_storage_error(reason: OSError) -> NoReturn:
    raise files.storage_error("cannot list a directory", Path(reason.filename), reason) from reason


def _options(args: Namespace) -> ConversionOptions:
    if args.format is not None and args.format not in formats.FORMATS:
        near, allowed = nearest(args.format, formats.FORMATS), ", ".join(formats.FORMATS)
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
