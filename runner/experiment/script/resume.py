"""`runner resume` of a run that a script records: it starts the script again, as it was started."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from runner.communication.world import launched
from runner.errors import ConfigError, DataError
from runner.experiment.script import command
from runner.experiment.script.command import SCRIPT_FILE, ScriptCommand
from runner.experiment.status import STATUS_FILE
from runner.host import json
from runner.host.files import storage_errors

RESUME_VARIABLE, FORCE_VARIABLE = "RUNNER_RESUME", "RUNNER_RESUME_FORCE"  # for `runner.record` in the script


def is_script_run(folder: Path) -> bool:
    """Whether the run in a directory is one that a script records."""
    return (folder / SCRIPT_FILE).exists()


def resume(folder: Path, lines: Sequence[str], force: bool) -> NoReturn:
    """Replace this process by the script of a run, with its recorded arguments and working directory.

    Nothing is started unless this user's account has recorded it, and the script is still the recorded one (or
    `force`). Raises ConfigError, also for overrides and for a finished run; StorageError.
    """
    own = startable(folder, lines, force)
    sys.stdout.flush()
    sys.stderr.flush()
    environment = {**os.environ, RESUME_VARIABLE: str(folder.absolute()), FORCE_VARIABLE: str(int(force))}
    with storage_errors("cannot start the script", Path(own.directory)):
        os.chdir(own.directory)
        os.execve(sys.executable, [sys.executable, *own.words], environment)


def startable(folder: Path, lines: Sequence[str], force: bool) -> ScriptCommand:
    """The recorded command of a run, if it may be started. Raises ConfigError with the command otherwise."""
    try:
        own, signed = command.read(folder)
    except DataError as error:
        rows = {"damaged": SCRIPT_FILE, "reason": error.rows.get("reason", error.what)}
        raise ConfigError("not a run directory", path=folder, **rows) from None
    typed = {"path": folder, "command": own.shown}
    if lines:
        hint = "the arguments of a script are its own: type the command with others"
        raise ConfigError("the run of a script has no overrides", value=" ".join(lines), **typed, hint=hint)
    if json.read_optional(folder / STATUS_FILE).get("status") == "ok":
        raise ConfigError("the run is finished", path=folder, hint="more epochs: runner.record(..., resume=True)")
    if (size := launched()[1]) > 1:
        raise ConfigError("the run has a single process", path=folder, launched=f"{size} processes")
    if not signed:
        hint = "if you trust the script, type the command: it continues the run"
        raise ConfigError("another user, or another machine, has recorded the command of this run", **typed, hint=hint)
    if own.script is None or not Path(own.script).is_file():
        raise ConfigError("the script of the run does not exist", script=own.script or "none: not a file", **typed)
    if not force and (now := command.sha256_of(own.script)) != own.sha256:
        rows = {"script": own.script, "sha256": f"was {own.sha256}, is {now}"}
        raise ConfigError("the script of the run has changed", **rows, hint="--force resumes anyway")
    return own
