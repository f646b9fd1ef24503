"""`runner eval RUN_DIR`: evaluate a run with the weights of its newest checkpoint, in a run directory of its own.

`evaluate` composes the config of that evaluation from the config of the run, of which the training's part is left out,
and from overrides. Predictions and exports begin in the same way: `config_of`, `newest_checkpoint`.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from runner import rundir
from runner.config import code, overrides
from runner.config.check import check
from runner.config.compose import default_folder, with_overrides
from runner.config.gate import path_error, path_errors, typed_values
from runner.config.schema import RunRequest, plain
from runner.errors import ConfigError, DataError, raise_all
from runner.experiment import launch, observers, script
from runner.experiment.manifest import hashes, naming_code_of
from runner.experiment.ranks.processes import OneProcess
from runner.experiment.resume import folder_and_overrides
from runner.host import arithmetic
from runner.host.console import LOG
from runner.host.json import read_optional
from runner.host.process import only_run, stopped_by_signals
from runner.train.checkpoint import state
from runner.validation.paths import ALLOWED, path_problem
from runner.validation.rules import show

FOLDER_KEY = "hydra.run.dir"
# What a training writes or requires; an evaluation has the defaults, or what its overrides say.
OF_TRAINING = ("dump", "profiling", "tracking", "parallel", "expect", "save_graphs", "print_file_path", "max_steps")
OF_SESSION = ("auto_tune_mode", "enable_exception_dump", "profiling_mode", "op_debug_level")


def main(args: argparse.Namespace) -> int:
    """Evaluate a run and print the summary. Raises RunnerError."""
    launch.print_summary(evaluate(*folder_and_overrides(args, "runner eval --help"), args.code))
    return 0


@only_run()
def evaluate(folder: str | Path, lines: Sequence[str] = (), given_code: Sequence[str] = ()) -> dict[str, Any]:
    """Evaluate the run in `folder`, which is only read; `lines` are overrides such as `eval.split=train`.

    `hydra.run.dir` among them is the directory of the evaluation. Returns its summary. Raises ConfigError when there is
    no run or an override is invalid, DataError when it has no good checkpoint.
    """
    code.load(code.sources(given_code))
    lines, given = _without_folder(lines)
    with naming_code_of(Path(folder), read_optional(Path(folder) / rundir.MANIFEST), "eval"):
        request = _request(Path(folder), lines, default_folder() if given is None else given)
    arithmetic.require(request.config.exact)
    observers.check(request.config, request.folder)
    with stopped_by_signals():
        request = replace(request, folder=rundir.claim_run(request.folder, given is not None))
        with rundir.claimed(request.folder):
            here = OneProcess()  # mpirun or not: inference never exchanges
            return here.run(observers.with_directories(request, here.first), launch.execute_recorded)


def saved_values(place: Path) -> dict[str, Any]:
    """The config of a run as nested values, with the settings of an evaluation in place of those of its training.

    The weights are those of the newest checkpoint; the user's code is compared with that of the run, and a warning
    names what has changed. Raises ConfigError when there is no run, DataError when it has no good checkpoint.
    """
    values = without_training_settings(config_of(place))
    session = _section(values, "session")
    evaluation = {"every": "end", "mode": None, "freeze": False}
    weights = _section(values, "checkpoint")
    load = str(newest_checkpoint(place, weights).folder.absolute())
    values |= {
        "mode": _section(values, "eval").get("mode") or values.get("mode", "pynative"),
        "session": session | {"graph_run_mode": 0},
        "eval": _section(values, "eval") | evaluation,
        "checkpoint": weights | {"load": load, "names": None, "strict": None},
    }
    return values


def without_training_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """The config of a run without what its training wrote or required."""
    kept = {name: value for name, value in values.items() if name not in OF_TRAINING}
    session = _section(values, "session")
    return kept | {"session": {name: value for name, value in session.items() if name not in OF_SESSION}}


def config_of(place: Path) -> dict[str, Any]:
    """The config of a run that has trained. Raises ConfigError for anything else."""
    if script.is_script_run(place):
        hint = "call run.evaluate in the script"
        raise ConfigError("the run is that of a script", path=place, hint=hint)
    if (place / rundir.SWEEP).exists():
        jobs = [path for path in sorted(place.iterdir()) if (path / rundir.CONFIG).exists()]
        hint = f"the directory of a job, such as {jobs[0]}" if jobs else "no job has begun"
        raise ConfigError("a sweep has several runs", path=place, hint=hint)
    values = rundir.read_record(place, rundir.CONFIG)
    if not _section(values, "session").get("graph_run_mode", 1):
        source = _section(values, "checkpoint").get("load")
        raise ConfigError("the run is an evaluation, without weights of its own", path=place, evaluates=source)
    return values


def _request(place: Path, lines: Sequence[str], folder: Path) -> RunRequest:
    config = check(with_overrides(saved_values(place), lines))
    if not config.eval.metrics:
        raise ConfigError("nothing to evaluate", key="eval.metrics", value="[]", hint="such as eval.metrics=[loss]")
    typed = typed_values(overrides.parse(lines)) | {FOLDER_KEY: str(folder)}
    raise_all([*path_errors(config, folder, typed), *path_error(FOLDER_KEY, str(folder), folder, typed, [])])
    experiment = rundir.read_record(place, rundir.STATUS).get("experiment")
    return RunRequest(config, folder, experiment, plain(config), tuple(lines))


def _section(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    section = values.get(name)
    return dict(section) if isinstance(section, dict) else {}


def _without_folder(lines: Sequence[str]) -> tuple[list[str], Path | None]:
    """The overrides without that of `hydra.run.dir`, and its value. Raises ConfigError."""
    parsed = overrides.parse(lines)
    found = [one for one in parsed if one.key_or_group == FOLDER_KEY]
    if not found:
        return list(lines), None
    text = str(found[-1].value())
    problem = "interpolations are not resolved here" if "${" in text else path_problem(text)
    if problem:
        raise ConfigError(problem, key=FOLDER_KEY, value=show(text), allowed=ALLOWED)
    rest = [line for line, one in zip(lines, parsed, strict=True) if one.key_or_group != FOLDER_KEY]
    return rest, Path(text)


def newest_checkpoint(place: Path, settings: object) -> state.SavedCheckpoint:
    """The newest good checkpoint of a run with these settings of `checkpoint`; its code is compared with the present
    one. Raises DataError when there is none."""
    prefix = str(settings.get("prefix", "CKP")) if isinstance(settings, dict) else "CKP"
    newest, lines = state.newest(place / rundir.CHECKPOINTS, prefix)
    if newest is None:
        damaged = "\n".join(lines) or None
        hint = f"runner resume {place} trains it" if damaged is None else None
        raise DataError("the run has no good checkpoint", path=place, prefix=prefix, damaged=damaged, hint=hint)
    for line in lines:
        LOG.warning("%s", line)
    _warn_of_changes(newest.identity, place)
    return newest


def _warn_of_changes(identity: Mapping[str, Any], place: Path) -> None:
    """Warn of files of the user's code that are not those of the run; new ones only if they replace others."""
    was = {name.removeprefix("code."): value for name, value in identity.items() if name.startswith("code.")}
    now = hashes(code.loaded_files())
    changed = [name for name in was if was[name] != now.get(name)]
    if changed:
        names = ", ".join(name if name in now else f"{name} (not loaded)" for name in changed)
        LOG.warning("the code has changed since the run: %s; %s has the code of the run", names, place / rundir.CODE)
