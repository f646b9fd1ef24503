"""Run directories of scripts that build their own `Model`: `runner.record`, and `runner resume` of such a run.

In order: the recorded command and its signature; training and evaluation, made of the parts of `runner.experiment.run`;
the directory, which is new or continued; resuming; `record`.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from runner import context, rundir
from runner.config.check import check
from runner.config.code import imported_files
from runner.config.groups.services import tracking_is_requested
from runner.config.schema import CheckpointSettings, RunConfig
from runner.core.dependence import NOTES
from runner.dataset.pipeline import Dataset
from runner.errors import BusyError, ConfigError, DataError, StorageError, changed_rows, known_names
from runner.experiment.build import Experiment
from runner.experiment.callbacks import Checkpointer, MetricsJournal, restore
from runner.experiment.manifest import (
    ManifestWriter,
    RunDescription,
    Stopwatch,
    Subject,
    config_hash,
    write_copies,
)
from runner.experiment.observers import StepGraphWriter
from runner.experiment.progress import ENDED
from runner.experiment.results import write_networks
from runner.experiment.run import (
    Evaluation,
    RunMonitor,
    final_evaluation,
)
from runner.experiment.tracking import TrackedRun, tracked
from runner.host import arithmetic, files, json as stored
from runner.host.console import LOG, Console
from runner.host.files import Journal, storage_errors, write_json
from runner.host.json import flat
from runner.host.process import Interruption, exit_codes, launched, only_run, stopped_by_signals
from runner.host.seed import get_seed
from runner.train.callback import Callback, CallbackList, CallbackParameters
from runner.train.model import Model, check_train_arguments, epoch_steps, total_steps
from runner.validation.paths import ALLOWED, path_problem
from runner.validation.rules import Frozen

# The command that started a script, and its record in the run directory, signed with a key of the user.
#
# A run directory may be that of someone else, and `runner resume` starts the recorded program. So the record is signed
# with a key that only this user's account has, and nothing else is ever started.

KEY_BYTES = 32
MAX_SCRIPT_BYTES = 16 << 20


class ScriptCommand(Frozen):
    """A script, the sha256 (hex) of its file, the words after the interpreter, and the working directory.

    `script` is None where there is no file: in a notebook, and in `python -c`.
    """

    script: str | None
    sha256: str | None
    words: tuple[str, ...]
    directory: str

    @property
    def name(self) -> str:
        """The name of the script, without its ending."""
        return Path(self.script).stem if self.script else "script"

    @property
    def shown(self) -> str:
        """The command as a user types it."""
        return f"cd {shlex.quote(self.directory)} && {shlex.join(['python', *self.words])}"


def own_command() -> ScriptCommand:
    """The command of this process."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    script = os.path.abspath(file) if file else None
    return ScriptCommand(script, sha256_of(script), tuple(sys.orig_argv[1:]), os.getcwd())


def sha256_of(script: str | None) -> str | None:
    """The sha256 (hex) of a script; None without a file that can be read."""
    try:
        content = None if script is None else files.read_bytes(Path(script), MAX_SCRIPT_BYTES)
    except (DataError, StorageError):
        return None
    return None if content is None else hashlib.sha256(content).hexdigest()


def write(folder: Path, command: ScriptCommand) -> None:
    """Write the signed record of a command; unsigned where there is no place for a key. Raises StorageError."""
    record = _record(command)
    try:
        key = _own_key()
    except (StorageError, RuntimeError):  # RuntimeError: no home directory
        key = None
    files.write_json(folder / rundir.SCRIPT, {**record, "signature": None if key is None else _signature(key, record)})


def read(folder: Path) -> tuple[ScriptCommand, bool]:
    """The recorded command, and whether this user has signed it.

    Raises DataError for a damaged record, StorageError.
    """
    path = folder / rundir.SCRIPT
    values = stored.read_object(path)
    values = {"script": None, "sha256": None, **values}
    if not stored.fits(values, {"script": (str, None), "sha256": (str, None), "words": [str], "directory": str}):
        raise DataError("the record of a script is damaged", file=path)
    command = ScriptCommand(values["script"], values["sha256"], tuple(values["words"]), values["directory"])
    key, signature = _known_key(), values.get("signature")
    if key is None or not isinstance(signature, str):
        return command, False
    return command, hmac.compare_digest(_signature(key, _record(command)).encode(), signature.encode())


