"""The run directory: names of its files and folders, states of a run, claims, locks, and what in it is ours.

Everything that writes or reads a run directory has its names from here. In order: the names; the status of a run, which
is written while the run works and read by everything else; which directories are runs; claiming a directory for a run
and removing it; the directories outside of it that a run fills, each with a record of its owner.
"""

import errno
import os
import re
import shlex
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from runner.errors import BusyError, ConfigError, DataError, RunnerError, StorageError, some
from runner.host import files, json
from runner.host.console import Console, now
from runner.host.process import exit_code, may_be_alive, own_identity

# Files and folders of a run directory.

STATUS, CONFIG, MANIFEST = "status.json", "config.json", "manifest.json"
SUMMARY, METRICS = "summary.json", "metrics.jsonl"
LOCK, OWNER, HYDRA = ".lock", ".runner_owner.json", ".hydra"  # HYDRA: the folder of its records
INPUTS, SCRIPT, TRACKING, PRINTS = "inputs.json", "script.json", "tracking.json", "print.json"
CONSOLE, REPORT = "console.log", "report.html"
CHECKPOINTS, CODE, EVAL, TENSORBOARD = "checkpoints", "code", "eval", "tensorboard"
DUMP, EXCEPTION_DUMP, GRAPHS, KERNEL_META, PROFILING = "dump", "exception_dump", "graphs", "kernel_meta", "profiling"
MODEL = "model"  # with NETWORK, PREDICT and TRAIN_STEP
NETWORK, PREDICT, TRAIN_STEP = "model/network.onnx", "model/predict.onnx", "model/train_step.onnx"
# Files of a sweep directory. MULTIRUN is Hydra's.
SWEEP, MULTIRUN, BEST = "sweep.jsonl", "multirun.yaml", "best.json"
# What is written into the directory of a run, and of a sweep. Callbacks of the user write other files.
OF_RUNS = (
    *(HYDRA, LOCK, OWNER, STATUS, CONFIG, MANIFEST, INPUTS, SCRIPT, METRICS, SUMMARY, TRACKING, TENSORBOARD, CONSOLE),
    *(PRINTS, REPORT, CHECKPOINTS, MODEL, CODE, EVAL, DUMP, GRAPHS, PROFILING, EXCEPTION_DUMP, KERNEL_META),
)
# What is there before the first step.
STARTING = (HYDRA, LOCK, OWNER, STATUS, CONFIG, MANIFEST, INPUTS, SCRIPT, PRINTS, CONSOLE, CODE)
SUBMITIT, SUBMITTED = ".submitit", ".submitit/submission_file_*.sh"  # the latter are links, which nothing writes to
OF_SWEEPS = (SWEEP, MULTIRUN, BEST, REPORT, HYDRA, LOCK, OWNER, SUBMITIT, "optimization_results.yaml")
MAX_FILE_BYTES = 16 << 20  # of a file that is read as a whole
NAMED = 5  # files in an error

# The status of a run: whether it is running, or how it ended.

WRITTEN_STATES = ("ok", "running", "interrupted", "failed")  # in the file
STATES = (*WRITTEN_STATES, "killed", "broken")  # as `runner ls` shows them


def state_of(status: Mapping[str, Any]) -> str:
    """One of STATES for the values of a status file, {} for none.

    `killed`: it says running, but its process does not exist; `broken`: no readable status.
    """
    state = str(status.get("status", "broken"))
    if state == "running" and not may_be_alive(status):
        return "killed"
    return state if state in STATES else "broken"


def read_status(folder: Path) -> dict[str, Any]:
    """The status of the run in a folder; {} when there is none or it is damaged."""
    return json.read_optional(folder / STATUS)


def is_finished(folder: Path) -> bool:
    """Whether the run in a folder has ended without an error."""
    return read_status(folder).get("status") == "ok"


def read_record(folder: Path, name: str) -> dict[str, Any]:
    """A JSON file of a run directory. Raises ConfigError when it is missing or damaged."""
    try:
        return json.read_object(folder / name)
    except DataError as error:
        if not (folder / name).exists():
            raise not_a_run(folder, name) from None
        rows = {"damaged": name, "reason": error.rows.get("reason", error.what)}
        raise ConfigError("not a run directory", path=folder, **rows) from None


