"""Atomic creation and removal of directories, and the clean-up after a killed process."""

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from runner.host import files
from runner.host.ownership import RECORD

ASIDE_SUFFIX = ".old"
_LEFT = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{12}(?P<suffix>\.tmp|\.old)|\.[0-9a-f]{16}\.tmp", re.DOTALL)


def write_folder(path: Path, contents: Mapping[str, files.Content]) -> None:
    """Write a directory of files, in the given order, or leave an existing one untouched.

    A directory cannot be renamed onto another one, so an existing one is first renamed to a hidden name, which
    `place_of` and `sweep_temporaries` recognise. Raises StorageError with the path and the system's reason.
    """
    temporary, aside = files.hidden(path, files.TEMPORARY_SUFFIX), files.hidden(path, ASIDE_SUFFIX)
    replaces = path.is_dir()
    try:
        with files.storage_errors("cannot write a directory", path):
            files.make_new(temporary)
            for name, content in contents.items():
                files.write_new(temporary / name, content)
            files.sync_folder(temporary)
            if replaces:
                _exchange(path, temporary, aside)
            else:
                files.rename(temporary, path)
            files.sync_folder(path.parent)
            if replaces:
                files.remove(aside)
    except BaseException:
        _discard(temporary)
        raise


def _exchange(path: Path, temporary: Path, aside: Path) -> None:
    """Rename a finished directory to its name; on failure rename the previous one back."""
    try:
        files.rename(path, aside)
        files.rename(temporary, path)
    except BaseException:
        if aside.exists() and not path.exists():
            files.rename(aside, path)
        raise


def _discard(temporary: Path) -> None:
    """Remove an unfinished directory; a failure is left to `sweep_temporaries`."""
    with suppress(OSError):  # the original error is raised
        if temporary.is_dir():
            files.remove(temporary)


def remove_folder(path: Path) -> None:
    """Remove a directory recursively: a kill in between leaves it complete or under a hidden name.

    Raises StorageError.
    """
    hidden = files.hidden(path, files.TEMPORARY_SUFFIX)
    with files.storage_errors("cannot remove a directory", path):
        files.rename(path, hidden)
        files.sync_folder(path.parent)
        files.remove(hidden)


def place_of(name: str) -> str:
    """The name that a directory had before it was set aside; any other name unchanged.

    >>> place_of(".CKP-1_9.0123456789ab.old"), place_of("CKP-1_9")
    ('CKP-1_9', 'CKP-1_9')
    """
    left = _LEFT.fullmatch(name)
    return left["name"] if left and left["suffix"] == ASIDE_SUFFIX else name


def sweep_run(folder: Path) -> None:
    """Clean up a run directory and everything below it, as `sweep_temporaries` does.

    Folders with a record of their owner are left out: what writes them removes what a killed process left there, and
    other ranks may be writing. Raises StorageError.
    """
    sweep_temporaries(folder)
    for name in files.names(folder):
        inside = folder / name
        if inside.is_dir() and not inside.is_symlink() and not (inside / RECORD).exists():
            sweep_run(inside)


def sweep_temporaries(folder: Path) -> list[str]:
    """Clean up one folder after killed writers, and return a line about each of their entries.

    Files and directories with a temporary name are removed; a directory that was set aside is renamed back if its name
    is free. Nothing else is changed. No process may be writing to the folder. Raises StorageError.
    """
    done = []
    for name in files.names(folder):
        left = _LEFT.fullmatch(name)
        if not left:
            continue
        back = left["suffix"] == ASIDE_SUFFIX and left["name"] not in files.names(folder)
        with files.storage_errors("cannot clean up after a killed process", folder / name):
            if back:
                files.rename(folder / name, folder / left["name"])
            else:
                files.remove(folder / name)
        done.append(f"{left['name']}: put back" if back else f"{name}: removed")
    return done
