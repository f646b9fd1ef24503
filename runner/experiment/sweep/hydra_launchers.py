"""Launchers of sweep jobs (Hydra's or our process pool), and the division of cores among jobs."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, run_job
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

from runner.config import gate
from runner.config.compose import as_config_error
from runner.config.source import POOL
from runner.errors import ConfigError
from runner.experiment.sweep.cluster import ClusterLauncher, is_submitit
from runner.experiment.sweep.controller import SweepController
from runner.experiment.sweep.pool import run_all
from runner.experiment.sweep.state import Jobs
from runner.host.machine import usable_cores
from runner.validation.rules import show

BASIC = "hydra._internal.core_plugins.basic_launcher.BasicLauncher"


@dataclass(frozen=True)
class CoreShares:
    """Jobs that run at the same time (1 if the launcher does not say) and threads per job (0: all cores)."""

    at_once: int = 1
    threads: int = 0


class FilteringLauncher(Launcher):
    """Wraps a launcher so that a sweeper's batch is reduced to the pending jobs."""

    def __init__(self, inner: Any, controller: SweepController) -> None:
        self._inner, self._controller = inner, controller

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Nothing to do: the wrapped launcher is already set up."""

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run the pending jobs of a batch. Raises the errors of the launcher."""
        batch = {initial_job_idx + place: tuple(lines) for place, lines in enumerate(job_overrides)}
        jobs = self._controller.pending(batch)
        if isinstance(self._inner, PoolLauncher):
            self._inner.launch_jobs(jobs)
            return []
        if is_submitit(self._inner):
            queued = {number: name for number, name in self._controller.queued.items() if number in batch}
            ClusterLauncher(self._inner, self._controller).launch_jobs(jobs, queued)
            return []
        if f"{type(self._inner).__module__}.{type(self._inner).__name__}" == BASIC:
            return self._one_by_one(jobs)
        # Other launchers number jobs consecutively and start a batch at once: jobs in between that are done return.
        first, last = min(jobs, default=0), max(jobs, default=-1)
        lines = [batch[number] for number in range(first, last + 1)]
        return list(self._inner.launch(lines, initial_job_idx=first)) if lines else []

    def _one_by_one(self, jobs: Jobs) -> list[JobReturn]:
        returned: list[JobReturn] = []
        for number, lines in jobs.items():
            if self._controller.job.stopped():
                break
            returned += self._inner.launch([lines], initial_job_idx=number)
        return returned


class PoolLauncher:
    """`hydra/launcher=pool`: a supervised process for each job, forked from this one, at most `at_once` at a time."""

    def __init__(
        self, context: HydraContext, master: DictConfig, task: TaskFunction, at_once: int, controller: SweepController
    ) -> None:
        self._context, self._master, self._task = context, master, task
        self._at_once, self._controller = at_once, controller

    def launch_jobs(self, jobs: Jobs) -> None:
        """Run the jobs and return when all have ended. Raises KeyboardInterrupt after a signal."""
        works = [(number, partial(self._run, number, lines)) for number, lines in jobs.items()]
        run_all(works, self._at_once, self._controller.job_ended)

    def _run(self, number: int, lines: tuple[str, ...]) -> int:
        """In the job's process: compose the config and run it."""
        try:
            with as_config_error():
                config = self._context.config_loader.load_sweep_config(self._master, list(lines))
        except ConfigError as error:
            return self._controller.job.composition_failed(number, error)
        with open_dict(config):
            config.hydra.job.id = config.hydra.job.num = number
        done = run_job(
            task_function=self._task,
            config=config,
            job_dir_key="hydra.sweep.dir",
            job_subdir_key="hydra.sweep.subdir",
            hydra_context=self._context,
        )
        return int(done.return_value)


def usual_launcher(context: HydraContext, master: DictConfig, task: TaskFunction) -> Any:
    """The launcher named by the config, instantiated by Hydra. Raises ConfigError."""
    with as_config_error():
        return Plugins.instance().instantiate_launcher(hydra_context=context, task_function=task, config=master)


def is_pool(master: DictConfig) -> bool:
    """Whether the config selects our process pool."""
    return str(master.hydra.launcher._target_) == POOL


def core_shares(master: DictConfig, threads: int, jobs: int | None) -> CoreShares:
    """Divide the cores among jobs of `threads` threads each (0: an equal share); `jobs` None: count unknown.

    Raises ConfigError for an invalid number of processes.
    """
    settings, cores = master.hydra.launcher, usable_cores()
    requested = settings.get("n_jobs")
    if is_pool(master):
        at_once = min(_process_count(requested) or max(1, cores // (threads or 1)), max(1, jobs or cores))
        return CoreShares(at_once, threads or max(1, cores // at_once))
    if type(requested) is int and requested:  # joblib: -1 means all cores, -2 all but one
        at_once = requested if requested > 0 else max(1, cores + 1 + requested)
        return CoreShares(at_once, threads or max(1, cores // at_once))
    per_task = settings.get("cpus_per_task")
    return CoreShares(1, threads or (per_task if type(per_task) is int and per_task > 0 else 0))


def reject_lines(master: DictConfig) -> None:
    """Reject settings with line ends: they are lines of the shell script that submitit writes. Raises ConfigError."""
    with as_config_error():
        settings = OmegaConf.to_container(master.hydra.launcher, resolve=True)
    for key, value in gate.flatten(settings, "hydra.launcher"):
        if isinstance(value, str) and not value.isprintable():
            raise ConfigError("a setting of a launcher is one line", key=key, value=show(value))


def _process_count(requested: object) -> int | None:
    if requested is None or (type(requested) is int and requested > 0):
        return requested
    rows = {"key": "hydra.launcher.n_jobs", "value": show(requested), "allowed": "null or a whole number, at least 1"}
    raise ConfigError("not a number of processes", **rows)
