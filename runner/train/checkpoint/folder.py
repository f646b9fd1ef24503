"""Directories that appear whole and disappear whole, and what a killed process leaves of them."""

import re
from collections.abc import Mapping
from pathlib import Path

from runner.host import files

ASIDE_SUFFIX = ".old"
_LEFT = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{12}(?P<suffix>\.tmp|\.old)", re.DOTALL)


def write_folder(path: Path, contents: Mapping[str, files.Content]) -> None:
    """Write a directory of files, in the order given, or leave what was there untouched.

    A directory cannot be renamed onto another one, so what was there is set aside under a hidden name for that moment;
    `place_of` and `sweep_temporaries` know this name. Raises StorageError with the path and the system's reason.
    """
    temporary, aside = files.hidden(path, files.TEMPORARY_SUFFIX), files.hidden(path, ASIDE_SUFFIX)
    replaces = path.is_dir()
    try:
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
    except BaseException as reason:
        _discard(temporary)
        if isinstance(reason, OSError):
            raise files.storage_error("cannot write a directory", path, reason) from reason
        raise


def _exchange(path: Path, temporary: Path, aside: Path) -> None:
    """Give a finished directory its name; when that fails, give it back to the one that had it."""
    try:
        files.rename(path, aside)
        files.rename(temporary, path)
    except BaseException:
        if aside.exists() and not path.exists():
            files.rename(aside, path)
        raise


def _discard(temporary: Path) -> None:
    """Remove an unfinished directory; what cannot be removed is left to `sweep_temporaries`."""
    try:
        if temporary.is_dir():
            files.remove(temporary)
    except OSError:
        pass  # the error that led here is the one to tell


def remove_folder(path: Path) -> None:
    """Remove a directory with all that is in it: a kill in between leaves it whole, or out of sight.

    Raises StorageError.
    """
    gone = files.hidden(path, files.TEMPORARY_SUFFIX)
    try:
        files.rename(path, gone)
        files.sync_folder(path.parent)
        files.remove(gone)
    except OSError as reason:
        raise files.storage_error("cannot remove a directory", path, reason) from reason


def place_of(name: str) -> str:
    """The name that a directory had before it was set aside; any other name as it is.

    >>> place_of(".CKP-1_9.0123456789ab.old"), place_of("CKP-1_9")
    ('CKP-1_9', 'CKP-1_9')
    """
    left = _LEFT.fullmatch(name)
    return left["name"] if left and left["suffix"] == ASIDE_SUFFIX else name


def sweep_temporaries(folder: Path) -> list[str]:
    """Clear one folder of what killed writers left in it, and return a line about each.

    Files and directories with a temporary name of ours are removed; a directory that was set aside returns when its
    place is empty. Nothing else is touched. For a folder in which nobody is writing. Raises StorageError.
    """
    done = []
    for name in files.names(folder):
        left = _LEFT.fullmatch(name)
        if not left:
            continue
        back = left["suffix"] == ASIDE_SUFFIX and left["name"] not in files.names(folder)
        try:
            if back:
                files.rename(folder / name, folder / left["name"])
            else:
                files.remove(folder / name)
        except OSError as reason:
            raise files.storage_error("cannot clear what a killed process left", folder / name, reason) from reason
        done.append(f"{left['name']}: put back" if back else f"{name}: removed")
    return done