def _record(command: ScriptCommand) -> dict[str, Any]:
    values = {"script": command.script, "sha256": command.sha256}
    return {**values, "words": list(command.words), "directory": command.directory}


def _signature(key: bytes, record: dict[str, Any]) -> str:
    return hmac.new(key, json.dumps(record, sort_keys=True).encode(), hashlib.sha256).hexdigest()


def _key_file() -> Path:
    """`$XDG_STATE_HOME/runner/key`, or `~/.local/state/runner/key`. Raises RuntimeError without a home directory."""
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "runner" / "key"


def _known_key() -> bytes | None:
    try:
        content = files.read_bytes(_key_file(), 2 * KEY_BYTES)
    except (DataError, StorageError, RuntimeError):
        return None
    return content if len(content) == 2 * KEY_BYTES else None


def _own_key() -> bytes | None:
    """The key of this user, which is created by the first script. Raises StorageError and RuntimeError."""
    path = _key_file()
    if not path.exists():
        files.make_directory(path.parent)
        files.write_exclusively(path, os.urandom(KEY_BYTES).hex(), 0o600)
    return _known_key()


# Training and evaluation in the run of a script: the parts of `runner.experiment.run`, with a model of the script.

MODE_NAMES = {context.GRAPH_MODE: "graph", context.PYNATIVE_MODE: "pynative"}


class ScriptSubject(Subject):
    """What a script's run is about: its config and names, and in `training` what its steps depend on besides."""

    ranks = 1

    def __init__(self, folder: Path, command: ScriptCommand, config: dict[str, Any], names: dict[str, Any]) -> None:
        self._folder, self.command, self.config, self._names = folder, command, config, names
        self.training: dict[str, Any] = {}
        self._code: dict[str, Path] = {}

    @property
    def folder(self) -> Path:
        return self._folder

    @property
    def names(self) -> dict[str, Any]:
        return self._names

    @property
    def inputs(self) -> dict[str, Any]:
        script = {"script": self.command.script, "script_sha256": self.command.sha256}
        return {"seed": get_seed(), "config_sha256": config_hash(self.config), **script}

    @property
    def identity(self) -> dict[str, Any]:
        return flat({"config": self.config, **self.training})

    @property
    def code(self) -> dict[str, Path]:
        return self._code

    def begin(self, experiment: Experiment, **training: Any) -> None:
        """Take the names and settings of a model that is about to be trained or evaluated, and the imported code."""
        script = self.command.script
        self._code = imported_files([os.path.dirname(script)]) if script else {}  # a step may import more
        model, types = experiment.model, experiment.train_data.column_types()
        found = {"mode": MODE_NAMES[model.mode], "device": model.device.target}
        self._names |= found | {"network": self._names["network"] or type(model.network).__name__}
        self.training = {
            "seed": get_seed(),
            "mode": found["mode"],
            "device": {name: getattr(model.device, name) for name in ("target", "id", "threads")},
            "precision_mode": context.get_context("precision_mode"),
            "training": training | {"batch": ", ".join(map(str, types))},
        }


