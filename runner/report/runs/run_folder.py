"""Whether a directory is a run or a sweep that runner made, and what in it is of someone else."""

import os
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from runner.errors import ConfigError, RunnerError, nearest
from runner.experiment.launch import LOCK_FILE
from runner.experiment.sweep import journal
from runner.host import files, json
from runner.host.files import real_path
from runner.host.ownership import RECORD
from runner.report.record import MAX_FILE_BYTES, RunRecord, run_directories

HYDRA = ".hydra"
# What is written into the directory of a run, and of a sweep. Callbacks of the user write other files.
OF_RUNS = (
    *(HYDRA, LOCK_FILE, RECORD, "status.json", "config.json", "manifest.json", "inputs.json", "script.json"),
    *("metrics.jsonl", "summary.json", "tracking.json", "tensorboard", "console.log", "report.html", ".*.tmp"),
    *("checkpoints", "model", "code", "eval", "dump", "graphs", "profiling", "exception_dump", "kernel_meta"),
)
OF_SWEEPS = (
    *(journal.NAME, "multirun.yaml", "best.json", "report.html", HYDRA, LOCK_FILE, RECORD, ".submitit", ".*.tmp"),
    "optimization_results.yaml",
)


class FolderSize(NamedTuple):
    """The number of files below a directory, and their bytes; those of links themselves."""

    files: int
    bytes: int


class RunFolder:
    """The directory of a run, or of a sweep with its `runs`; `place` is its path without links.

    `inner` are runs in the directories of these, which a user has put there. Raises ConfigError for any other
    directory, for a link, and for one that is missing.
    """

    def __init__(self, folder: Path) -> None:
        _check_directory(folder)
        self.folder, self.place = folder, real_path(folder)
        self.is_sweep = _is_sweep(folder)
        if not self.is_sweep and not is_run(folder):
            hint = "runner ls DIR lists the runs in a folder"
            raise ConfigError("not a directory of a run or of a sweep", path=folder, hint=hint)
        directories = [*run_directories(folder)] if self.is_sweep else [folder]
        self.runs = [RunRecord(path) for path in directories]
        inner = [path for path in _with_status(folder) if path not in {folder, *directories} and is_run(path)]
        self.inner = [RunRecord(path) for path in inner]

    def foreign(self) -> list[str]:
        """The names of what runner has not written, relative to the directory."""
        jobs = [run.folder for run in self.runs]
        found = [path for job in jobs for path in _others(job, OF_RUNS)]
        if self.is_sweep:
            own = {*jobs, *(parent for job in jobs for parent in job.parents if parent.is_relative_to(self.folder))}
            for folder in sorted({self.folder, *own} - {*jobs}):  # it may have folders of jobs
                known = OF_SWEEPS if folder == self.folder else ()
                found += [path for path in _others(folder, known) if path not in own]
        return [str(path.relative_to(self.folder)) for path in found]

    def size(self) -> FolderSize:
        """Files and bytes that a removal frees; a file with several names in the directory counts once."""
        seen: dict[tuple[int, int], int] = {}
        for directory, _, names in os.walk(self.folder):
            for name in names:
                with suppress(FileNotFoundError):
                    state = os.lstat(os.path.join(directory, name))
                    seen[state.st_dev, state.st_ino] = state.st_size
        return FolderSize(len(seen), sum(seen.values()))


def is_run(folder: Path) -> bool:
    """Whether runner made this run directory: by its status, its config, or as a claim with nothing else in it."""
    status = json.read_optional(folder / "status.json")
    if status.get("status") in ("running", "ok", "failed", "interrupted") and "started" in status:
        return True
    if "runner" in json.read_optional(folder / "config.json"):
        return True
    try:
        records = files.names(folder / HYDRA)
        text = files.read_bytes(folder / HYDRA / "config.yaml", MAX_FILE_BYTES) if "config.yaml" in records else b""
    except RunnerError:
        return False
    is_claim = not records and [*os.listdir(folder)] == [HYDRA]
    return is_claim or b"\nrunner:" in text  # other programs with Hydra have such a folder, too


def sweep_of(folder: Path) -> Path | None:
    """The sweep that a directory is in; None if there is none."""
    above = real_path(folder).parents
    return next((parent for parent in above if (parent / journal.NAME).is_file()), None)


def _check_directory(folder: Path) -> None:
    if folder.is_symlink():
        hint = f"the directory itself: {real_path(folder)}"
        raise ConfigError("a link is not the directory of a run", path=folder, hint=hint)
    if not folder.is_dir():
        siblings = [path.name for path in folder.parent.iterdir()] if folder.parent.is_dir() else []
        rows = {"nearest": nearest(folder.name, siblings), "hint": "runner ls lists runs"}
        raise ConfigError("the run does not exist", path=folder, **rows)
    if (folder / LOCK_FILE).is_symlink():
        raise ConfigError("a run directory whose lock is a link", path=folder / LOCK_FILE)


def _is_sweep(folder: Path) -> bool:
    if not (folder / journal.NAME).is_file():
        return False
    with suppress(RunnerError):
        rows, _ = journal.read(folder)
        if rows:
            return bool(rows[0]["event"] == "sweep")
    return (folder / "multirun.yaml").is_file()  # the journal is damaged


def _with_status(folder: Path) -> Iterator[Path]:
    """The directories below one, itself included, that have a status."""
    return (Path(directory) for directory, _, names in os.walk(folder) if "status.json" in names)


def _others(folder: Path, known: tuple[str, ...]) -> Iterator[Path]:
    for name in files.names(folder):
        if not any(fnmatchcase(name, pattern) for pattern in known) and not _is_records(folder / name):
            yield folder / name


def _is_records(folder: Path) -> bool:
    """Whether a folder is Hydra's, which a run may have under another name (`hydra.output_subdir`)."""
    return folder.is_dir() and {"config.yaml", "hydra.yaml", "overrides.yaml"} == {*os.listdir(folder)}
