"""`runner new DIR`: a small working project, from the files of the folder `template`."""

import argparse
import importlib.util
import keyword
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from runner.config.code import FILE
from runner.errors import BusyError, ConfigError
from runner.host import files
from runner.validation.rules import show

PLACEHOLDER = "my_project"  # the name of project and package in the files of the template
FOLDER = "template"
NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
TAKEN = ("runner", "models", "tests", "test", "conf", "conftest", "outputs", "multirun", "setup")
IGNORED = ("__pycache__", ".pytest_cache", "outputs", "multirun")
REPOSITORY = ".git"  # may be there before the project
MAX_BYTES = 1 << 20  # of one file


def main(args: argparse.Namespace) -> int:
    """Create the project and print what to do next. Raises ConfigError, BusyError and StorageError."""
    place = Path(args.folder)
    create(place, _name_of(place, args.name))
    sys.stdout.write(f"project: {place}\nnext: cd {place} && runner +experiment=first && pytest\n")
    return 0


def create(folder: Path, name: str) -> None:
    """Write a project into a directory that is new, empty, or has the beginning of this project.

    The project file is written last: without it a second call continues after a kill. Raises BusyError when the
    directory has other files, StorageError when it cannot be written.
    """
    contents = dict(_contents(name))
    files.remove_leftovers(folder / FILE)
    others = sorted(set(_unfinished(folder, contents)))
    if others:
        hint = "choose a new directory; runner new DIR/NAME creates one inside"
        contains = ", ".join(others[:3])
        raise BusyError("the directory is not empty", path=folder, contains=contains, hint=hint)
    for path, content in contents.items():
        if path != FILE:
            files.make_directory((folder / path).parent)
            files.write_atomically(folder / path, content)
    if not files.write_exclusively(folder / FILE, contents[FILE]):
        raise BusyError("another process has created a project there", path=folder)


def _contents(name: str) -> Iterator[tuple[str, str]]:
    """The files of a project of this name: relative paths and texts."""
    template = files.folder(FOLDER)
    for path in sorted(template.rglob("*")):
        relative = path.relative_to(template)
        if path.is_file() and not set(relative.parts) & set(IGNORED):
            text = files.read_bytes(path, MAX_BYTES).decode()
            yield str(relative).replace(PLACEHOLDER, name), text.replace(PLACEHOLDER, name)


def _unfinished(folder: Path, contents: dict[str, str]) -> Iterator[str]:
    """The paths in a directory that are not the beginning of this project."""
    for directory, folders, names in os.walk(folder):
        folders[:] = [one for one in folders if one != REPOSITORY]
        inside = Path(directory).relative_to(folder)
        for name in [*names, *(one for one in folders if (Path(directory) / one).is_symlink())]:
            path = str(inside / name)
            is_temporary = name.startswith(".") and name.endswith(files.TEMPORARY_SUFFIX)
            if not is_temporary and not _is_written(folder / path, contents.get(path)):
                yield path
        parents = {str(parent) for path in contents for parent in Path(path).parents}
        yield from (str(inside / one) for one in folders if str(inside / one) not in parents)
    if (folder / FILE).exists():
        yield FILE


def _is_written(path: Path, content: str | None) -> bool:
    if content is None or path.is_symlink() or not path.is_file():
        return False
    expected = content.encode()
    return path.stat().st_size == len(expected) and files.read_bytes(path, MAX_BYTES) == expected


def _name_of(folder: Path, given: str | None) -> str:
    """The name of the project, by default from that of its directory. Raises ConfigError for one not usable."""
    name = re.sub(r"[^a-z0-9_]+", "_", Path(os.path.abspath(folder)).name.lower()) if given is None else given
    problem = None
    if not NAME.fullmatch(name):
        problem = "not a name for a package"
    elif keyword.iskeyword(name) or name in TAKEN or name in sys.stdlib_module_names:
        problem = "the name has another meaning"
    elif (spec := importlib.util.find_spec(name)) is not None and spec.origin is not None:
        problem = "an installed package has the name"
    if problem:
        allowed = "a lower-case letter, then letters, digits and _, at most 40"
        raise ConfigError(problem, value=show(name), allowed=allowed, hint="runner new DIR --name NAME")
    return name
