"""The user's code of a run: copies in its folder, and hashes, which a resumed run and other processes compare."""

import hashlib
import os
import platform
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from runner.config.code import CODE_VARIABLE, FLAG, content, loaded_files, loaded_sources
from runner.errors import ConfigError, ConfigErrors, changed_rows, some
from runner.host.files import make_directory, write_atomically
from runner.train.checkpoint.state import sweep_temporaries

FOLDER = "code"  # in the run directory
HASHES, GIVEN, PLACE = "code_sha256", "code_given", "code_folder"  # keys of what is recorded
NAMED = 5  # files in an error


def hashes(files: Mapping[str, Path]) -> dict[str, str]:
    """sha256 (hex) of each file, as it was loaded."""
    return {name: hashlib.sha256(content(path)).hexdigest() for name, path in files.items()}


def write_copies(folder: Path, files: Mapping[str, Path]) -> None:
    """Copy files into `code/` of a run directory, and remove what a killed process left there. Raises StorageError."""
    copies = {folder / FOLDER / name: path for name, path in files.items()}
    for place in {copy.parent: None for copy in copies}:
        sweep_temporaries(make_directory(place))
    for copy, path in copies.items():
        write_atomically(copy, content(path))


def given() -> dict[str, Any]:
    """What named the code of this process besides its project file: `code_given`, and `code_folder` for relative paths.

    Text for the user who resumes the run, and never loaded from the record.
    """
    sources = loaded_sources()
    typed = dict.fromkeys(source.text for source in sources if source.origin in (FLAG, CODE_VARIABLE))
    return {GIVEN: list(typed), PLACE: sources[-1].folder if sources else None}


@contextmanager
def naming_code_of(place: Path, record: Mapping[str, Any], command: str = "resume") -> Iterator[None]:
    """Errors of a run or sweep in `place` that a command reads state which code it had, and how to load that.

    `record` is its manifest, or the first row of its journal.
    """
    try:
        yield
    except ConfigError as error:
        first = error.errors[0] if isinstance(error, ConfigErrors) else error
        first.add(**_rows(place, record, command))
        raise


def _rows(place: Path, record: Mapping[str, Any], command: str) -> dict[str, str]:
    """The rows for code that the record has and this process has not; {} when there is none."""
    known, folder, typed = record.get(HASHES), record.get(PLACE), record.get(GIVEN)
    missing = sorted(set(known) - set(loaded_files())) if isinstance(known, dict) else []
    if not missing:
        return {}
    rows = {"code of the run": f"{some(missing, NAMED)}: not loaded here; copies are in {place / FOLDER}"}
    if not isinstance(folder, str) or not isinstance(typed, list) or not all(isinstance(one, str) for one in typed):
        return rows | {"load it with": f"runner {command} {place} {FLAG} FILE"}  # a script had registered it
    is_here = os.path.realpath(folder) == os.path.realpath(os.getcwd())
    words = ["runner", command, str(place if is_here else place.absolute())]
    line = shlex.join([*words, *(word for one in typed for word in (FLAG, one))])
    return rows | {"load it with": line if is_here else f"cd {shlex.quote(folder)} && {line}"}


def refuse_other(what: str, expected: Mapping[str, str]) -> None:
    """Raise ConfigError when this process has not loaded the files with these hashes, as the process that began did."""
    files = loaded_files()
    own = hashes(files)
    if different := [name for name, digest in expected.items() if own.get(name) != digest]:
        places = (str(files.get(name, f"{name} (not loaded)")) for name in different[:NAMED])
        repair = "the same files on every host; changed ones need a new sweep, or runner resume SWEEP --force"
        raise ConfigError(what, file="\n".join(places), host=platform.node(), repair=repair)


def refuse_change(what: str, was: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Raise ConfigError with a row for every file whose hash differs."""
    if rows := changed_rows(was, now):
        named = {f"code.{name}": row for name, row in sorted(rows.items())}
        raise ConfigError(what, **named, hint="--force resumes anyway")
