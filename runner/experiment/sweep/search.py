"""The sweeper behind `hydra/sweeper=optuna`: gets proposals from a study, launches them, and reports their values.

A resumed sweep repeats this from the first trial, with recorded values instead of runs, so its proposals are those of
an uninterrupted sweep.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Override

from runner.config.check import Origin
from runner.config.groups.search import Dimension, SearchSettings, never_evaluated, point_count, settings, space
from runner.config.schema import RunConfig
from runner.errors import collect_errors, raise_all
from runner.experiment.sweep.controller import SweepController
from runner.experiment.sweep.hydra_launchers import FilteringLauncher
from runner.experiment.sweep.optuna_study import Study


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
        if search.storage is not None:
            study.copy_to(folder / search.storage, search.study_name or folder.name, len(controller.state.trials))
        first = 0
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
