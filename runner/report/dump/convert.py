"""`runner convert`: files of asynchronous dumps, ours and the reference's, as .npy or raw files (`results`).

A folder is converted with what is below it, and the results lie in the same folders below DIR. What is damaged is
listed, and the rest is converted.
"""

import os
import re
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from runner.errors import ConfigError, DataError, nearest
from runner.host import files
from runner.observe.dump import formats, mapping_csv
from runner.observe.dump.file_names import AsyncName
from runner.report.dump.convert_files import Choice, Results
from runner.types import Shape

FAILED_LIST = "convert_failed_file_list.txt"
MOST_BLOCKS = 10  # errors that are shown; the list has all of them
_SHAPE = re.compile(r"[1-9]\d{0,17}(,[1-9]\d{0,17})*")


class _Source(NamedTuple):
    """A dump file: where it is, the name that it would have, and its folder below the one that was given."""

    path: Path
    name: str
    below: Path = Path()


def main(given: Namespace) -> int:
    """Convert, and return the exit code. Raises ConfigError for wrong values and when there is nothing to convert."""
    choice, folder = _choice(given), Path(given.folder)
    if folder.exists() and not folder.is_dir():
        raise ConfigError("results go to a folder, and this is a file", option="-out", value=folder)
    sources = list(_sources(Path(given.path)))
    if not sources:
        hint = "files of an asynchronous dump are named {op_type}.{op_name}.{task_id}.{stream_id}.{timestamp}"
        raise ConfigError("there is no dump file in the folder", option="-d", value=given.path, hint=hint)
    if given.script is not None:
        print(f"-c {given.script} has no effect: FRACTAL_Z is built in, and no script is run")  # noqa: T201
    return _convert(sources, choice, files.make_directory(folder))


def _convert(sources: Sequence[_Source], choice: Choice, folder: Path) -> int:
    listed = folder / FAILED_LIST
    _forget(listed)
    failed, shown = [], 0
    with Results(folder, choice) as results:
        for source in sources:
            lost = results.add(*source)
            if lost:
                failed.append(",".join((str(source.path), *(place for place, _ in lost if place))))
            for _, error in lost[: MOST_BLOCKS - shown]:
                _tell(error)
                shown += 1
    print(f"{results.count} file{'s' * (results.count != 1)} in {folder}")  # noqa: T201  what the command tells
    if not failed:
        return 0
    files.write_atomically(listed, os.fsencode("\n".join(failed) + "\n"))
    _tell(f"{len(failed)} of {len(sources)} dump files could not be converted; they are listed in {listed}")
    return DataError.exit_code


def _forget(path: Path) -> None:
    try:
        files.remove(path)
    except OSError as reason:
        raise files.storage_error("cannot remove a file", path, reason) from reason


def _tell(what: object) -> None:
    print(what, file=sys.stderr)  # noqa: T201  the run goes on


def _sources(path: Path) -> Iterator[_Source]:
    if path.is_file():
        yield _Source(path, mapping_csv.read(path.parent).get(path.name, path.name))
        return
    if not path.is_dir():
        names = files.names(path.parent) if path.parent.is_dir() else []
        raise ConfigError("no such file or folder", option="-d", value=path, nearest=nearest(path.name, names))
    for place, folders, names in os.walk(path, onerror=_unlisted):
        folders.sort()
        mapped = mapping_csv.read(Path(place))
        for name in sorted(names):
            if AsyncName.parse(mapped.get(name, name)):
                yield _Source(Path(place, name), mapped.get(name, name), Path(place).relative_to(path))


def _unlisted(reason: OSError) -> NoReturn:
    raise files.storage_error("cannot list a directory", Path(reason.filename), reason) from reason


def _choice(given: Namespace) -> Choice:
    if given.format is not None and given.format not in formats.FORMATS:
        near, allowed = nearest(given.format, formats.FORMATS), ", ".join(formats.FORMATS)
        raise ConfigError("not a format", option="-f", value=given.format, allowed=allowed, nearest=near)
    if given.shape is not None and given.format is None:
        raise ConfigError("a shape is for a conversion", option="-s", value=given.shape, hint="-f NCHW converts")
    for option, slot in (("-i", given.input), ("-o", given.output)):
        if slot is not None and slot < 0:
            raise ConfigError("inputs and outputs are counted from 0", option=option, value=slot, allowed="0 or more")
    return Choice(given.format, _shape(given.shape), given.type, given.input, given.output, given.version)


def _shape(value: str | None) -> Shape:
    if value is None:
        return ()
    if not _SHAPE.fullmatch(value):
        allowed = "numbers above 0 with commas between them, such as 64,3,3,3"
        raise ConfigError("not a shape", option="-s", value=value, allowed=allowed)
    return tuple(map(int, value.split(",")))