def not_a_run(folder: Path, missing: str = STATUS) -> ConfigError:
    """The error for a folder without a file that every run has."""
    return ConfigError("not a run directory", path=folder, missing=missing, hint="runner ls lists runs")


class Status:
    """The status of a run that is running."""

    def __init__(self, folder: Path, names: Mapping[str, Any]) -> None:
        self.path = folder / STATUS
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
        if isinstance(error, KeyboardInterrupt) and can_be_resumed(folder) and not (folder / SCRIPT).exists():
            error.add_note("runner resume continues the run")
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
    text = None if error is None or stopped else _error_text(error)
    values = {"status": status, "finished": now(), "exit_code": exit_code(error) if error else 0, "error": text}
    return values | ({"console": problems} if (problems := console.problems()) else {})


def _error_text(error: BaseException) -> str:
    """The block of an error; of any other exception, which a script has raised, its last line and its place."""
    if isinstance(error, RunnerError):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    place = f"\n  at: {frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name}" if frames else ""
    return f"{traceback.format_exception_only(error)[-1].strip()}{place}"


def record_failure(folder: Path, code: int, error: str, **values: Any) -> None:
    """Complete the status of a run whose own process cannot. Raises DataError without a status, StorageError."""
    ending = {"status": "failed", **values, "exit_code": code, "error": error}
    files.write_json(folder / STATUS, {**json.read_object(folder / STATUS), **ending})


# Which directories are runs, and what in them is of someone else.


def run_directories(folder: Path) -> Iterator[Path]:
    """The run directories in a folder, itself included: those with a `status.json`, or only with Hydra's files, if the
    run was killed at its start."""
    for directory, folders, names in os.walk(folder, onerror=None):
        folders[:] = [name for name in folders if not is_removed(name)]
        if STATUS in names or (HYDRA in folders and MULTIRUN not in names):
            folders.clear()
            yield Path(directory)


def is_run(folder: Path) -> bool:
    """Whether runner made this run directory: by its status with another record, its config, or as a claim."""
    status, config = read_status(folder), json.read_optional(folder / CONFIG)
    others = config or any((folder / name).exists() for name in (LOCK, HYDRA, SCRIPT))
    if others and status.get("status") in WRITTEN_STATES and "started" in status:  # one file alone may be of anything
        return True
    if "runner" in config:
        return True
    try:
        records = files.names(folder / HYDRA)
        text = files.read_bytes(folder / HYDRA / "config.yaml", MAX_FILE_BYTES) if "config.yaml" in records else b""
    except RunnerError:
        return False
    return is_claim(folder) or b"\nrunner:" in text  # other programs with Hydra have such a folder, too


def is_claim(folder: Path) -> bool:
    """Whether a directory has nothing but what a run or a sweep writes before its first record: a lock, and an empty
    folder or journal."""
    found = set(_lasting(folder))
    own = {HYDRA, LOCK, OWNER} | ({SWEEP} if LOCK in found and not _has_row(folder / SWEEP) else set())
    if not found or not found <= own:
        return False
    has_lock = LOCK not in found or os.path.getsize(folder / LOCK) == 0 or "pid" in json.read_optional(folder / LOCK)
    return has_lock and (HYDRA not in found or ((folder / HYDRA).is_dir() and not _lasting(folder / HYDRA)))


def is_kernel_file(path: Path) -> bool:
    """Whether a file of `kernel_meta/`, whose names depend on the code of the user, is one that a run has written."""
    record = path.with_suffix(".json") if path.suffix == ".onnx" else path
    return not {"program", "kernel"}.isdisjoint(json.read_optional(record))


def _lasting(folder: Path) -> list[str]:
    """The names in a folder without what a killed process was writing."""
    return [name for name in files.names(folder) if not files.is_temporary(name)]


def can_be_resumed(folder: Path) -> bool:
    """Whether the run in a folder was recorded before it ended: `runner resume` needs its config, script or journal."""
    return any((folder / name).exists() for name in (CONFIG, SCRIPT)) or _has_row(folder / SWEEP)


