"""The directories that a run fills outside of its run directory: each belongs to this run, or the run is refused.

The jobs of a sweep write into subdirectories with their numbers, and a dump of GE into one with its time. The record of
the run directory has the resulting paths, so a resumed run and the readers of a run find them.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from runner import rundir
from runner.config.groups import services
from runner.config.schema import RunConfig, RunRequest
from runner.errors import BusyError
from runner.host import files
from runner.observe import dump as dumps
from runner.observe.dump.settings import FILES as DUMP_FILES, PATH_KEY
from runner.observe.graph.folder import FILES as GRAPH_FILES, check_folder
from runner.observe.profile.settings import FILES as PROFILE_FILES
from runner.rundir import OutputDirectory

GE_TIME = "%Y%m%d%H%M%S"  # the name of a folder of GE (spec section 7)


def check(config: RunConfig, folder: Path) -> None:
    """Refuse a new run in `folder` whose directories belong to other runs; nothing is written.

    Raises BusyError, which names all of them, and ConfigError when `save_graphs_path` is a file.
    """
    errors = [error for one in _requested(config, folder) if (error := rundir.conflict(one)) and not _is_ge(one)]
    if errors:
        others = ["{key} {path}: {owner}; {hint}".format(**error.rows) for error in errors[1:]]
        raise errors[0].add(also="\n".join(others) or None)


def claim(request: RunRequest, sweep: Path | None = None, job: int = 0) -> dict[str, str]:
    """Claim the directories of a run, or of a job of a sweep: paths by the paths in the config.

    Raises BusyError when one belongs to another run, StorageError when one cannot be created.
    """
    requested = list(_requested(request.config, request.folder))
    if not requested:
        return {}
    owner = rundir.owner_of(request.folder)
    chosen = dict(owner.directories)
    for one in requested:
        if str(one.path) not in chosen:
            chosen[str(one.path)] = str(_place(one, sweep, job))
    rundir.record_directories(owner, chosen)  # before they are claimed: a run that is killed now may be resumed
    for one in requested:
        rundir.claim(one._replace(path=Path(chosen[str(one.path)])), owner)
    return {str(one.path): chosen[str(one.path)] for one in requested}


def with_directories(
    request: RunRequest, first: Callable[[Callable[[], dict[str, str]]], dict[str, str]]
) -> RunRequest:
    """The request with its directories, which the first rank claims; `first` returns on all ranks what it computes."""
    return replace(request, directories=first(lambda: claim(request)))


def _place(directory: OutputDirectory, sweep: Path | None, job: int) -> Path:
    if _is_ge(directory):
        return _new_ge_folder(directory.path)
    if sweep is None:
        return directory.path
    rundir.claim(directory, rundir.owner_of(sweep))
    return directory.path / str(job)


def _new_ge_folder(parent: Path) -> Path:
    """A new folder with the local time; a run that starts in the same second has the next one."""
    now = datetime.now()
    while True:
        try:
            return files.claim_directory(parent / now.strftime(GE_TIME))
        except BusyError:
            now += timedelta(seconds=1)


def _is_ge(directory: OutputDirectory) -> bool:
    return directory.key == "dump.dump_path"


def _requested(config: RunConfig, folder: Path) -> Iterator[OutputDirectory]:
    inside = folder.absolute()
    for directory in (*_dump(config, inside), *_profile(config, inside), *_graphs(config, inside)):
        if not directory.path.is_relative_to(inside):
            yield directory


def _dump(config: RunConfig, inside: Path) -> Iterator[OutputDirectory]:
    if not services.dump_is_requested(config.dump) or not config.session.graph_run_mode:
        return
    requested = services.settings(config.dump, {"path": str(inside), "net_name": config.network.name})
    if requested is not None and requested.enabled:
        key, file = "dump.dump_path" if requested.kind == "ge" else "dump.path", None
        if isinstance(config.dump, services.NoDump):
            key, file = PATH_KEY, config.dump.config or os.environ[dumps.VARIABLE]
        yield OutputDirectory(requested.path, key, DUMP_FILES, file)


def _profile(config: RunConfig, inside: Path) -> Iterator[OutputDirectory]:
    if services.profiling_is_requested(config.profiling, config.session) and config.session.graph_run_mode:
        requested = services.profiling_settings(config.profiling, config.session, inside)
        yield OutputDirectory(requested.result_path, "profiling.result_path", PROFILE_FILES)


def _graphs(config: RunConfig, inside: Path) -> Iterator[OutputDirectory]:
    if config.save_graphs:
        path = inside / config.save_graphs_path
        check_folder(path)
        yield OutputDirectory(path, "save_graphs_path", GRAPH_FILES)


def place(directories: Mapping[str, str], path: Path) -> Path:
    """The directory of a run for a path in its config."""
    return Path(directories.get(str(path), path))
