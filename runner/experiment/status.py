"""`status.json`: whether a run is running, or how it ended."""

import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from runner.errors import ConfigError, RunnerError, StorageError
from runner.host import files, json
from runner.host.console import Console, now
from runner.host.process import exit_code, own_identity

STATUS_FILE, LOCK_FILE = "status.json", ".lock"


class Status:
    """The status of a run that is running."""

    def __init__(self, folder: Path, names: Mapping[str, Any]) -> None:
        self.path = folder / STATUS_FILE
        self.values: dict[str, Any] = {"status": "running", **own_identity(), "started": now(), **names}

    def write(self, **values: Any) -> None:
        """Write the status with these values added. Raises StorageError."""
        self.values |= values
        files.write_json(self.path, self.values)


@contextmanager
def kept_status(folder: Path, names: Mapping[str, Any], console: Console, resume: bool) -> Iterator[Status]:
    """Maintain `status.json` while the context is open; `names` are those of the run (`Subject.names`).

    A console that cannot be written does not end the run; the status has the reason as `console`. A resume that is
    refused (ConfigError) restores the status before it.
    """
    status = Status(folder, names)
    before = files.read_bytes(status.path, json.MAX_DATA_BYTES) if resume and status.path.exists() else None
    status.write()
    try:
        yield status
    except BaseException as error:
        with suppress(StorageError):  # a full disk: the original error is more informative
            if before is not None and isinstance(error, ConfigError):
                files.write_atomically(status.path, before)  # a refused resume changes nothing
            else:
                status.write(**_ending(error, console))
        raise
    status.write(**_ending(None, console))


def _ending(error: BaseException | None, console: Console) -> dict[str, Any]:
    """The values of `status.json` that the end of a run adds."""
    stopped = isinstance(error, KeyboardInterrupt)
    status = "ok" if error is None else "interrupted" if stopped else "failed"
    text = None if error is None or stopped else _text(error)
    values = {"status": status, "finished": now(), "exit_code": exit_code(error) if error else 0, "error": text}
    return values | ({"console": problems} if (problems := console.problems()) else {})


def _text(error: BaseException) -> str:
    """The block of an error; of any other exception, which a script has raised, its last line and its place."""
    if isinstance(error, RunnerError):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    place = f"\n  at: {frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name}" if frames else ""
    return f"{traceback.format_exception_only(error)[-1].strip()}{place}"
