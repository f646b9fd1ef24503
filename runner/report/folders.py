"""Folders of runs and sweeps: whether runner made a directory, what in it is of someone else, and `runner rm`."""

import os
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from runner import rundir
from runner.errors import BusyError, ConfigError, RunnerError, StorageError, nearest, some
from runner.experiment.manifest import HASHES
from runner.experiment.results import FILE, IMAGES
from runner.experiment.sweep import journal
from runner.host import files, json
from runner.host.console import visible
from runner.host.files import real_path
from runner.host.process import is_of_this_machine
from runner.observe.dump.dumper import NUMBERS_FILE
from runner.observe.dump.files import FORMATS, MAPPING, long_names
from runner.observe.dump.writers import STATISTICS_FILE
from runner.observe.graph.folder import FAILED, FILES as GRAPH_FILES
from runner.observe.profile.settings import FILES as PROFILE_FILES
from runner.report.list import default_folders
from runner.report.record import RunRecord
from runner.rundir import (
    directories_of,
    is_run,
    remove_directory,
    remove_leftovers,
    run_directories,
    sweep_of,
    with_status,
)
from runner.train.checkpoint.state import CALLBACKS, MANIFEST, STATE
from runner.validation.paths import path_problem


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
        inner = [path for path in with_status(folder) if path not in {folder, *directories} and is_run(path)]
        self.inner = [RunRecord(path) for path in inner]

    def foreign(self) -> list[str]:
        """The names of what runner has not written, relative to the directory."""
        jobs = [run.folder for run in self.runs]
        found = [path for job in jobs for path in _foreign(job, rundir.OF_RUNS)]
        if self.is_sweep:
            own = {*jobs, *(parent for job in jobs for parent in job.parents if parent.is_relative_to(self.folder))}
            for folder in sorted({self.folder, *own} - {*jobs}):  # it may have folders of jobs
                known = rundir.OF_SWEEPS if folder == self.folder else ()
                found += [path for path in _foreign(folder, known) if path not in own]
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


def _check_directory(folder: Path) -> None:
    if folder.is_symlink():
        hint = f"the directory itself: {real_path(folder)}"
        raise ConfigError("a link is not the directory of a run", path=folder, hint=hint)
    if not folder.is_dir():
        siblings = [path.name for path in folder.parent.iterdir()] if folder.parent.is_dir() else []
        rows = {"nearest": nearest(folder.name, siblings), "hint": "runner ls lists runs"}
        raise ConfigError("the run does not exist", path=folder, **rows)
    if (folder / rundir.LOCK).is_symlink():
        raise ConfigError("a run directory whose lock is a link", path=folder / rundir.LOCK)


def _is_sweep(folder: Path) -> bool:
    if not (folder / rundir.SWEEP).is_file():
        return False
    with suppress(RunnerError):
        rows, _ = journal.read(folder)
        if rows:
            return bool(rows[0]["event"] == "sweep")
    return (folder / rundir.MULTIRUN).is_file() or rundir.is_claim(folder)  # the journal is damaged, or not begun


# What runner writes into each folder of a run or sweep, by name and, where names say little, by content. All else is of
# the user, at every level, and so is every link but those of submitit.

RECORDS = ("config.yaml", "hydra.yaml", "overrides.yaml")
_SUFFIXES = "submission.sh", "submitted.pkl", "result.pkl", "log.out", "log.err"
WRITTEN: Mapping[str, tuple[str, ...]] = {
    rundir.HYDRA: RECORDS,
    rundir.CHECKPOINTS: tuple(f"*-[0-9]*_[0-9]*/{name}" for name in (MANIFEST, STATE, CALLBACKS)),
    rundir.MODEL: tuple(os.path.basename(name) for name in (rundir.NETWORK, rundir.PREDICT, rundir.TRAIN_STEP)),
    rundir.EVAL: (FILE, f"{IMAGES}/[0-9][0-9].png"),
    rundir.GRAPHS: GRAPH_FILES,
    rundir.PROFILING: (*PROFILE_FILES, *(f"profile_[0-9]*/{name}" for name in PROFILE_FILES)),
    rundir.TENSORBOARD: ("*.tfevents.*",),
    rundir.SUBMITIT: (*(f"*/*_{name}" for name in _SUFFIXES), *(f"*_{name}" for name in _SUFFIXES), "*submission_*.sh"),
}
_OF_DUMPS = (
    *(rundir.OWNER, NUMBERS_FILE, STATISTICS_FILE, MAPPING, FAILED, "data_dump.json"),
    *("ms_output_trace_code_graph_*.ir", "ms_output_trace_code_graph_*.pb", "ms_execution_order_graph_*.csv"),
)


