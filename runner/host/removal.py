"""Removing whole directories: each vanishes at once, and what a killed process has left of it is removed later."""

import re
from contextlib import suppress
from pathlib import Path

from runner.errors import BusyError, StorageError
from runner.host import files

SUFFIX = ".removed"
LOCK_FILE = ".lock"
_LEFT = re.compile(rf"\..+\.[0-9a-f]{{12}}{re.escape(SUFFIX)}")  # made by `files.hidden`


def is_removed(name: str) -> bool:
    """Whether a directory of this name is what is left of a removed one.

    >>> is_removed(".08-10-52.0123456789ab.removed"), is_removed("08-10-52")
    (True, False)
    """
    return _LEFT.fullmatch(name) is not None


def remove_directory(folder: Path) -> None:
    """Remove a directory, whose lock the caller holds, with everything in it; links are not followed.

    It gets a hidden name first, so no reader sees a part of it; a killed process leaves it whole, or under that name.
    Raises StorageError.
    """
    what, left = "cannot remove a directory", files.hidden(folder, SUFFIX)
    with files.storage_errors(what, folder):
        files.rename(folder, left)
        files.sync_folder(folder.parent)
    with files.storage_errors(what, left):
        _remove(left)


def remove_leftovers(parent: Path) -> None:
    """Remove what killed processes have left in a folder of removed directories, as far as that is possible."""
    for name in filter(is_removed, files.names(parent)):
        place = parent / name
        if place.is_dir() and not place.is_symlink() and not (place / LOCK_FILE).is_symlink():
            with suppress(BusyError, StorageError, OSError), files.locked(place / LOCK_FILE):  # or it is being removed
                _remove(place)


def _remove(folder: Path) -> None:
    """Remove a directory; its lock is held until nothing else is in it. Raises OSError."""
    for name in files.names(folder):
        if name != LOCK_FILE:
            files.remove(folder / name)
    files.remove(folder)
