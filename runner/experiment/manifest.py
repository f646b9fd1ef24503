"""`manifest.json`: everything that the results of a run depend on, and the description of a run that it is taken from.

In order: the user's code of a run; the file and its hash; what differs between a run with a config and that of a script
(`Subject`); times (`Stopwatch`); `RunDescription`, from which manifest, summary and checkpoints take their values; the
identity of a run, which `check_identity` compares before it is resumed.
"""

import hashlib
import json
import os
import platform
import resource
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from runner import nn, rundir
from runner.communication.world import world
from runner.config.code import CODE_VARIABLE, FLAG, content, loaded_files, loaded_sources
from runner.config.groups.services import DataParallel
from runner.config.schema import RunRequest, without_former_defaults
from runner.core.dependence import NOTES, OWN
from runner.core.parts import most_parts
from runner.dataset.pipeline import Dataset
from runner.errors import ConfigError, ConfigErrors, changed_rows, some
from runner.experiment.build import Experiment
from runner.host import arithmetic
from runner.host.console import LOG, as_unicode
from runner.host.files import make_directory, sha256, write_atomically, write_json
from runner.host.json import fits, flat, read_optional
from runner.host.machine import cpu_model, packages, usable_cores
from runner.nn.metrics.base import direction_of
from runner.ops.effects import PrintFile
from runner.train.callback import Callback, CallbackParameters, RunContext
from runner.train.checkpoint.state import sweep_temporaries

ARITHMETIC = "arithmetic"  # the key of the class of machines

# The user's code of a run: copies in its folder, and hashes, which a resumed run and other processes compare.

RANKS = "parallel.ranks"  # of several processes, in the identity of a run
BOUND = "bound_to_threads"  # whether the number of threads changes bits
HASHES, GIVEN, PLACE = "code_sha256", "code_given", "code_folder"  # keys of what is recorded
NAMED = 5  # files in an error


def hashes(files: Mapping[str, Path]) -> dict[str, str]:
    """sha256 (hex) of each file, as it was loaded."""
    return {name: hashlib.sha256(content(path)).hexdigest() for name, path in files.items()}


def write_copies(folder: Path, files: Mapping[str, Path]) -> None:
    """Copy files into `code/` of a run directory, and remove what a killed process left there. Raises StorageError."""
    copies = {folder / rundir.CODE / name: path for name, path in files.items()}
    for place in {copy.parent: None for copy in copies}:
        sweep_temporaries(make_directory(place))
    for copy, path in copies.items():
        write_atomically(copy, content(path))


def given() -> dict[str, Any]:
    """What named the code of this process besides its project file: `code_given`, and `code_folder` for relative paths.

    Text for the user who resumes the run, and never loaded from the record.
    """
    sources = loaded_sources()
    typed = dict.fromkeys(source.text for source in sources if source.origin in (FLAG, CODE_VARIABLE))
    return {GIVEN: list(typed), PLACE: sources[-1].folder if sources else None}


@contextmanager
def naming_code_of(place: Path, record: Mapping[str, Any], command: str = "resume") -> Iterator[None]:
    """Errors of a run or sweep in `place` that a command reads state which code it had, and how to load that.

    `record` is its manifest, or the first row of its journal.
    """
    try:
        yield
    except ConfigError as error:
        first = error.errors[0] if isinstance(error, ConfigErrors) else error
        first.add(**_rows(place, record, command))
        raise


def _rows(place: Path, record: Mapping[str, Any], command: str) -> dict[str, str]:
    """The rows for code that the record has and this process has not; {} when there is none."""
    known, folder, typed = record.get(HASHES), record.get(PLACE), record.get(GIVEN)
    missing = sorted(set(known) - set(loaded_files())) if isinstance(known, dict) else []
    if not missing:
        return {}
    rows = {"code of the run": f"{some(missing, NAMED)}: not loaded here; copies are in {place / rundir.CODE}"}
    if not fits(folder, str) or not fits(typed, [str]):
        return rows | {"load it with": f"runner {command} {place} {FLAG} FILE"}  # a script had registered it
    is_here = os.path.realpath(folder) == os.path.realpath(os.getcwd())
    words = ["runner", command, str(place if is_here else place.absolute())]
    line = shlex.join([*words, *(word for one in typed for word in (FLAG, one))])
    return rows | {"load it with": line if is_here else f"cd {shlex.quote(folder)} && {line}"}