class RecordedRun:
    """A run whose directory a script fills, made by `runner.record`.

    `folder` is its directory, `config` the values that the script gave, `resumed` whether it continues an earlier run.
    """

    def __init__(
        self,
        subject: ScriptSubject,
        settings: CheckpointSettings,
        journal: Journal,
        status: rundir.Status,
        *,
        resumed: bool,
        force: bool,
    ) -> None:
        self._subject, self._settings, self._status = subject, settings, status
        self._journal, self._metrics = journal, MetricsJournal(journal)
        self.folder, self.config = subject.folder, subject.config
        self.resumed, self._force = resumed, force
        self._stopwatch, self._values = Stopwatch(), dict[str, float]()
        self._description: RunDescription | None = None
        self._manifest: ManifestWriter | None = None
        self._cb_params = CallbackParameters(cur_epoch_num=0, cur_step_num=0, net_outputs=np.float32(np.nan))

    def train(
        self,
        model: Model,
        epoch: int,
        train_dataset: Dataset,
        callbacks: Callback | Sequence[Callback] | None = None,
        dataset_sink_mode: bool = True,
        sink_size: int = -1,
        *,
        max_steps: int | None = None,
        test_dataset: Dataset | None = None,
    ) -> None:
        """Train as `model.train` does, with metrics, checkpoints and manifest in the run directory.

        A run that continues executes the steps after its newest checkpoint, with the same results as one that was not
        interrupted. `test_dataset` is evaluated after every epoch, with the metrics of the model. The first signal
        (SIGINT or SIGTERM) saves a checkpoint after the step and raises KeyboardInterrupt. Raises the errors of
        `model.train`, ConfigError for a second training and when something has changed that the results depend on,
        TrainingError when the loss is not finite.
        """
        check_train_arguments(epoch, train_dataset, dataset_sink_mode, sink_size, max_steps)
        steps = epoch_steps(train_dataset, dataset_sink_mode, sink_size)
        last, sunk = total_steps(epoch, steps, max_steps), dataset_sink_mode and model.mode == context.GRAPH_MODE
        splits = {"train": train_dataset} | ({} if test_dataset is None else {"test": test_dataset})
        experiment = Experiment(model, train_dataset, train_dataset if test_dataset is None else test_dataset, last)
        description, manifest = self._describe(experiment, splits, epoch_steps=steps, sunk=sunk)
        monitor, own, step_graph = RunMonitor(), CallbackList(callbacks).list, StepGraphWriter(experiment, self.folder)
        self._restore(description)
        with Interruption() as interruption:
            observers = [self._stopwatch, monitor, self._metrics, manifest, *own, step_graph]
            if test_dataset is not None:
                observers.append(Evaluation(experiment, self._metrics))
            observers.append(Checkpointer(description, self._settings, self._journal, interruption, own))
            first = int(description.before.get("global_step", 0))
            made = train_dataset, observers, dataset_sink_mode, sink_size
            if ENDED not in description.before:
                model.train(epoch, *made, max_steps=max_steps, first_step=first)
        self._cb_params = monitor.ended(description.before)
        if test_dataset is not None:
            self._evaluate(experiment)

    def evaluate(self, model: Model, dataset: Dataset) -> dict[str, Any]:
        """The metrics of a model over a dataset, also written to `metrics.jsonl` and `summary.json`.

        None is a metric that is not finite. Without a training before, the run is an evaluation. Raises the errors of
        `model.eval`, and TrainingError when a loss is not finite.
        """
        if not model.metrics:
            raise ConfigError("evaluation needs metrics", repair="Model(..., metrics={'accuracy'})")
        trained = self._description
        if trained is None:
            experiment = Experiment(model, dataset, dataset, 0)
            _, manifest = self._describe(experiment, {"test": dataset})
            self._journal.cut(0)
            self._evaluate(experiment, self._stopwatch, manifest)
            return dict(self._values)
        trained.experiment.test_data = dataset
        trained.metrics = model.metrics
        self._evaluate(replace(trained.experiment, model=model))
        if trained.add_data("test", dataset) and self._manifest is not None:
            self._manifest.write()
        return dict(self._values)

    def conclude(self) -> dict[str, Any]:
        """Write network and summary, and return the summary. Raises ConfigError when nothing was recorded."""
        description = self._description
        if description is None:
            repair = "run.train(model, ...) in place of model.train(...), or run.evaluate(model, ...)"
            raise ConfigError("nothing was recorded", path=self.folder, repair=repair)
        try:
            write_networks(description.experiment, self.folder)
        except StorageError:
            raise
        except Exception as reason:  # tracing executes the user's code; the training is not lost for it
            LOG.warning("model/network.onnx is not written: %s", reason)
        summary = description.summary(self._cb_params, self._values)
        if not self._cb_params.cur_step_num:  # an evaluation
            seconds = {"eval_seconds": summary["train_seconds"], "train_seconds": 0.0}
            summary |= {"loss": self._values.get("loss"), **seconds}
        write_json(self.folder / rundir.SUMMARY, summary)
        return summary

    def _evaluate(self, experiment: Experiment, *callbacks: Callback) -> None:
        self._values = final_evaluation(experiment, self.folder, self._metrics, self._cb_params, callbacks)
        if self._manifest is not None:
            self._manifest.complete()

    def _describe(
        self, experiment: Experiment, data: Mapping[str, Dataset], **training: Any
    ) -> tuple[RunDescription, ManifestWriter]:
        """The description of the run, with the writer of its manifest. Raises ConfigError for a second training."""
        if self._description is not None:
            repair = "one call of run.train, or another run directory for each; run.evaluate may follow"
            raise ConfigError("a run has one training", path=self.folder, repair=repair)
        self._subject.begin(experiment, **training)
        self._status.write(**self._subject.names)
        self._description = RunDescription(self._subject, experiment, data, self._stopwatch)
        self._manifest = ManifestWriter(self.folder / rundir.MANIFEST, self._description.manifest)
        return self._description, self._manifest

    def _restore(self, description: RunDescription) -> None:
        if self.resumed:
            description.before = restore(description, self._settings, self._journal, self._force, goes_on=True)
        write_copies(self.folder, self._subject.code)


