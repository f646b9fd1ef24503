"""`runner convert`: files of asynchronous dumps, ours and the reference's, as .npy or raw files (`results`).

A folder is converted with what is below it, and the results lie in the same folders below DIR. What is damaged is
listed, and the rest is converted.
"""

import argparse
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from runner.errors import ConfigError, DataError, nearest
from runner.host import files
from runner.observe.dump import formats, mapping_csv
from runner.observe.dump.file_names import AsyncName
from runner.report.dump.convert_files import Choice, Results
from runner.types import Shape

USAGE = "runner convert -d PATH -out DIR [-f FORMAT] [-s SHAPE] [-t npy|bin|msnpy] [-i N] [-o N] [-v 1|2] [-c DIR]"
FAILED_LIST = "convert_failed_file_list.txt"
HELP = f"""\
{USAGE}

  -d PATH      a file of an asynchronous dump, or a folder with such files
  -out DIR     where the results go; the present folder when it is left out
  -f FORMAT    convert to {", ".join(formats.FORMATS)}; without it tensors stay as they lie
  -s SHAPE     the shape N,C,H,W without padding, for files that do not say it
  -t TYPE      npy (the default), bin (the elements only), or msnpy (npy with shorter names)
  -i N, -o N   only the N-th input or output, counted from 0
  -v 1|2       the version of the files; it is found out when left out
  -c DIR       has no effect: FRACTAL_Z needs no script here

exit codes: 0 ok, 2 wrong usage, 5 storage error, 7 damaged files (they are listed in DIR/{FAILED_LIST})
"""
MOST_BLOCKS = 10  # errors that are shown; the list has all of them
_SHAPE = re.compile(r"[1-9]\d{0,17}(,[1-9]\d{0,17})*")


class _Source(NamedTuple):
    """A dump file: where it is, the name that it would have, and its folder below the one that was given."""

    path: Path
    name: str
    below: Path = Path()


def main(words: Sequence[str]) -> int:
    """Convert, and return the exit code. Raises ConfigError for wrong words and when there is nothing to convert."""
    if {"-h", "--help"} & set(words):
        print(HELP, end="")  # noqa: T201  what was asked for
        return 0
    asked = _parser().parse_args(words)
    choice, folder = _choice(asked), Path(asked.out)
    if folder.exists() and not folder.is_dir():
        raise ConfigError("results go to a folder, and this is a file", option="-out", value=folder)
    sources = list(_sources(Path(asked.d)))
    if not sources:
        hint = "files of an asynchronous dump are named {op_type}.{op_name}.{task_id}.{stream_id}.{timestamp}"
        raise ConfigError("there is no dump file in the folder", option="-d", value=asked.d, hint=hint)
    if asked.c is not None:
        print(f"-c {asked.c} has no effect: FRACTAL_Z is built in, and no script is run")  # noqa: T201
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


# Words


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError("wrong usage", reason=message, hint=USAGE)


def _parser() -> _Parser:
    parser = _Parser(prog="runner convert", add_help=False, allow_abbrev=False)
    add = parser.add_argument
    add("-d", required=True)
    add("-out", default=".")
    add("-f")
    add("-s")
    add("-t", default="npy", choices=("npy", "bin", "msnpy"))
    add("-i", type=int)
    add("-o", type=int)
    add("-v", type=int, choices=(1, 2))
    add("-c")
    return parser


def _choice(asked: argparse.Namespace) -> Choice:
    if asked.f is not None and asked.f not in formats.FORMATS:
        near, allowed = nearest(asked.f, formats.FORMATS), ", ".join(formats.FORMATS)
        raise ConfigError("not a format", option="-f", value=asked.f, allowed=allowed, nearest=near)
    if asked.s is not None and asked.f is None:
        raise ConfigError("a shape is for a conversion", option="-s", value=asked.s, hint="-f NCHW converts")
    for option, slot in (("-i", asked.i), ("-o", asked.o)):
        if slot is not None and slot < 0:
            raise ConfigError("inputs and outputs are counted from 0", option=option, value=slot, allowed="0 or more")
    return Choice(asked.f, _shape(asked.s), asked.t, asked.i, asked.o, asked.v)


def _shape(value: str | None) -> Shape:
    if value is None:
        return ()
    if not _SHAPE.fullmatch(value):
        allowed = "numbers above 0 with commas between them, such as 64,3,3,3"
        raise ConfigError("not a shape", option="-s", value=value, allowed=allowed)
    return tuple(map(int, value.split(",")))
