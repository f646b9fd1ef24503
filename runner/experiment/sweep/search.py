"""The sweeper behind `hydra/sweeper=optuna`: asks for trials, has them run by the launcher, tells how they ended.

A sweep that goes on asks and tells from the beginning: what ran before is in the journal and is not run again, so the
proposals are those of a sweep that nobody interrupted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from hydra.core.override_parser.types import Override

from runner.config.check import Origin
from runner.config.groups.search import SearchSettings, limit, never_evaluated, settings, space
from runner.config.groups.search_space import Dimension
from runner.config.schema import RunConfig
from runner.errors import collect_errors, raise_all
from runner.experiment.sweep.hydra_launchers import FilteringLauncher
from runner.experiment.sweep.optuna_study import Study


class Trials(Protocol):
    """Who knows how trials ended."""

    @property
    def reported_trials(self) -> int:
        """How many were told before."""

    def trial_value(self, number: int, params: Mapping[str, str], metric: str) -> float | None:
        """The value of a trial that has run; None when it failed."""

    def stopped(self) -> bool:
        """Whether no further trial may begin."""


@dataclass(frozen=True)
class Searcher:
    """Searches a space; `fixed` are the overrides that all trials have."""

    search: SearchSettings
    space: Sequence[Dimension]
    fixed: Sequence[str]

    @property
    def count(self) -> int:
        """How many trials there will be: not more than a grid has points."""
        search = self.search
        return min(search.n_trials, limit(self.space)) if search.sampler == "grid" else search.n_trials

    @property
    def at_once(self) -> int:
        """How many jobs the launcher gets at a time."""
        return min(self.search.n_jobs, self.count)

    @property
    def identity(self) -> dict[str, Any]:
        """What must be the same when the sweep goes on, as JSON."""
        search = self.search
        names = ("metric", "n_jobs", "sampler", "seed")
        return {"direction": search.wanted, **{name: getattr(search, name) for name in names}}

    def run(self, folder: Path, launcher: FilteringLauncher, trials: Trials) -> None:
        """Run all trials, so many at a time, in the folder of the sweep. Raises what the launcher raises."""
        search = self.search
        study = Study(self.space, search.wanted, search.sampler, search.seed, search.n_jobs > 1)
        if search.storage is not None:
            study.copy_to(folder / search.storage, search.study_name or folder.name, trials.reported_trials)
        first = 0
        while first < self.count and not trials.stopped():
            asked = study.ask(min(search.n_jobs, self.count - first))
            batch = [(*self.fixed, *(f"{key}={text}" for key, text in params.items())) for params in asked.values()]
            for returned in launcher.launch(batch, initial_job_idx=first):
                _ = returned.return_value  # raises what a job has raised
            if trials.stopped():
                return  # nothing of the batch is told, so that what failed can be made good
            for number, params in asked.items():
                study.tell(number, trials.trial_value(number, params, search.metric))
            first += len(asked)


def prepared(
    values: Mapping[str, Any], parsed: Sequence[Override], config: RunConfig | None, origin: Origin
) -> Searcher:
    """Who searches what the overrides leave open, by what stands below `hydra.sweeper`; `config` None: it is wrong.

    Raises ConfigError, or ConfigErrors.
    """
    search, errors = settings(values, origin)
    last = {one.key_or_group: one for one in parsed}.values()
    dimensions, wrong = collect_errors(space, last, search)
    unknown = never_evaluated(search, config) if config else None
    raise_all([*errors, *wrong, *([unknown.add(**{"from": origin("hydra.sweeper.metric")})] if unknown else [])])
    return Searcher(search, dimensions or (), [str(one.input_line) for one in last if not one.is_sweep_override()])
