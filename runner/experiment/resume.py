"""`runner resume RUN_DIR`: resume an interrupted run from its newest valid checkpoint."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runner import rundir
from runner.config import code, overrides
from runner.config.check import check
from runner.config.compose import with_overrides
from runner.config.gate import path_errors, typed_values
from runner.config.groups.services import DataParallel
from runner.config.schema import RunRequest, plain
from runner.errors import ConfigError, raise_all
from runner.experiment import launch, observers, script, sweep
from runner.experiment.manifest import naming_code_of
from runner.experiment.ranks.processes import on_all_ranks, processes_of
from runner.host import arithmetic, json
from runner.host.process import launched, only_run, stopped_by_signals
from runner.validation.paths import ALLOWED, path_problem
from runner.validation.rules import show


def main(args: argparse.Namespace) -> int:
    """Resume a run or a sweep and print the summary; a sweep has none. Raises RunnerError."""
    folder, lines = folder_and_overrides(args, "runner resume --help")
    if script.is_script_run(folder):
        script.resume(folder, lines, args.force)
    if (folder / rundir.SWEEP).exists():
        on_all_ranks(lambda: _check_one_process(folder, "jobs of a sweep are single processes"))
        sweep.resume(folder, lines, args.force, args.code)
    else:
        launch.print_summary(resume(folder, lines, args.force, args.code))
    return 0


def folder_and_overrides(args: argparse.Namespace, usage: str) -> tuple[Path, list[str]]:
    """The run directory and the overrides among the words of a command, in any order. Raises ConfigError.

    The directory is the word that cannot be an override; without one, the word that is an existing directory.
    """
    words = [args.run, *args.overrides]
    folders = [word for word in words if not ("=" in word or word.startswith("~"))]
    folders = folders or [word for word in words if os.path.isdir(word)]
    lines = [word for word in words if word not in folders]
    if len(folders) != 1:
        reason = f"one directory is needed, and {len(folders) or 'none'} given"
        raise ConfigError("wrong usage", value=" ".join(words), reason=reason, hint=usage)
    if problem := path_problem(folders[0]):
        raise ConfigError(problem, path=show(folders[0]), allowed=ALLOWED)
    return Path(folders[0]), lines


@only_run()
def resume(
    folder: str | Path, lines: Sequence[str] = (), force: bool = False, given_code: Sequence[str] = ()
) -> dict[str, Any]:
    """Resume the run in `folder` and return its summary; `lines` are overrides such as `epochs=100`.

    Without a checkpoint the run starts again. Raises ConfigError when there is no run, when it is finished, or when
    something has changed that its results depend on (unless `force`), and BusyError while it is still running.
    """
    record = json.read_optional(Path(folder) / rundir.MANIFEST)
    with stopped_by_signals(), naming_code_of(Path(folder), record):
        request = on_all_ranks(lambda: _request(Path(folder), lines, force, given_code))
        arithmetic.require(request.config.exact)
        named = {"run directory": str(request.folder)}
        with processes_of(request.config, request.folder, named) as ranks:
            return ranks.run(observers.with_directories(request, ranks.first), launch.execute_recorded)


def _request(place: Path, lines: Sequence[str], force: bool, given_code: Sequence[str]) -> RunRequest:
    """The rest of the run in `place`. Raises ConfigError."""
    code.load(code.sources(given_code))
    status, values = rundir.read_record(place, rundir.STATUS), rundir.read_record(place, rundir.CONFIG)
    config = check(with_overrides(values, lines))
    typed = typed_values(overrides.parse(lines))
    raise_all(list(path_errors(config, place, typed)))  # the run directory may be that of someone else
    if status.get("status") == "ok" and not lines:
        raise ConfigError("the run is finished", path=place, hint="more epochs: runner resume RUN_DIR epochs=...")
    if not isinstance(config.parallel, DataParallel):
        _check_one_process(place, "the run has a single process (parallel=stand_alone)")
    named = config, place, status.get("experiment"), plain(config), tuple(lines)
    return RunRequest(*named, resume=True, force=force)


def _check_one_process(place: Path, what: str) -> None:
    """Raise ConfigError when mpirun has launched several processes, each of which would continue the run."""
    if (size := launched()[1]) > 1:
        rows = {"path": place, "launched": f"{size} processes", "repair": f"without mpirun: runner resume {place}"}
        raise ConfigError(what, **rows)