def refuse_other(what: str, expected: Mapping[str, str]) -> None:
    """Raise ConfigError when this process has not loaded the files with these hashes, as the process that began did."""
    files = loaded_files()
    own = hashes(files)
    if different := [name for name, digest in expected.items() if own.get(name) != digest]:
        places = (str(files.get(name, f"{name} (not loaded)")) for name in different[:NAMED])
        repair = "the same files on every host; changed ones need a new sweep, or runner resume SWEEP --force"
        raise ConfigError(what, file="\n".join(places), host=platform.node(), repair=repair)


def refuse_change(what: str, was: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Raise ConfigError with a row for every file whose hash differs."""
    if rows := changed_rows(was, now):
        named = {f"code.{name}": row for name, row in sorted(rows.items())}
        raise ConfigError(what, **named, hint="--force resumes anyway")


# The file.


class ManifestWriter(Callback):
    """Writes the manifest after the first step, when the execution provider is known, and after one with an operator
    that depends on the C library and was not there before: of those it says so in one line."""

    def __init__(self, path: Path, manifest: Callable[[], dict[str, Any]]) -> None:
        self.path, self.manifest = path, manifest
        self.written = False
        known = read_optional(path).get(ARITHMETIC)  # of a process that this one continues
        found = known.get(arithmetic.DEPENDS) if isinstance(known, dict) else None
        self.depends = set(found) if fits(found, [str]) else set[str]()

    def step_end(self, run_context: RunContext) -> None:
        if not (self.written and NOTES.names <= self.depends):
            self.write()

    def sink_left(self, run_context: RunContext) -> None:
        self.step_end(run_context)  # a checkpoint may follow

    def write(self) -> None:
        """Write the manifest. Raises StorageError."""
        new = sorted(NOTES.names - self.depends)
        self.depends |= NOTES.names
        manifest = self.manifest()
        computing: dict[str, Any] = {**arithmetic.record(), arithmetic.DEPENDS: sorted(self.depends)}
        if manifest[BOUND]:
            computing["class"] += f"{arithmetic.OTHERS}{manifest['threads']} threads"
        write_json(self.path, {**manifest, "cpu": cpu_model(), ARITHMETIC: computing, "git": git_state()})
        self.written = True
        if new:
            library = computing[arithmetic.LIBC]
            LOG.warning("the last bits of this run are those of the C library %s: %s", library, described(new))

    def complete(self) -> None:
        """Write the manifest again if what followed the last step needs it. Raises StorageError."""
        if self.written and not NOTES.names <= self.depends:
            self.write()


def described(noted: list[str]) -> str:
    """Why numbers depend on the C library, for the names of `NOTES`."""
    known = ", ".join(name for name in noted if not name.startswith(OWN))
    own = [f"{name}: its kernel may depend on anything" for name in noted if name.startswith(OWN)]
    return "; ".join([f"{known} {'depend' if ', ' in known else 'depends'} on it"] * bool(known) + own)


def config_hash(config: dict[str, Any]) -> str:
    """sha256 (hex) of a resolved config, independent of the order of its keys."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()


def git_state() -> dict[str, Any] | None:
    """Commit of the working directory, and whether its files differ from it; None outside of a git repository."""
    commit = _git("rev-parse", "HEAD")
    return None if commit is None else {"commit": commit, "dirty": bool(_git("status", "--porcelain"))}


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


# Keys that do not change what a step computes: length, output and data location (data are identified by their sha256).
WITHOUT_EFFECT = (
    *("epochs", "max_steps", "callbacks", "checkpoint", "expect", "eval", "metrics", "sweep", "runner"),
    *(
        "device.allow_fallback",
        "device.threads",
        "print_file_path",
        "save_graphs",
        "save_graphs_path",
        "dump",
        "profiling",
        "tracking",
    ),
    *(f"session.{name}" for name in ("enable_exception_dump", "initialize_system", "auto_tune_seconds")),
    *(f"session.{name}" for name in ("profiling_mode", "profiling_options", "fp_point", "bp_point", "op_trace")),
    *("parallel.timeout_seconds", "parallel.heartbeat_minutes"),
    *(f"dataset.{name}" for name in ("data_dir", "download", "url", "verify", "num_parallel_workers")),
)


# Keys that checkpoints of older versions do not have, with the values that those runs had.
ADDED: dict[str, Any] = {
    "exact": True,
    "device.tf32": False,
    "parallel.sync_batch_norm": False,
    **dict.fromkeys(("dataset.inputs", "dataset.target", "loss.class_weights")),
    "loss.label_smoothing": 0.0,
    "network.freeze": [],
    "network.head": "keep",
    "session.winograd": "off",
}


class Subject(Protocol):
    """What a run is about, according to its config or to the script that records it."""

    @property
    def folder(self) -> Path:
        """The run directory."""

    @property
    def names(self) -> dict[str, Any]:
        """`experiment`, `network`, `dataset`, `mode` and `device`."""

    @property
    def inputs(self) -> dict[str, Any]:
        """What the manifest has besides data, device and versions."""

    @property
    def identity(self) -> dict[str, Any]:
        """The settings that the results depend on, by dotted name."""

    @property
    def code(self) -> dict[str, Path]:
        """The files of the user's code, by the names of their copies."""

    @property
    def ranks(self) -> int:
        """Number of processes that compute the steps."""

    @property
    def cores(self) -> list[int]:
        """The cores that each rank may use."""
        return [usable_cores()]


class ConfiguredRun(Subject):
    """The run of a request: its config has names and settings."""

    def __init__(self, request: RunRequest) -> None:
        self.request = request

    @property
    def folder(self) -> Path:
        return self.request.folder

    @property
    def names(self) -> dict[str, Any]:
        config = self.request.config
        own = {"network": config.network.name, "dataset": config.dataset.name}
        return {"experiment": self.request.experiment, **own, "mode": config.mode, "device": config.device.target}

    @property
    def inputs(self) -> dict[str, Any]:
        return {"seed": self.request.config.seed, "config_sha256": config_hash(self.request.resolved)}

    @property
    def identity(self) -> dict[str, Any]:
        config = flat(self.request.resolved)
        kept = {key: value for key, value in config.items() if not key.startswith(WITHOUT_EFFECT)}
        return {key: value for key, value in kept.items() if key not in ADDED or value != ADDED[key]}

    @property
    def code(self) -> dict[str, Path]:
        return loaded_files()

    @property
    def ranks(self) -> int:
        return world().size if isinstance(self.request.config.parallel, DataParallel) else 1

    @property
    def cores(self) -> list[int]:
        return [*self.request.cores] or super().cores


class Stopwatch(Callback):
    """Seconds from its creation to the start of training and to the first loss, and the total of all steps."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._begin = self._step = 0.0
        self.first_loss_seconds: float | None = None
        self.train_seconds = 0.0

    def begin(self, run_context: RunContext) -> None:
        self._begin = time.perf_counter()

    def step_begin(self, run_context: RunContext) -> None:
        self._step = time.perf_counter()

    def step_end(self, run_context: RunContext) -> None:
        end = time.perf_counter()
        self.train_seconds += end - self._step
        if self.first_loss_seconds is None:
            self.first_loss_seconds = end - self._start

    def sink_left(self, run_context: RunContext) -> None:
        self.step_end(run_context)

    @property
    def init_seconds(self) -> float:
        """Seconds until training began."""
        return self._begin - self._start


def number(value: object) -> float:
    """The shortest decimal that is read back as the same value of the same precision; of an array, its only element.

    >>> import numpy as np
    >>> number(np.float32(0.1))
    0.1
    """
    return float(str(np.asarray(value).reshape(())[()]))


class RunDescription:
    """Identity, manifest and summary of a run; `before` is the progress recorded by the checkpoint that it resumes,
    `before_arrays` are the arrays of callbacks there; `prints` is the print file.

    `data` are the datasets by split, `metrics` those of the last evaluation.
    """

    def __init__(
        self, subject: Subject, experiment: Experiment, data: Mapping[str, Dataset], stopwatch: Stopwatch
    ) -> None:
        self.subject, self.experiment, self.stopwatch = subject, experiment, stopwatch
        self.before: dict[str, Any] = {}
        self.before_arrays: Mapping[str, np.ndarray] = {}
        self.prints: PrintFile | None = None
        self.metrics = experiment.model.metrics
        self._data = {split: (dataset, "") for split, dataset in data.items()}

    def add_data(self, split: str, dataset: Dataset) -> bool:
        """Another dataset of the run, for its manifest; whether it is new."""
        if split in self._data and self._data[split][0] is dataset:
            return False
        self._data[split] = dataset, ""
        return True

    @property
    def data(self) -> dict[str, str]:
        """sha256 of the data, by split; computed once."""
        self._data = {split: (data, known or data.fingerprint()) for split, (data, known) in self._data.items()}
        return {split: known for split, (_, known) in self._data.items()}

    @cached_property
    def code(self) -> dict[str, str]:
        """sha256 of the files of the user's code, by path."""
        return hashes(self.subject.code)

    @cached_property
    def network(self) -> dict[str, str]:
        """sha256 of the files that the network was made from, by name; {} for most networks."""
        return {path.name: sha256(path) for path in self.experiment.model.network.source_files}

    @cached_property
    def packages(self) -> dict[str, str]:
        """Versions of the packages that compute the run; cached, since reading them is slow."""
        return packages()

    @property
    def providers(self) -> list[str]:
        """The execution providers of the steps."""
        programs = self.experiment.model.programs
        return list(programs[0].session.providers) if programs else list(self.before.get("providers", ["numpy"]))

    @property
    def interactions(self) -> int:
        """Number of host-device interactions while training in this process; a sink has as many as its time needs."""
        return self.experiment.model.steps.interactions if self.experiment.model.steps else 0

    @property
    def loss_scaling(self) -> dict[str, Any]:
        """The loss scale after the last step and the number of skipped overflow steps; {} without scaling."""
        cell = self.experiment.model.train_network
        if not isinstance(cell, nn.TrainOneStepWithLossScaleCell):
            return {}
        return {"loss_scale": float(cell.scale_sense.array), "overflow_steps": int(cell.overflow_steps.array)}

    @cached_property
    def identity(self) -> dict[str, Any]:
        """The values that a resumed run must share with this one, by dotted name."""
        ranks = {RANKS: self.subject.ranks} if self.subject.ranks > 1 else {}
        code = {f"code.{name}": digest for name, digest in self.code.items()}
        network = {f"network.files.{name}": digest for name, digest in self.network.items()}
        common = flat({"data": self.data, "version": relevant_versions(self.packages)})
        threads = {"threads": self.threads} if self.is_bound_to_threads else {}
        return {**self.subject.identity, **ranks, **code, **network, **common, **threads}

    @property
    def is_bound_to_threads(self) -> bool:
        """Whether the number of threads changes bits: in graph mode with `exact=false`."""
        device = self.experiment.model.device
        return self.subject.names["mode"] == "graph" and device.target == "CPU" and not device.in_parts

    @property
    def threads(self) -> int:
        """How many threads compute a step."""
        programs = self.experiment.model.programs
        return (programs[0].session if programs else self.experiment.model).device.workers

    def manifest(self) -> dict[str, Any]:
        """Everything that the results depend on, except the machine."""
        names, programs = self.subject.names, self.experiment.model.programs
        return {
            "experiment": names["experiment"],
            **self.subject.inputs,
            "data_sha256": self.data,
            "total_steps": self.experiment.total_steps,
            **({"network_sha256": self.network} if self.network else {}),
            HASHES: self.code,
            **given(),
            "mode": names["mode"],
            "device": str(self.experiment.model.device),
            "providers": self.providers,
            "optimization_level": programs[0].session.optimization_level if programs else None,
            "threads": self.threads,
            BOUND: self.is_bound_to_threads,
            "tuning": self.experiment.tuning,
            "ranks": self.subject.ranks,
            "cores": self.subject.cores,
            "packages": self.packages,
        }

    @property
    def _class_names(self) -> dict[str, list[str]]:
        """`class_names` as text that can be read back, if the test split has them."""
        names = self.experiment.test_data.class_names
        return {} if names is None else {"class_names": [as_unicode(str(name)) for name in names]}

    def summary(self, cb_params: CallbackParameters, values: dict[str, Any]) -> dict[str, Any]:
        """The summary of a finished run; times, speed and interactions are those of this process."""
        stopwatch = self.stopwatch
        steps = cb_params.cur_step_num - int(self.before.get("global_step", 0))
        compiling = sum(program.compile_seconds for program in self.experiment.model.programs)
        return {
            "status": "ok",
            **self.subject.names,
            **_sizes(self.experiment),
            "providers": self.providers,
            "epochs": cb_params.cur_epoch_num,
            "steps": cb_params.cur_step_num,
            "host_interactions": self.interactions,
            "loss": number(cb_params.net_outputs),
            **self.loss_scaling,
            "metrics": values,
            "maximized": [name for name in values if direction_of(self.metrics[name]) == "maximize"],
            **self._class_names,
            "init_seconds": stopwatch.init_seconds,
            "compile_seconds": compiling,
            "first_loss_seconds": stopwatch.first_loss_seconds,
            "train_seconds": stopwatch.train_seconds,
            "steps_per_second": steps / (stopwatch.train_seconds - compiling) if steps else None,
            "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "run_dir": str(self.subject.folder),
        }


def _sizes(experiment: Experiment) -> dict[str, int]:
    """How many numbers the network has as parameters, and how many of these are trained; without moving statistics."""
    trainable = sum(p.size for p in experiment.model.network.trainable_params())
    return {"parameters": trainable + sum(p.size for p in experiment.roles.frozen), "trainable": trainable}


def description_of(request: RunRequest, experiment: Experiment, stopwatch: Stopwatch) -> RunDescription:
    """The description of a run with a config."""
    data = {"train": experiment.train_data, "test": experiment.test_data}
    return RunDescription(ConfiguredRun(request), experiment, data, stopwatch)


def relevant_versions(versions: dict[str, str]) -> dict[str, str]:
    """The versions of the packages that the results of a run depend on."""
    return {name: version for name, version in versions.items() if name.startswith(("runner", "numpy", "onnx"))}


def warn_of_machine(folder: Path) -> None:
    """Warn if this machine computes in another way than the one of the run in `folder` did, which nothing prevents."""
    before = read_optional(folder / rundir.MANIFEST).get(ARITHMETIC)
    if isinstance(before, dict) and (found := arithmetic.differences(before)):
        LOG.warning("the last digits may differ from those of a run on one machine: %s", found)


def _same_on_ranks(was: dict[str, Any], now: dict[str, Any]) -> bool:
    """Whether a step has the same bits on the ranks of both: they share the parts of a batch evenly."""
    batch = now.get("dataset.batch_size")
    is_whole = now.get("mode") == "graph" and now.get("device.target") != "CPU"  # cards compute whole batches
    if is_whole or not now.get("parallel.gradients_mean") or not isinstance(batch, int):
        return False
    return all(most_parts(batch) % one.get(RANKS, 1) == 0 for one in (was, now))


def check_identity(was: dict[str, Any], now: dict[str, Any]) -> None:
    """Raise ConfigError with a row for every value that differs between a run and its continuation."""
    if _same_on_ranks(was, now):
        was, now = ({name: value for name, value in one.items() if name != RANKS} for one in (was, now))
    if rows := changed_rows(without_former_defaults(was), without_former_defaults(now)):
        hint = "--force resumes anyway"
        if any(name.startswith("code.") for name in rows):
            hint += "; code/ in the run directory has the files of the run"
        raise ConfigError("the config of the run has changed", **rows, hint=hint)