def _has_row(path: Path) -> bool:
    """Whether a journal has a whole row."""
    if not path.is_file():
        return False
    with files.storage_errors("cannot read a file", path), open(path, "rb") as file:
        return b"\n" in file.readline(MAX_FILE_BYTES)


def sweep_of(folder: Path) -> Path | None:
    """The sweep that a directory is in; None if there is none."""
    above = files.real_path(folder).parents
    return next((parent for parent in above if (parent / SWEEP).is_file()), None)


def with_status(folder: Path) -> Iterator[Path]:
    """The directories below one, itself included, that have a status."""
    return (Path(directory) for directory, _, names in os.walk(folder) if STATUS in names)


def refuse_links(folder: Path) -> None:
    """Raise ConfigError for the directory of a run or sweep that has symbolic links, at any depth.

    A run that goes on writes and removes files there. The directory may be that of someone else, and its links lead
    anywhere.
    """
    links = (
        os.path.relpath(path, folder)
        for directory, folders, names in os.walk(folder)
        for path in (os.path.join(directory, name) for name in (*folders, *names))
        if os.path.islink(path)
    )
    found = [name for name in links if not (fnmatchcase(name, SUBMITTED) or is_lock_of_optuna(folder / name))]
    if found:
        hint = "replace each link by what it leads to, or remove it"
        rows = {"path": folder, "links": some(sorted(found), NAMED), "hint": hint}
        raise ConfigError("a directory with symbolic links is not continued", **rows)


def is_lock_of_optuna(path: str | Path) -> bool:
    """Whether a path is a lock as Optuna makes it, a link to the file that is locked; one that was killed leaves it."""
    name = os.path.basename(path)
    return os.path.islink(path) and name != LOCK and name == f"{os.path.basename(os.readlink(path))}.lock"


# A directory is claimed by one run: the lock file has the identity of its process, which counts until it has ended.