# The directory of a script's run: it is new, or this start continues the run that is in it, or it is refused.

OTHER = "another directory"


def opened(folder: Path) -> AbstractContextManager[None]:
    """Create the directory, if necessary, and lock it while the context is open.

    Raises BusyError for a directory with anything but the run of a script, and while another process records into it;
    StorageError.
    """
    _check_content(folder)
    files.make_directory(folder)
    return files.locked(folder / rundir.LOCK)


def is_continued(folder: Path, own: ScriptCommand, config: Mapping[str, Any], resume: bool | None, force: bool) -> bool:
    """Whether the locked directory has a run that this start continues.

    Raises BusyError for a finished run unless `resume`, and for any run with `resume=False`; ConfigError when script or
    config have changed since the run began, unless `force`, and for a directory with symbolic links.
    """
    _check_content(folder)
    if not (folder / rundir.SCRIPT).exists():
        return False
    if resume is False:
        hint = f"{OTHER}, or without resume=False to continue the run"
        raise BusyError("the directory has the run of a script", path=folder, hint=hint)
    if resume is None and rundir.is_finished(folder):
        hint = f"{OTHER}, or resume=True to continue the run with more epochs"
        raise BusyError("the run in this directory is finished", path=folder, hint=hint)
    rundir.refuse_links(folder)
    if not force:
        _check_unchanged(folder, own, config)
    return True


def _check_content(folder: Path) -> None:
    """Refuse a directory of something else. Raises BusyError."""
    others = [name for name in files.names(folder) if name != rundir.LOCK and not name.endswith(files.TEMPORARY_SUFFIX)]
    if not others or rundir.SCRIPT in others:
        return
    if rundir.STATUS in others:
        raise BusyError("the directory has a run that no script records", path=folder, hint=OTHER)
    raise BusyError("the run directory is not empty", path=folder, contains=", ".join(others[:3]), hint=OTHER)


def _check_unchanged(folder: Path, own: ScriptCommand, config: Mapping[str, Any]) -> None:
    if not (folder / rundir.CONFIG).exists():  # the run was killed before anything else was written
        return
    before, _ = read(folder)
    was = {"script.sha256": before.sha256} | flat({"config": stored.read_optional(folder / rundir.CONFIG)})
    now = {"script.sha256": own.sha256} | flat({"config": dict(config)})
    if rows := changed_rows(was, now):
        hint = f"{OTHER}, or force=True to continue anyway"
        raise ConfigError("the directory has a run of another script or config", path=folder, **rows, hint=hint)


# `runner resume` of a run that a script records: it starts the script again, as it was started.

RESUME_VARIABLE, FORCE_VARIABLE = "RUNNER_RESUME", "RUNNER_RESUME_FORCE"  # for `runner.record` in the script


def is_script_run(folder: Path) -> bool:
    """Whether the run in a directory is one that a script records."""
    return (folder / rundir.SCRIPT).exists()