def _foreign(folder: Path, known: Sequence[str]) -> Iterator[Path]:
    """What is in the folder of a run or sweep, at any depth, beside what runner writes; `known` are the names in it."""
    hashes = json.read_optional(folder / rundir.MANIFEST).get(HASHES)
    for name in files.names(folder):
        path = folder / name
        is_records = path.is_dir() and set(files.names(path)) == {*RECORDS}  # `hydra.output_subdir` may rename it
        if path.is_symlink() or not (name in known or is_records or files.is_temporary(name)):
            yield path
        elif path.is_dir() and not is_records and not files.is_temporary(name):
            yield from _foreign_inside(path, hashes if isinstance(hashes, dict) else {})


def _foreign_inside(root: Path, hashes: Mapping[str, object]) -> Iterator[Path]:
    """What runner did not write below one of the folders of a run; of a folder without anything of runner, itself."""
    for directory, folders, names in os.walk(root):
        for name in sorted([*folders, *names]):
            path = Path(directory, name)
            parts = path.relative_to(root).parts
            if files.is_temporary(name):
                is_own = True
            elif path.is_symlink():
                is_own = root.name == rundir.SUBMITIT and fnmatchcase(name, os.path.basename(rundir.SUBMITTED))
            elif root.name in WRITTEN:
                is_own = any(_begins(parts, pattern, path.is_dir()) for pattern in WRITTEN[root.name])
            else:
                is_own = path.is_dir() or _has_content(root, path, hashes)
            if not is_own:
                yield path
            if name in folders and (files.is_temporary(name) or not is_own):
                folders.remove(name)


def _begins(parts: Sequence[str], pattern: str, is_folder: bool) -> bool:
    """Whether a relative path matches a pattern, name by name; that of a folder the beginning of one."""
    names = pattern.split("/")
    fits = len(parts) < len(names) if is_folder else len(parts) == len(names)
    return fits and all(map(fnmatchcase, parts, names))


def _has_content(root: Path, path: Path, hashes: Mapping[str, object]) -> bool:
    """Whether a file is what runner writes into this folder, whose names depend on the code of the user."""
    name = str(path.relative_to(root))
    with suppress(RunnerError):
        if root.name == rundir.CODE:  # copies, which may have been edited; a killed start has not recorded their hashes
            return not hashes or hashes.get(name) == files.sha256(path)
        if root.name == rundir.KERNEL_META:
            return rundir.is_kernel_file(path)
        if root.name in (rundir.DUMP, rundir.EXCEPTION_DUMP):
            size = path.stat().st_size
            is_dump = any(form.parse(path.name, size) for form in FORMATS) or path.name in long_names(path.parent)
            return is_dump or any(fnmatchcase(path.name, pattern) for pattern in _OF_DUMPS)
    return False


# `runner rm`: removes runs and sweeps, if nothing works in them and no other run needs them.

NAMED = 5


def main(args: Namespace) -> int:
    """Remove the named runs and sweeps, all or none of them, and print each with its bytes.

    Raises ConfigError for what is no directory of a run, BusyError for one that runs or that others need, StorageError.
    """
    named = [Path(name) for name in args.runs if not _finish_removal(Path(name), args.dry_run)]
    found = _without_parts([RunFolder(path) for path in named])
    _check(found, args.force)
    sizes = [one.size() for one in found]
    with ExitStack() as locks:
        if not args.dry_run:
            for one in found:
                _lock(one, locks)
        for one, size in zip(found, sizes, strict=True):
            _remove(one, size, args.dry_run)
    if len(found) > 1:
        total = FolderSize(sum(size.files for size in sizes), sum(size.bytes for size in sizes))
        print(f"{_verb(args.dry_run)} {len(found)} directories: {_text(total)}")  # noqa: T201
    return 0


def _finish_removal(folder: Path, dry_run: bool) -> bool:
    """Whether a directory is gone already, but for what a killed removal has left of it, which is removed."""
    if os.path.lexists(folder) or not rundir.is_half_removed(folder):
        return False
    if not dry_run:
        remove_leftovers(folder.parent)
    print(visible(f"{_verb(dry_run)} {folder}: the rest of a removal that was interrupted"))  # noqa: T201
    return True


def _remove(one: RunFolder, size: FolderSize, dry_run: bool) -> None:
    outside = _outside(one)
    if not dry_run:
        remove_leftovers(one.place.parent)
        remove_directory(one.place)
    states = f"sweep of {len(one.runs)} runs" if one.is_sweep else one.runs[0].state
    print(visible(f"{_verb(dry_run)} {one.folder}: {states}, {_text(size)}"))  # noqa: T201  output of the command
    for path in outside:
        print(visible(f"  not removed: {path}, which the run filled"))  # noqa: T201


def _verb(dry_run: bool) -> str:
    return "would remove" if dry_run else "removed"


