"""Who runs the jobs of a sweep: one of Hydra's launchers, or our pool; and how they share the cores."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, run_job
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict

from runner.config.loader import POOL, as_config_error
from runner.errors import ConfigError, RunnerError
from runner.experiment.sweep.pool import run_all
from runner.host.machine import usable_cores
from runner.validation.validate import show

BASIC = "hydra._internal.core_plugins.basic_launcher.BasicLauncher"
Jobs = dict[int, tuple[str, ...]]


@dataclass(frozen=True)
class Shares:
    """How many jobs run at once, where the launcher tells, and how many threads each of them gets; 0 for all cores."""

    at_once: int = 1
    threads: int = 0


class Wanted(Launcher):
    """Stands between a sweeper and a launcher, and lets through the jobs that are still wanted.

    `wanted` is told a batch by its numbers and returns those that are to run; `stopped` whether no more shall begin.
    """

    def __init__(self, inner: Any, wanted: Callable[[Jobs], Jobs], stopped: Callable[[], bool]) -> None:
        self._inner, self._wanted, self._stopped = inner, wanted, stopped

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """The launcher behind it is set up already."""

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run what is wanted of a batch. Raises what the launcher raises."""
        batch = {initial_job_idx + place: tuple(lines) for place, lines in enumerate(job_overrides)}
        jobs = self._wanted(batch)
        if isinstance(self._inner, PoolLauncher):
            self._inner.launch_jobs(jobs)
            return []
        if f"{type(self._inner).__module__}.{type(self._inner).__name__}" == BASIC:
            return self._one_by_one(jobs)
        # The others number jobs in sequence and start all of a batch together: those between that are done return.
        first, last = min(jobs, default=0), max(jobs, default=-1)
        lines = [batch[number] for number in range(first, last + 1)]
        return list(self._inner.launch(lines, initial_job_idx=first)) if lines else []

    def _one_by_one(self, jobs: Jobs) -> list[JobReturn]:
        returned: list[JobReturn] = []
        for number, lines in jobs.items():
            if self._stopped():
                break
            returned += self._inner.launch([lines], initial_job_idx=number)
        return returned


class PoolLauncher:
    """`hydra/launcher=pool`: a supervised process for each job, forked from this one, `at_once` at a time.

    `refused` is told what is wrong with a job that cannot be composed and returns an exit code; `ended` the number of
    a job and the return code of its process, and returns whether the others shall be stopped.
    """

    def __init__(
        self,
        context: HydraContext,
        master: DictConfig,
        task: TaskFunction,
        at_once: int,
        refused: Callable[[int, RunnerError], int],
        ended: Callable[[int, int], bool],
    ) -> None:
        self._context, self._master, self._task = context, master, task
        self._at_once, self._refused, self._ended = at_once, refused, ended

    def launch_jobs(self, jobs: Jobs) -> None:
        """Run the jobs and return when all have ended. Raises KeyboardInterrupt when a signal ended them."""
        works = [(number, partial(self._run, number, lines)) for number, lines in jobs.items()]
        run_all(works, self._at_once, self._ended)

    def _run(self, number: int, lines: tuple[str, ...]) -> int:
        """In a process of its own: compose the job and run it."""
        try:
            with as_config_error():
                config = self._context.config_loader.load_sweep_config(self._master, list(lines))
        except ConfigError as error:
            return self._refused(number, error)
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
    """The launcher that the config names, as Hydra makes it. Raises ConfigError."""
    with as_config_error():
        return Plugins.instance().instantiate_launcher(hydra_context=context, task_function=task, config=master)


def is_pool(master: DictConfig) -> bool:
    """Whether the config asks for our own launcher."""
    return str(master.hydra.launcher._target_) == POOL


def shares(master: DictConfig, threads: int, jobs: int | None) -> Shares:
    """How the cores are divided among jobs that want so many threads each (0: their share); `jobs` None: not known.

    Raises ConfigError for a number of processes that makes no sense.
    """
    settings, cores = master.hydra.launcher, usable_cores()
    asked = settings.get("n_jobs")
    if is_pool(master):
        at_once = min(_count(asked) or max(1, cores // (threads or 1)), max(1, jobs or cores))
        return Shares(at_once, threads or max(1, cores // at_once))
    if type(asked) is int and asked:  # joblib: -1 means all cores, -2 all but one
        at_once = asked if asked > 0 else max(1, cores + 1 + asked)
        return Shares(at_once, threads or max(1, cores // at_once))
    each = settings.get("cpus_per_task")
    return Shares(1, threads or (each if type(each) is int and each > 0 else 0))


def _count(asked: object) -> int | None:
    if asked is None or (type(asked) is int and asked > 0):
        return asked
    rows = {"key": "hydra.launcher.n_jobs", "value": show(asked), "allowed": "null or a whole number, at least 1"}
    raise ConfigError("not a number of processes", **rows)