def resume(folder: Path, lines: Sequence[str], force: bool) -> NoReturn:
    """Replace this process by the script of a run, with its recorded arguments and working directory.

    Nothing is started unless this user's account has recorded it, and the script is still the recorded one (or
    `force`). Raises ConfigError, also for overrides and for a finished run; StorageError.
    """
    own = startable(folder, lines, force)
    sys.stdout.flush()
    sys.stderr.flush()
    environment = {**arithmetic.environment(), RESUME_VARIABLE: str(folder.absolute()), FORCE_VARIABLE: str(int(force))}
    with storage_errors("cannot start the script", Path(own.directory)):
        os.chdir(own.directory)
        os.execve(sys.executable, [sys.executable, *own.words], environment)


def startable(folder: Path, lines: Sequence[str], force: bool) -> ScriptCommand:
    """The recorded command of a run, if it may be started. Raises ConfigError with the command otherwise."""
    try:
        own, signed = read(folder)
    except DataError as error:
        rows = {"damaged": rundir.SCRIPT, "reason": error.rows.get("reason", error.what)}
        raise ConfigError("not a run directory", path=folder, **rows) from None
    typed = {"path": folder, "command": own.shown}
    if lines:
        hint = "the arguments of a script are its own: type the command with others"
        raise ConfigError("the run of a script has no overrides", value=" ".join(lines), **typed, hint=hint)
    if rundir.is_finished(folder):
        raise ConfigError("the run is finished", path=folder, hint="more epochs: runner.record(..., resume=True)")
    if (size := launched()[1]) > 1:
        raise ConfigError("the run has a single process", path=folder, launched=f"{size} processes")
    if not signed:
        hint = "if you trust the script, type the command: it continues the run"
        raise ConfigError("another user, or another machine, has recorded the command of this run", **typed, hint=hint)
    if own.script is None or not Path(own.script).is_file():
        raise ConfigError("the script of the run does not exist", script=own.script or "none: not a file", **typed)
    if not force and (now := sha256_of(own.script)) != own.sha256:
        rows = {"script": own.script, "sha256": f"was {own.sha256}, is {now}"}
        raise ConfigError("the script of the run has changed", **rows, hint="--force resumes anyway")
    return own


# `runner.record`.

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
        own, place = own_command(), _place(folder)
        values, settings = _json_values(config), _settings(checkpoint, tracking)
        _check_one_process(place)
        if _is_requested(place):
            resume, force = True, force or os.environ.get(FORCE_VARIABLE) == "1"
        names = {"experiment": experiment or own.name, "network": network, "dataset": dataset}
        subject = ScriptSubject(place, own, values, {**names, "mode": None, "device": None})
        with only_run(), stopped_by_signals(), opened(place), _noted(own, folder), NOTES.apart():
            resumed = is_continued(place, own, values, resume, force)
            write(place, own)
            files.write_json(place / rundir.CONFIG, values)
            with _running(subject, settings, resumed, force) as run:
                yield run


@contextmanager
def _running(subject: ScriptSubject, settings: RunConfig, resumed: bool, force: bool) -> Iterator[RecordedRun]:
    """The run in a locked directory, with its status, journal and tracker; at the end its summary is written."""
    with (
        Console() as console,
        rundir.kept_status(subject.folder, subject.names, console, resumed) as status,
        closing(Journal(subject.folder / rundir.METRICS)) as journal,
        _tracked(subject, settings, resumed) as summary,
    ):
        run = RecordedRun(subject, settings.checkpoint, journal, status, resumed=resumed, force=force)
        yield run
        summary.update(run.conclude())


def _tracked(subject: ScriptSubject, settings: RunConfig, resumed: bool) -> Any:
    """The context of the tracking of a run; it yields the dict of the summary."""
    if not tracking_is_requested(settings.tracking):
        return nullcontext({})
    name = subject.names["experiment"]
    overrides = tuple(subject.command.words)
    return tracked(TrackedRun(subject.folder, settings.tracking, name, name, subject.config, overrides, resumed))


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
            stored.parse_data(json.dumps({name: value}, allow_nan=False).encode())
        except (TypeError, ValueError, RecursionError) as reason:
            allowed = "text, finite numbers, true, false, None, and lists and mappings of them"
            raise ConfigError("not a value of JSON", key=f"config.{name}", reason=reason, allowed=allowed) from None
    values: dict[str, Any] = stored.parse_data(json.dumps(dict(config)).encode())
    return values