def claim_run(folder: Path, given: bool) -> Path:
    """Claim a run folder: exactly `folder` when the user has `given` it, otherwise the next free number.

    Raises BusyError when a given folder is not empty, StorageError when it cannot be created. `claimed` ends the claim.
    """
    files.make_directory(folder.parent)
    if not given:
        folder = files.claim_first_free(folder)
    with suppress(BusyError):
        files.claim_directory(folder)
    if not folder.is_dir():
        raise StorageError("the run directory is not a directory", path=folder)
    _require_free(folder)
    with files.locked(folder / LOCK), files.storage_errors("cannot claim a directory", folder):
        _require_free(folder)  # several processes may have found it so
        _remove_start(folder)
        _write_lock(folder, files.json_text(own_identity()))
    return folder


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Inside, a claim counts; afterwards what the run has recorded does, and a directory without a record is free."""
    try:
        yield
    finally:
        with suppress(OSError):
            if json.read_optional(folder / LOCK) == own_identity():  # or the directory is that of another run now
                _write_lock(folder, "")


def _write_lock(folder: Path, text: str) -> None:
    files.before_operation("write", folder / LOCK)
    with open(files.open_unlinked(folder / LOCK, os.O_WRONLY | os.O_TRUNC), "w") as file:
        file.write(text)


def _require_free(folder: Path) -> None:
    """Raise BusyError for a folder with anything but the records of a failed start."""
    found = _lasting(folder)
    if found and not failed_to_start(folder):
        rows = {"path": folder, "contains": ", ".join(found[:3]), "hint": _way_out(folder)}
        raise BusyError("the run directory is not empty", **rows)


def _way_out(folder: Path) -> str:
    """What to do about a directory that is not empty, by what is in it."""
    name = shlex.quote(str(folder))
    if is_run(folder) and is_finished(folder):
        return f"another directory, or: runner rm {name}"
    if may_be_alive(json.read_optional(folder / LOCK)):
        return "another directory: a process is using this one"
    if is_run(folder) or _has_row(folder / SWEEP):
        return f"to continue: runner resume {name}; to start again: runner rm {name}"
    return "another directory: files of others are not touched"


def failed_to_start(folder: Path) -> bool:
    """Whether a run ended before it wrote anything but the records of its start: a repaired command may replace it.

    One that was killed before these were complete cannot be resumed; one that was killed later can.
    """
    state = state_of(read_status(folder))
    ended = state in ("failed", "interrupted") or (state == "killed" and not can_be_resumed(folder))
    if is_claim(folder):
        return not may_be_alive(json.read_optional(folder / LOCK))
    return ended and {*_lasting(folder)} <= {*STARTING}


def _remove_start(folder: Path) -> None:
    """Remove the records of a failed start, but not the lock, which the caller holds. Raises OSError."""
    for name in files.names(folder):
        if name != LOCK:
            files.remove(folder / name)


# Removing whole directories: each vanishes at once, and what a killed process has left of it is removed later.

REMOVED_SUFFIX = ".removed"
_LEFT = re.compile(rf"\..+\.[0-9a-f]{{12}}{re.escape(REMOVED_SUFFIX)}")  # made by `files.hidden`


def is_removed(name: str) -> bool:
    """Whether a directory of this name is what is left of a removed one.

    >>> is_removed(".08-10-52.0123456789ab.removed"), is_removed("08-10-52")
    (True, False)
    """
    return _LEFT.fullmatch(name) is not None


def is_half_removed(folder: Path) -> bool:
    """Whether a killed process has left a part of a directory of this name."""
    return any(is_removed(name) and name[1:].rsplit(".", 2)[0] == folder.name for name in files.names(folder.parent))


def remove_directory(folder: Path) -> None:
    """Remove a directory, whose lock the caller holds, with everything in it; links are not followed.

    It gets a hidden name first, so no reader sees a part of it; a killed process leaves it whole, or under that name.
    Raises StorageError; what cannot be removed has its name again.
    """
    what, left = "cannot remove a directory", files.hidden(folder, REMOVED_SUFFIX)
    with files.storage_errors(what, folder):
        _require_writable(folder)
        files.rename(folder, left)
        files.sync_folder(folder.parent)
        try:
            _remove(left)
        except OSError:
            files.rename(left, folder)
            raise


def _require_writable(folder: Path) -> None:
    """Raise OSError for a directory, also inside, from which this user cannot remove files."""
    for place, _, _ in os.walk(folder):
        if not os.access(place, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, f"{os.strerror(errno.EACCES)}: {place}")


def remove_leftovers(parent: Path) -> None:
    """Remove what killed processes have left in a folder of removed directories, as far as that is possible."""
    for name in filter(is_removed, files.names(parent)):
        place = parent / name
        if place.is_dir() and not place.is_symlink() and not (place / LOCK).is_symlink():
            with suppress(BusyError, StorageError, OSError), files.locked(place / LOCK):  # or it is being removed
                _remove(place)


def _remove(folder: Path) -> None:
    """Remove a directory; its lock is held until nothing else is in it. Raises OSError."""
    for name in files.names(folder):
        if name != LOCK:
            files.remove(folder / name)
    files.remove(folder)


# Directories that belong to one run: a record in each names its owner, and another run is refused.
#
#     {run directory}/.runner_owner.json    id, and the directories outside of it that the run fills
#     {directory}/.runner_owner.json        the id of the owner, and where it runs: run directory or script, process
#
# Both have the same random id, so a resumed run finds its directories again, also after its own directory was renamed.
# A record is created whole and only if there is none, which one of several processes can do.

BESIDE_STEPS = "graphs", "execution_order", ".graph_numbers.json"  # in a folder with the steps of a dump


class OutputDirectory(NamedTuple):
    """A directory that a run fills, outside of its run directory.

    `key` is the config key or setting that selects it, in a `file` of the user if there is one. `files` are patterns,
    relative to it, of what such runs write: a directory with any of them and without a record is of an earlier run.
    """

    path: Path
    key: str
    files: tuple[str, ...]
    file: str | None = None


class Owner(NamedTuple):
    """A run, a sweep, or the process of a script. `folder` is the directory of a run or sweep, None for a script."""

    id: str
    folder: Path | None = None
    directories: Mapping[str, str] = {}

    def has(self, record: Mapping[str, Any]) -> bool:
        """Whether this owner wrote a record; the copy of a run directory has its id, but is another run."""
        if record.get("id") != self.id:
            return False
        before = record.get("run")
        if self.folder is None or before is None or Path(before) == self.folder.absolute():
            return True
        return bool(json.read_optional(Path(before) / OWNER).get("id") != self.id)

    def record(self) -> dict[str, Any]:
        """The content of its records."""
        where = {"run": str(self.folder.absolute())} if self.folder else {"script": _script()}
        return {"id": self.id, **where, **own_identity(), "started": now()}


def owner_of(folder: Path) -> Owner:
    """The owner that a run directory or a sweep directory stands for; its record is created if there is none.

    Raises StorageError, and DataError when the record is damaged.
    """
    path = folder / OWNER
    if not path.exists():
        files.write_exclusively(path, files.json_text({"id": _new_id(), "directories": {}}))
    known = json.read_optional(path)
    if not isinstance(known.get("id"), str):
        raise DataError("the record of a run's directories is damaged", file=path)
    return Owner(known["id"], folder, directories_of(folder))


def directories_of(folder: Path) -> dict[str, str]:
    """The directories outside of a run directory that the run fills, by the path in its config.

    Each is that path, or a subdirectory of it with a number. A record with others is not ours, and they are ignored: it
    would let a foreign run directory choose where a resumed run writes.
    """
    found = json.read_optional(folder / OWNER).get("directories")
    pairs = found.items() if isinstance(found, dict) else ()
    return {path: chosen for path, chosen in pairs if isinstance(chosen, str) and _is_for(path, chosen)}


def _is_for(path: str, chosen: str) -> bool:
    """Whether a run may fill `chosen` for `path` in its config."""
    parent, _, name = chosen.rpartition("/")
    return chosen == path or (parent == path.rstrip("/") and name.isascii() and name.isdecimal())


def record_directories(owner: Owner, directories: Mapping[str, str]) -> None:
    """Record the directories of a run in its run directory. Raises StorageError."""
    if owner.folder is not None and dict(owner.directories) != dict(directories):
        files.write_json(owner.folder / OWNER, {"id": owner.id, "directories": dict(directories)})


def process_owner(shared_id: str | None = None) -> Owner:
    """The process of a script; ranks of one script pass the id that they share."""
    return Owner(shared_id or _process_id(os.getpid()))


@cache
def _process_id(pid: int) -> str:
    return _new_id()  # by process number: a forked process is another owner


def claim(directory: OutputDirectory, owner: Owner) -> bool:
    """Claim a directory, which is created; whether it belonged to this owner before.

    Raises BusyError if it belongs to another run, StorageError if it cannot be created or written.
    """
    if error := conflict(directory, owner):
        raise error
    path = files.make_directory(directory.path) / OWNER
    with files.locked_directory(directory.path), files.storage_errors("cannot remove a record", path):
        if _is_stale(directory):
            files.remove(path)
    if files.write_exclusively(path, files.json_text(owner.record())):
        return False
    if error := conflict(directory, owner):  # another run has claimed it in between
        raise error
    if json.read_optional(path).get("run") != owner.record().get("run"):  # the run directory was renamed
        files.write_json(path, owner.record())
    return True


def _is_stale(directory: OutputDirectory) -> bool:
    """Whether the run that claimed a directory has ended before it wrote anything there, and cannot be resumed."""
    record = json.read_optional(directory.path / OWNER)
    run, name = record.get("run"), record.get("id")
    if not isinstance(run, str) or not isinstance(name, str) or may_be_alive(record) or _present(directory):
        return False
    return not can_be_resumed(Path(run)) or bool(json.read_optional(Path(run) / OWNER).get("id") != name)


def release(directory: OutputDirectory, owner: Owner) -> None:
    """Remove the claim of a run that did not start, and what it has prepared there. Raises StorageError."""
    if not owner.has(json.read_optional(directory.path / OWNER)):
        return
    with files.storage_errors("cannot remove what a failed start has prepared", directory.path):
        for path in sorted(_paths_to_remove(directory)):
            files.remove(path)
        for parent, _, _ in os.walk(directory.path, topdown=False):
            if Path(parent) != directory.path and not os.listdir(parent):
                os.rmdir(parent)


def remove_of_ended_script(directory: OutputDirectory, owner: Owner) -> str | None:
    """Remove what another script wrote, if its process has ended, and return the script; None if there is no such.

    Of two scripts that start at once, the second one finds the record of the first. Raises StorageError.
    """
    if not os.path.lexists(directory.path / OWNER):
        return None
    with files.locked_directory(directory.path):
        record = json.read_optional(directory.path / OWNER)
        if "script" not in record or owner.has(record) or may_be_alive(record):
            return None
        with files.storage_errors("cannot remove the files of an earlier run", directory.path):
            for path in sorted(_paths_to_remove(directory)):
                files.remove(path)
    return _described(record)


def conflict(directory: OutputDirectory, owner: Owner | None = None) -> BusyError | None:
    """The error for a directory that belongs to another run than `owner`; None if it may be claimed."""
    path = directory.path
    for _ in range(2):  # files without a record, and then a record: another run has just claimed it
        if os.path.lexists(path / OWNER):
            record = json.read_optional(path / OWNER)
            is_free = (owner is not None and owner.has(record)) or _is_stale(directory)
            return None if is_free else _refusal(directory, _described(record))
        if not any(_present(directory)):
            return None
    return _refusal(directory, "not recorded: it has files of a run that wrote no record")


def _refusal(directory: OutputDirectory, owner: str) -> BusyError:
    remove = shlex.join(["rm", "-r", *map(str, sorted(_paths_to_remove(directory)))])
    hint = f"another value of {directory.key}, or remove the files of the earlier run: {remove}"
    what = "the directory belongs to another run"
    return BusyError(what, key=directory.key, file=directory.file, path=directory.path, owner=owner, hint=hint)


def _paths_to_remove(directory: OutputDirectory) -> set[Path]:
    """What runs have written, and nothing else: a folder as a whole only if it has no other files."""
    known = (*(pattern.rpartition("/")[2] for pattern in directory.files), *BESIDE_STEPS)
    found = {path for path in [directory.path / OWNER] if os.path.lexists(path)}
    for path in _present(directory):
        parent = path.parent
        if path.name == OWNER:  # of a job
            found |= _paths_to_remove(directory._replace(path=parent))
        elif parent != directory.path and all(_matches(name, known) for name in files.names(parent)):
            found.add(parent)
        else:
            found.add(path)
    return found


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _present(directory: OutputDirectory) -> list[Path]:
    found: list[Path] = []
    with files.storage_errors("cannot list a directory", directory.path):
        for pattern in (*directory.files, f"[0-9]*/{OWNER}"):  # the latter: jobs of a sweep
            found += directory.path.glob(pattern)
    place = files.real_path(directory.path)  # what is found through links is of others
    return [path for path in found if files.real_path(path.parent) == place / path.parent.relative_to(directory.path)]


def _described(record: Mapping[str, Any]) -> str:
    """The owner in a record, for an error."""
    run = record.get("run")
    if not record.get("id"):
        return f"unknown: {OWNER} is damaged"
    if run is None:
        pid = record.get("pid")
        state = f"running as process {pid}" if may_be_alive(record) else f"process {pid}, ended"
        return f"script {record.get('script')} (started {record.get('started')}, {state})"
    status = read_status(Path(run))
    if not status:
        kind = "sweep" if (Path(run) / SWEEP).exists() else "run"
        state = f"started {record.get('started')}" if Path(run).exists() else "removed"
        return f"{kind} {run} ({state})"
    if status.get("status") != "running":
        return f"run {run} ({status.get('status')}, finished {status.get('finished')})"
    ended = "killed; it can be resumed" if can_be_resumed(Path(run)) else "killed"
    state = f"running as process {status.get('pid')}" if may_be_alive(status) else ended
    return f"run {run} ({state})"


def _script() -> str:
    return os.path.abspath(sys.argv[0]) if os.path.isfile(sys.argv[0]) else "of python"


def _new_id() -> str:
    return os.urandom(8).hex()
