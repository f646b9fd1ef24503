"""Directories that belong to one run: a record in each names its owner, and another run is refused.

    {run directory}/.runner_owner.json    id, and the directories outside of it that the run fills
    {directory}/.runner_owner.json        the id of the owner, and where it runs: run directory or script, host, process

Both have the same random id, so a resumed run finds its directories again, also after its own directory was renamed. A
record is created whole and only if there is none, which one of several processes can do.
"""

import json
import os
import shlex
import sys
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from runner.errors import BusyError, DataError
from runner.host import files
from runner.host.console import now
from runner.host.json import read_optional
from runner.host.process import may_be_alive, own_identity

RECORD = ".runner_owner.json"
STATUS_FILE, SWEEP_FILE = "status.json", "sweep.jsonl"  # of a run directory, of a sweep directory
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
        return bool(read_optional(Path(before) / RECORD).get("id") != self.id)

    def record(self) -> dict[str, Any]:
        """The content of its records."""
        where = {"run": str(self.folder.absolute())} if self.folder else {"script": _script()}
        return {"id": self.id, **where, **own_identity(), "started": now()}


def owner_of(folder: Path) -> Owner:
    """The owner that a run directory or a sweep directory stands for; its record is created if there is none.

    Raises StorageError, and DataError when the record is damaged.
    """
    path = folder / RECORD
    if not path.exists():
        files.write_exclusively(path, _text({"id": _new_id(), "directories": {}}))
    known = read_optional(path)
    if not isinstance(known.get("id"), str):
        raise DataError("the record of a run's directories is damaged", file=path)
    return Owner(known["id"], folder, directories_of(folder))


def directories_of(folder: Path) -> dict[str, str]:
    """The directories outside of a run directory that the run fills, by the path in its config.

    Each is that path, or a subdirectory of it with a number. A record with others is not ours, and they are ignored: it
    would let a foreign run directory choose where a resumed run writes.
    """
    found = read_optional(folder / RECORD).get("directories")
    pairs = found.items() if isinstance(found, dict) else ()
    return {path: chosen for path, chosen in pairs if isinstance(chosen, str) and _is_for(path, chosen)}


def _is_for(path: str, chosen: str) -> bool:
    """Whether a run may fill `chosen` for `path` in its config."""
    parent, _, name = chosen.rpartition("/")
    return chosen == path or (parent == path.rstrip("/") and name.isascii() and name.isdecimal())


def record_directories(owner: Owner, directories: Mapping[str, str]) -> None:
    """Record the directories of a run in its run directory. Raises StorageError."""
    if owner.folder is not None and dict(owner.directories) != dict(directories):
        files.write_json(owner.folder / RECORD, {"id": owner.id, "directories": dict(directories)})


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
    files.make_directory(directory.path)
    if files.write_exclusively(directory.path / RECORD, _text(owner.record())):
        return False
    if error := conflict(directory, owner):  # another run has claimed it in between
        raise error
    if read_optional(directory.path / RECORD).get("run") != owner.record().get("run"):  # the run directory was renamed
        files.write_json(directory.path / RECORD, owner.record())
    return True


def remove_of_ended_script(directory: OutputDirectory, owner: Owner) -> None:
    """Remove what another script wrote, if its process has ended. For files that a script can always write again.

    Raises StorageError.
    """
    record = read_optional(directory.path / RECORD)
    if "script" not in record or owner.has(record) or may_be_alive(record):
        return
    with files.storage_errors("cannot remove the files of an earlier run", directory.path):
        for path in sorted(_paths_to_remove(directory)):
            files.remove(path)


def conflict(directory: OutputDirectory, owner: Owner | None = None) -> BusyError | None:
    """The error for a directory that belongs to another run than `owner`; None if it may be claimed."""
    path = directory.path
    for _ in range(2):  # files without a record, and then a record: another run has just claimed it
        if os.path.lexists(path / RECORD):
            record = read_optional(path / RECORD)
            return None if owner is not None and owner.has(record) else _refusal(directory, _described(record))
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
    found = {path for path in [directory.path / RECORD] if os.path.lexists(path)}
    for path in _present(directory):
        parent = path.parent
        if path.name == RECORD:  # of a job
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
        for pattern in (*directory.files, f"[0-9]*/{RECORD}"):  # the latter: jobs of a sweep
            found += directory.path.glob(pattern)
    return found


def _described(record: Mapping[str, Any]) -> str:
    """The owner in a record, for an error."""
    run = record.get("run")
    if not record.get("id"):
        return f"unknown: {RECORD} is damaged"
    if run is None:
        pid = record.get("pid")
        state = f"running as process {pid}" if may_be_alive(record) else f"process {pid}, ended"
        return f"script {record.get('script')} (started {record.get('started')}, {state})"
    status = read_optional(Path(run) / STATUS_FILE)
    if not status:
        kind = "sweep" if (Path(run) / SWEEP_FILE).exists() else "run"
        state = f"started {record.get('started')}" if Path(run).exists() else "removed"
        return f"{kind} {run} ({state})"
    if status.get("status") != "running":
        return f"run {run} ({status.get('status')}, finished {status.get('finished')})"
    state = f"running as process {status.get('pid')}" if may_be_alive(status) else "killed; it can be resumed"
    return f"run {run} ({state})"


def _script() -> str:
    return os.path.abspath(sys.argv[0]) if os.path.isfile(sys.argv[0]) else "of python"


def _text(record: Mapping[str, Any]) -> str:
    return json.dumps(record, indent=2) + "\n"


def _new_id() -> str:
    return os.urandom(8).hex()
