"""The directory of a script's run: it is new, or this start continues the run that is in it, or it is refused."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from runner.errors import BusyError, ConfigError, changed_rows
from runner.experiment.run import CONFIG_FILE
from runner.experiment.script import command
from runner.experiment.script.command import SCRIPT_FILE, ScriptCommand
from runner.experiment.status import LOCK_FILE, STATUS_FILE
from runner.host import files, json
from runner.host.json import flat

OTHER = "another directory"


def opened(folder: Path) -> AbstractContextManager[None]:
    """Create the directory, if necessary, and lock it while the context is open.

    Raises BusyError for a directory with anything but the run of a script, and while another process records into it;
    StorageError.
    """
    _check_content(folder)
    files.make_directory(folder)
    return files.locked(folder / LOCK_FILE)


def is_continued(folder: Path, own: ScriptCommand, config: Mapping[str, Any], resume: bool | None, force: bool) -> bool:
    """Whether the locked directory has a run that this start continues.

    Raises BusyError for a finished run unless `resume`, and for any run with `resume=False`; ConfigError when script or
    config have changed since the run began, unless `force`, and for a directory with symbolic links.
    """
    _check_content(folder)
    if not (folder / SCRIPT_FILE).exists():
        return False
    if resume is False:
        hint = f"{OTHER}, or without resume=False to continue the run"
        raise BusyError("the directory has the run of a script", path=folder, hint=hint)
    if resume is None and json.read_optional(folder / STATUS_FILE).get("status") == "ok":
        hint = f"{OTHER}, or resume=True to continue the run with more epochs"
        raise BusyError("the run in this directory is finished", path=folder, hint=hint)
    links = [entry for entry in sorted(folder.iterdir()) if entry.is_symlink()]
    if links:  # they may lead anywhere, and the directory may be that of someone else
        raise ConfigError("a run directory with symbolic links is not continued", path=links[0])
    if not force:
        _check_unchanged(folder, own, config)
    return True


def _check_content(folder: Path) -> None:
    """Refuse a directory of something else. Raises BusyError."""
    others = [name for name in files.names(folder) if name != LOCK_FILE and not name.endswith(files.TEMPORARY_SUFFIX)]
    if not others or SCRIPT_FILE in others:
        return
    if STATUS_FILE in others:
        raise BusyError("the directory has a run that no script records", path=folder, hint=OTHER)
    raise BusyError("the run directory is not empty", path=folder, contains=", ".join(others[:3]), hint=OTHER)


def _check_unchanged(folder: Path, own: ScriptCommand, config: Mapping[str, Any]) -> None:
    if not (folder / CONFIG_FILE).exists():  # the run was killed before anything else was written
        return
    before, _ = command.read(folder)
    was = {"script.sha256": before.sha256} | flat({"config": json.read_optional(folder / CONFIG_FILE)})
    now = {"script.sha256": own.sha256} | flat({"config": dict(config)})
    if rows := changed_rows(was, now):
        hint = f"{OTHER}, or force=True to continue anyway"
        raise ConfigError("the directory has a run of another script or config", path=folder, **rows, hint=hint)
