"""`runner.record`: the run directory of a script that builds its own `Model`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from runner.communication.world import launched
from runner.config.check import check
from runner.config.groups.services import is_requested as is_tracked
from runner.config.schema import RunConfig
from runner.errors import ConfigError, known_names
from runner.experiment import tracking as trackers
from runner.experiment.run import CONFIG_FILE, METRICS_FILE
from runner.experiment.script import command, directory
from runner.experiment.script.command import ScriptCommand
from runner.experiment.script.resume import FORCE_VARIABLE, RESUME_VARIABLE
from runner.experiment.script.training import RecordedRun, ScriptSubject
from runner.experiment.status import kept_status
from runner.host import files, json as json_data
from runner.host.console import Console
from runner.host.files import Journal
from runner.host.process import exit_codes, stopped_by_signals
from runner.validation.paths import ALLOWED, path_problem

CHECKPOINT_KEYS = "every_steps", "every_seconds", "keep_max"


@contextmanager
def record(
    folder: str | Path,
    config: Mapping[str, Any] | None = None,
    *,
    experiment: str | None = None,
    network: str | None = None,
    dataset: str | None = None,
    checkpoint: Mapping[str, Any] | None = None,
    tracking: str | Mapping[str, Any] | None = None,
    resume: bool | None = None,
    force: bool = False,
) -> Iterator[RecordedRun]:
    """Context in which a script records a run: `with runner.record("outputs/mine", {"rate": 0.1}) as run:` and in it
    `run.train(model, ...)` and `run.evaluate(model, ...)`.

    The directory has the files of any run: status, config, manifest, metrics, checkpoints, summary, network. `config`
    are values of JSON that the results depend on (default: the arguments of the script), `experiment` (default: the
    name of the script), `network` (default: the class) and `dataset` are names for `runner ls`. `checkpoint` has the
    keys every_steps, every_seconds and keep_max of the config group, `tracking` is "tensorboard", "mlflow" or the keys
    of that group.

    A directory with an unfinished run is continued if script and config are the same (`force`: also if not);
    `resume=True` also continues a finished run, `resume=False` none. Raises BusyError for a directory that is in use,
    has a finished run or other files, ConfigError for invalid arguments and changed inputs, StorageError.
    """
    with exit_codes():
        own, place = command.own_command(), _place(folder)
        values, settings = _json_values(config), _settings(checkpoint, tracking)
        _check_one_process(place)
        if _is_requested(place):
            resume, force = True, force or os.environ.get(FORCE_VARIABLE) == "1"
        names = {"experiment": experiment or own.name, "network": network, "dataset": dataset}
        subject = ScriptSubject(place, own, values, {**names, "mode": None, "device": None})
        with stopped_by_signals(), directory.opened(place), _noted(own, folder):
            resumed = directory.is_continued(place, own, values, resume, force)
            command.write(place, own)
            files.write_json(place / CONFIG_FILE, values)
            with _running(subject, settings, resumed, force) as run:
                yield run


@contextmanager
def _running(subject: ScriptSubject, settings: RunConfig, resumed: bool, force: bool) -> Iterator[RecordedRun]:
    """The run in a locked directory, with its status, journal and tracker; at the end its summary is written."""
    with (
        Console() as console,
        kept_status(subject.folder, subject.names, console, resumed) as status,
        closing(Journal(subject.folder / METRICS_FILE)) as journal,
        _tracked(subject, settings, resumed) as summary,
    ):
        run = RecordedRun(subject, settings.checkpoint, journal, status, resumed=resumed, force=force)
        yield run
        summary.update(run.conclude())


def _tracked(subject: ScriptSubject, settings: RunConfig, resumed: bool) -> Any:
    """The context of the tracking of a run; it yields the dict of the summary."""
    if not is_tracked(settings.tracking):
        return nullcontext({})
    name = subject.names["experiment"]
    overrides = tuple(subject.command.words)
    return trackers.tracked(
        trackers.TrackedRun(subject.folder, settings.tracking, name, name, subject.config, overrides, resumed)
    )


@contextmanager
def _noted(own: ScriptCommand, folder: str | Path) -> Iterator[None]:
    """Exceptions of signals have a note how the run continues."""
    try:
        yield
    except KeyboardInterrupt as stop:
        stop.add_note(f"runner resume {folder} continues the run" if own.script else "the same code continues the run")
        raise


def _place(folder: str | Path) -> Path:
    if not isinstance(folder, str | os.PathLike) or not str(folder):
        raise ConfigError("the run directory must be a path", given=repr(folder))
    if problem := path_problem(str(folder)):
        raise ConfigError(problem, path=folder, allowed=ALLOWED)
    return Path(os.path.abspath(folder))


def _is_requested(place: Path) -> bool:
    """Whether `runner resume` has started this script for this directory."""
    requested = os.environ.get(RESUME_VARIABLE)
    return bool(requested) and os.path.realpath(str(requested)) == os.path.realpath(place)


def _check_one_process(place: Path) -> None:
    if (size := launched()[1]) > 1:
        hint = "a run with a config (parallel=data_parallel) has several ranks"
        raise ConfigError("a script records a single process", path=place, launched=f"{size} processes", hint=hint)


def _settings(checkpoint: Mapping[str, Any] | None, tracking: str | Mapping[str, Any] | None) -> RunConfig:
    """A config with the groups that a script can set. Raises ConfigError, or ConfigErrors."""
    values: dict[str, Any] = {"checkpoint": {} if checkpoint is None else checkpoint}
    if isinstance(checkpoint, Mapping):
        for name in checkpoint:
            if name not in CHECKPOINT_KEYS:
                raise ConfigError("unknown key", key=f"checkpoint.{name}", **known_names(str(name), CHECKPOINT_KEYS))
    if tracking is not None:
        values["tracking"] = {"name": tracking} if isinstance(tracking, str) else tracking
    return check(values)


def _json_values(config: Mapping[str, Any] | None) -> dict[str, Any]:
    """The config as it is read back from its file. Raises ConfigError."""
    if config is None:
        return {"arguments": sys.argv[1:]}
    if not isinstance(config, Mapping):
        raise ConfigError("config must be a mapping of names to values", given=repr(config))
    for name, value in config.items():
        try:
            json_data.parse_data(json.dumps({name: value}, allow_nan=False).encode())
        except (TypeError, ValueError, RecursionError) as reason:
            allowed = "text, finite numbers, true, false, None, and lists and mappings of them"
            raise ConfigError("not a value of JSON", key=f"config.{name}", reason=reason, allowed=allowed) from None
    values: dict[str, Any] = json_data.parse_data(json.dumps(dict(config)).encode())
    return values
