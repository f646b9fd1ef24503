"""From overrides to a finished run: compose, check, claim a folder, record, run, and keep `status.json`."""

import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from runner.config import code
from runner.config.commands import CommandLine
from runner.config.compose import Composition, compose
from runner.config.gate import link_errors
from runner.config.groups.services import is_requested as is_tracked
from runner.config.schema import RunRequest
from runner.errors import BusyError, ConfigError, RunnerError, StorageError, raise_all, unexpected
from runner.experiment import evaluate, output_directories, run as experiment, tracking
from runner.experiment.manifest import ConfiguredRun
from runner.experiment.ranks.processes import on_all_ranks, processes_of, report_on_first_rank
from runner.host import files, json
from runner.host.console import Console, now
from runner.host.lazy import gc_paused
from runner.host.process import exit_code, own_identity, stopped_by_signals

# `status.json`: whether a run is running, or how it ended.

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


# From overrides to a finished run: compose, check, claim a folder, record, run, and keep `status.json`.


def run(overrides: Sequence[str] = (), config_dir: str | Path | None = None) -> dict[str, Any]:
    """Run one experiment as the command line does, and return its summary.

    `overrides` are written as on the command line: `runner.run(["+experiment=lenet", "epochs=2"])`. Raises the
    RunnerError whose `exit_code` the command would have returned.
    """
    return run_call(CommandLine(tuple(overrides), config_dir=None if config_dir is None else Path(config_dir)))


def run_call(call: CommandLine) -> dict[str, Any]:
    """Run one experiment; creates nothing before the whole config is valid. Raises RunnerError."""
    with gc_paused(), report_on_first_rank(call.overrides):
        composition = on_all_ranks(lambda: compose(call))
    with stopped_by_signals(), processes_of(composition.config) as ranks:
        folder = Path(ranks.first(lambda: str(_claim_new(composition))))
        with composition.activate(folder) as request:
            request = output_directories.with_directories(request, ranks.first)
            return ranks.run(request, lambda own: _run_and_record(own, composition))


def _claim_new(composition: Composition) -> Path:
    output_directories.check(composition.config, composition.folder)
    return claim(composition.folder, composition.folder_given)


def claim(folder: Path, given: bool) -> Path:
    """Claim a run folder: exactly `folder` when the user has `given` it, otherwise the next free number.

    Raises BusyError when a given folder is not empty, StorageError when it cannot be created.
    """
    files.make_directory(folder.parent)
    if not given:
        return files.claim_first_free(folder)
    with suppress(BusyError):
        return files.claim_directory(folder)
    if not folder.is_dir():
        raise StorageError("the run directory is not a directory", path=folder)
    _claim_empty(folder)
    return folder


def _claim_empty(folder: Path) -> None:
    """Claim an empty folder by creating `.hydra` in it, since several processes may find it empty."""
    marker = folder / ".hydra"
    others = sorted(entry.name for entry in folder.iterdir())
    if not others:
        with suppress(BusyError):
            files.claim_directory(marker)
            return
    raise BusyError("the run directory is not empty", path=folder, contains=", ".join(others[:3]) or marker.name)


def _run_and_record(request: RunRequest, composition: Composition) -> dict[str, Any]:
    """Write the config records of the run folder, then run."""
    with run_status(request):
        code.write()
        for name, content in composition.records():
            files.make_directory((request.folder / name).parent)
            files.write_atomically(request.folder / name, content)
        composition.configure_logging()
        return execute(request)


def execute_recorded(request: RunRequest) -> dict[str, Any]:
    """Run in a folder that has its config records, with its lock and `status.json`."""
    with run_status(request):
        return execute(request)


def execute(request: RunRequest) -> dict[str, Any]:
    """Run the experiment; an unexpected exception becomes an InternalError."""
    try:
        run = (experiment if request.config.session.graph_run_mode else evaluate).run
        if is_tracked(request.config.tracking):
            run = tracking.with_tracking(run)
        summary: dict[str, Any] = run(request)
        return summary
    except (RunnerError, KeyboardInterrupt):
        raise
    except Exception as error:
        if request.config.runner.debug:
            traceback.print_exc()
        raise unexpected(error) from error


@contextmanager
def run_status(request: RunRequest) -> Iterator[None]:
    """Hold the lock of the run folder and maintain `status.json` while the context is open.

    A console that cannot be written does not end the run; the status has the reason as `console`. Raises BusyError when
    another process works in the folder, ConfigError for a run to resume whose files are links to other places.
    """
    if request.resume:
        raise_all(link_errors(request.folder))
    names = ConfiguredRun(request).names
    locked = files.locked(request.folder / LOCK_FILE)
    with Console() as console, locked, kept_status(request.folder, names, console, request.resume):
        yield
