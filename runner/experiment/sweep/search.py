"""The sweeper behind `hydra/sweeper=optuna`: gets proposals from a study, launches them, and reports their values.

A resumed sweep repeats this from the first trial, with recorded values instead of runs, so its proposals are those of
an uninterrupted sweep.
"""

import importlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Override

from runner.config.check import Origin
from runner.config.groups.search import Choice, Dimension, SearchSettings, never_evaluated, point_count, settings, space
from runner.config.schema import RunConfig
from runner.errors import collect_errors, raise_all
from runner.experiment.sweep.controller import SweepController
from runner.experiment.sweep.launchers import FilteringLauncher
from runner.host.files import Journal, make_directory, remove, storage_errors
from runner.rundir import is_lock_of_optuna

# An Optuna study: proposes trials and receives their values. The only file that uses Optuna.
#
# Its proposals depend on the seed and the reported values only, in the order of trials. So a new study with the same
# requests and values continues as the first one would have.


class Study:
    """Proposes trials of a space, numbered from 0, to `maximize` or `minimize` a value (`direction`).

    `sampler` is one of SAMPLERS; with `several`, trials are requested while the values of others are pending.
    """

    def __init__(
        self, dimensions: Sequence[Dimension], direction: str, sampler: str, seed: int, several: bool = False
    ) -> None:
        self._dimensions = {one.key: one for one in dimensions}
        with _quiet() as optuna:
            self._distributions = {one.key: _distribution(optuna, one) for one in dimensions}
            chosen = _sampler(optuna, dimensions, sampler, seed, several)
            self._study = optuna.create_study(direction=direction, sampler=chosen)
        self._running: dict[int, Any] = {}
        self._copy: _Copy | None = None

    def propose(self, count: int) -> dict[int, dict[str, str]]:
        """The next `count` trials: by number, the text of each key."""
        with _quiet():
            trials = [self._study.ask(self._distributions) for _ in range(count)]
        self._running |= {trial.number: trial for trial in trials}
        return {trial.number: self._texts(trial.params) for trial in trials}

    def report(self, number: int, value: float | None) -> None:
        """Report the value of a trial, None when it failed. Raises StorageError when a copy cannot be written."""
        with _quiet() as optuna:
            state = optuna.trial.TrialState.FAIL if value is None else None
            trial = self._study.tell(self._running.pop(number), value, state=state)
            if self._copy is not None:
                self._copy.add(trial)

    def copy_to(self, file: Path, name: str) -> None:
        """From now on also write all trials to a file in Optuna's journal format, for its tools, in place of what is
        there. Raises StorageError."""
        with _quiet() as optuna:
            self._copy = _Copy(optuna, file, name, self._study.direction)

    def close(self) -> None:
        """Complete the copy. Raises StorageError."""
        if self._copy is not None:
            self._copy.journal.close()

    def _texts(self, params: Mapping[str, Any]) -> dict[str, str]:
        return {key: self._dimensions[key].text(value) for key, value in params.items()}