def _text(size: FolderSize) -> str:
    return f"{size.files} {'file' if size.files == 1 else 'files'}, {size.bytes:,} bytes"


def _lock(one: RunFolder, locks: ExitStack) -> None:
    """Hold the locks of a directory and of the runs in it.

    Raises BusyError, StorageError, and ConfigError when another process has removed one of them in the meantime.
    """
    for folder in dict.fromkeys([one.folder, *(run.folder for run in (*one.runs, *one.inner))]):
        gone = ConfigError("the run does not exist any more", path=folder)
        try:
            locks.enter_context(files.locked(folder / rundir.LOCK))
        except BusyError as error:
            raise error.add(hint=f"wait until it has ended: runner watch {folder}") from None
        except StorageError:
            if folder.is_dir():
                raise
            raise gone from None
        if not folder.is_dir():
            raise gone


def _outside(one: RunFolder) -> list[str]:
    """The directories outside of a run that it has filled, such as `dump.path`."""
    paths = dict.fromkeys(path for run in one.runs for path in directories_of(run.folder).values())
    return [path for path in paths if os.path.isdir(path) and not _is_inside(Path(path), {one.place})]


def _without_parts(found: Sequence[RunFolder]) -> list[RunFolder]:
    """The directories without duplicates, and without those in another one of them."""
    by_place = {one.place: one for one in found}
    return [one for place, one in by_place.items() if by_place.keys().isdisjoint(place.parents)]


def _check(found: Sequence[RunFolder], force: bool) -> None:
    """Raise an error that names every directory that cannot be removed."""
    errors = [error for one in found for error in _problems(one, force)]
    if not force:
        errors += [*_jobs(found), *_needed(found)]
    if errors:
        others = [f"{error.rows['path']}: {error.what}" for error in errors[1:]]
        raise errors[0].add(also="\n".join(others) or None)


def _problems(one: RunFolder, force: bool) -> Iterator[RunnerError]:
    if _is_inside(Path.cwd(), {one.place}):
        yield ConfigError("the current directory is in the directory of the run", path=one.folder, hint="cd ..")
    for run in (*one.runs, *one.inner):
        if run.state == "running" and (is_of_this_machine(run.status) or not force):
            yield _running(run)
    if not force and (foreign := one.foreign()):
        rows = {"path": one.folder, "files": some(foreign, NAMED), "hint": "--force removes them too"}
        yield ConfigError("the directory has files that runner did not write", **rows)


def _running(run: RunRecord) -> BusyError:
    pid, host = run.status.get("pid"), run.status.get("host")
    if is_of_this_machine(run.status):
        return BusyError("the run is running", path=run.folder, process=pid, hint=f"runner watch {run.folder}")
    hint = "--force removes it, if that process has ended"
    return BusyError("the run may be running on another machine", path=run.folder, host=host, process=pid, hint=hint)


def _jobs(found: Sequence[RunFolder]) -> Iterator[BusyError]:
    for one in found:
        if not one.is_sweep and (sweep := sweep_of(one.folder)):
            hint = f"runner rm {os.path.relpath(sweep)} removes the sweep, --force this job"
            yield BusyError("the run is a job of a sweep", path=one.folder, sweep=sweep, hint=hint)


def _needed(found: Sequence[RunFolder]) -> Iterator[BusyError]:
    """An error for each run of which another one uses a file, such as its weights, that is not removed with it."""
    places = {one.place for one in found}
    folders = dict.fromkeys([*default_folders(), *(one.folder.parent for one in found)])
    needing: dict[Path, dict[Path, str]] = {place: {} for place in places}
    for run in (RunRecord(path) for folder in folders for path in run_directories(folder)):
        for key, path in _files_of(run):
            for place in places & _above(path):
                if not _is_inside(run.folder, places):
                    needing[place].setdefault(real_path(run.folder), f"{run.folder} ({key})")
    for one in found:
        if names := [*needing[one.place].values()]:
            rows = {"needed by": some(names, NAMED), "hint": "--force removes it nevertheless"}
            yield BusyError("another run has files of this one in its config", path=one.folder, **rows)


def _files_of(run: RunRecord) -> Iterator[tuple[str, Path]]:
    """The paths in the config of a run that may need them again, with their keys; a finished evaluation does not."""
    if run.config.get("session.graph_run_mode") == 0 and run.state == "ok":
        return
    for key, value in run.config.items():
        if isinstance(value, str) and os.sep in value and path_problem(value) is None:
            yield key, Path(value)


def _above(path: Path) -> set[Path]:
    """A path without links, and the folders above it."""
    place = real_path(path)
    return {place, *place.parents}


def _is_inside(path: Path, places: set[Path]) -> bool:
    return not places.isdisjoint(_above(path))