class _Copy:
    """A study in a file, which is written and never read; Optuna's own class would lock it, and stay locked by a kill.

    It is the backend of Optuna's `JournalStorage`, so two of its methods have the names that Optuna calls.
    """

    def __init__(self, optuna: Any, file: Path, name: str, direction: Any) -> None:
        self._rows: list[dict[str, Any]] = []
        self.journal = Journal(make_directory(file.parent) / file.name)
        self.journal.cut(0)
        if is_lock_of_optuna(lock := f"{file}.lock"):
            with storage_errors("cannot remove a stale lock", Path(lock)):
                remove(Path(lock))
        storage = optuna.storages.JournalStorage(self)
        self._study = optuna.create_study(storage=storage, study_name=name, direction=direction)

    def add(self, trial: Any) -> None:
        """Add a trial that has ended."""
        self._study.add_trial(trial)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Add rows; called by Optuna."""
        self._rows += logs
        for row in logs:
            self.journal.append(row)

    def read_logs(self, log_number_from: int) -> list[dict[str, Any]]:
        """The rows from a number on; called by Optuna."""
        return self._rows[log_number_from:]


def _distribution(optuna: Any, one: Dimension) -> Any:
    kinds = optuna.distributions
    if isinstance(one, Choice):
        return kinds.CategoricalDistribution(one.texts)
    if one.integral:
        return kinds.IntDistribution(int(one.low), int(one.high), log=one.log, step=int(one.step or 1))
    return kinds.FloatDistribution(one.low, one.high, log=one.log, step=one.step)


def _sampler(optuna: Any, dimensions: Sequence[Dimension], name: str, seed: int, several: bool) -> Any:
    kinds = optuna.samplers
    if name == "grid":
        sampler = kinds.GridSampler({one.key: one.points() for one in dimensions}, seed=seed)
        vars(sampler)["after_trial"] = lambda *_: None  # it would stop Optuna's own loop, which does not run here
        return sampler
    return kinds.RandomSampler(seed=seed) if name == "random" else kinds.TPESampler(seed=seed, constant_liar=several)


@contextmanager
def _quiet() -> Iterator[Any]:
    """Optuna's module, inside without its log and warnings, which are about experimental and deprecated names."""
    optuna = importlib.import_module("optuna")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        try:
            yield optuna
        finally:
            optuna.logging.set_verbosity(before)


# The sweeper.


@dataclass(frozen=True)
class Searcher:
    """Searches a space; all trials have the overrides `fixed`."""

    search: SearchSettings
    space: Sequence[Dimension]
    fixed: Sequence[str]

    @property
    def count(self) -> int:
        """Number of trials: at most the number of points of a grid."""
        search = self.search
        return min(search.n_trials, point_count(self.space)) if search.sampler == "grid" else search.n_trials

    @property
    def at_once(self) -> int:
        """Number of jobs per batch."""
        return min(self.search.n_jobs, self.count)

    @property
    def identity(self) -> dict[str, Any]:
        """The settings that must be unchanged when the sweep is resumed, as JSON."""
        search = self.search
        names = ("metric", "n_jobs", "sampler", "seed")
        return {"direction": search.resolved_direction, **{name: getattr(search, name) for name in names}}

    def run(self, folder: Path, launcher: FilteringLauncher, controller: SweepController) -> None:
        """Run all trials, in batches, in the folder of the sweep. Raises the errors of the launcher."""
        search = self.search
        study = Study(self.space, search.resolved_direction, search.sampler, search.seed, search.n_jobs > 1)
        with closing(study):
            if search.storage is not None:
                study.copy_to(folder.absolute() / search.storage, search.study_name or folder.name)
            self._run(study, launcher, controller)

    def _run(self, study: Study, launcher: FilteringLauncher, controller: SweepController) -> None:
        search, first = self.search, 0
        while first < self.count and not controller.job.stopped():
            trial_params = study.propose(min(search.n_jobs, self.count - first))
            texts = ([f"{key}={text}" for key, text in params.items()] for params in trial_params.values())
            batch = [(*self.fixed, *lines) for lines in texts]
            for returned in launcher.launch(batch, initial_job_idx=first):
                _ = returned.return_value  # raises the error of the job
            if controller.job.stopped():
                return  # without reporting the batch, so that failed jobs can still succeed when resumed
            for number, params in trial_params.items():
                study.report(number, controller.trial_value(number, params, search.metric))
            first += len(trial_params)


def prepared(
    values: Mapping[str, Any], parsed: Sequence[Override], config: RunConfig | None, origin: Origin
) -> Searcher:
    """A searcher of the swept overrides, with the settings `hydra.sweeper`; `config` is None when it is invalid.

    Raises ConfigError, or ConfigErrors.
    """
    search, errors = settings(values, origin)
    last = {one.key_or_group: one for one in parsed}.values()
    dimensions, wrong = collect_errors(space, last, search)
    unknown = never_evaluated(search, config) if config else None
    raise_all([*errors, *wrong, *([unknown.add(**{"from": origin("hydra.sweeper.metric")})] if unknown else [])])
    return Searcher(search, dimensions or (), [str(one.input_line) for one in last if not one.is_sweep_override()])
