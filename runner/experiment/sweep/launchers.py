"""Launchers of sweep jobs (Hydra's or our process pool), and the division of cores among jobs."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from hydra.core.plugins import Plugins
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, run_job
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

from runner.config import gate
from runner.config.compose import as_config_error
from runner.config.source import POOL
from runner.errors import ConfigError, StorageError
from runner.experiment.sweep import journal
from runner.experiment.sweep.controller import SweepController
from runner.experiment.sweep.journal import Jobs
from runner.experiment.sweep.pool import run_all
from runner.host.console import LOG
from runner.host.machine import usable_cores
from runner.validation.rules import show

# The jobs that wait or run in Slurm's queue, as `squeue` lists them.

SECONDS = 60  # to answer


def listed_jobs() -> frozenset[str]:
    """The ids of this user's jobs that have not ended, elements of arrays as `12_3`.

    Raises ConfigError where there is no Slurm, StorageError when its controller does not answer.
    """
    what, hint = "Slurm's queue cannot be read", "--force does not read it and submits all jobs that are not done"
    if shutil.which("squeue") is None:
        raise ConfigError(what, missing="squeue", repair="resume on a machine of the cluster", hint=hint)
    command = ["squeue", "--noheader", "--array", "--format=%i", f"--user={os.getuid()}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise StorageError(what, reason=f"squeue did not answer in {SECONDS} s", hint=hint) from None
    if done.returncode:
        reason = done.stderr.strip().partition("\n")[0] or f"squeue ended with {done.returncode}"
        raise StorageError(what, reason=reason, hint=hint)
    return frozenset(done.stdout.split())


# Jobs of a sweep that submitit submits: `hydra/launcher=submitit_slurm`, or `submitit_local` for processes here.
#
# The journal has the id that each job got from its cluster, so a sweep that is resumed knows which of its jobs still
# wait or run there, and waits for them instead of submitting them again.

MODULE = "hydra_plugins.hydra_submitit_launcher.submitit_launcher"
SLURM = "slurm"
POLL_SECONDS = 2.0
OF_EXECUTOR = ("max_num_timeout",)  # arguments of submitit's executor, not of the job


def is_submitit(launcher: Any) -> bool:
    """Whether this launcher of Hydra submits through submitit."""
    return type(launcher).__module__ == MODULE


class ClusterLauncher:
    """Submits jobs with the settings of one of Hydra's submitit launchers, and waits until all have ended."""

    def __init__(self, inner: Any, controller: SweepController) -> None:
        self._inner, self._controller = inner, controller
        self._cluster = str(inner._EXECUTOR)

    def launch_jobs(self, jobs: Jobs, queued: Mapping[int, str]) -> None:
        """Submit the jobs, and wait for them and for those that are `queued` already, with their ids."""
        if queued:
            listed = ", ".join(f"{number} ({name})" for number, name in queued.items())
            print(f"waiting for jobs in Slurm's queue: {listed}", flush=True)  # noqa: T201
        waiting = {number: _slurm_ended(name) for number, name in queued.items()}
        for number, job in self._submit(jobs).items() if jobs else ():
            name = str(job.job_id)
            journal.append(self._controller.state.folder, "submit", job=number, cluster=self._cluster, id=name)
            waiting[number] = _slurm_ended(name) if self._cluster == SLURM else _local_ended(job)
        try:
            self._wait(waiting)
        except KeyboardInterrupt:
            if self._cluster == SLURM and waiting:
                self._controller.state.update()
                names = (self._controller.state.submitted[number] for number in waiting)
                LOG.warning("its jobs stay in the queue; scancel %s ends them", " ".join(names))
            raise

    def _submit(self, jobs: Jobs) -> dict[int, Any]:
        """submitit's jobs by number. As the plugin does, whose launcher is the function of each job."""
        import submitit
        from hydra_plugins.hydra_submitit_launcher.config import BaseQueueConf

        common = {field.name for field in fields(BaseQueueConf)}
        settings = dict(self._inner.params)
        folder = settings.pop("submitit_folder")
        first = {f"{self._cluster}_{name}": settings.pop(name) for name in OF_EXECUTOR if name in settings}
        executor = submitit.AutoExecutor(folder=folder, cluster=self._cluster, **first)
        names = {name: name if name in common else f"{self._cluster}_{name}" for name in settings}
        executor.update_parameters(**{names[name]: value for name, value in settings.items()})
        arguments = [
            (list(lines), "hydra.sweep.dir", number, f"job_id_for_{number}", Singleton.get_state())
            for number, lines in jobs.items()
        ]
        try:
            submitted = executor.map_array(self._inner, *zip(*arguments, strict=True))
        except submitit.core.utils.FailedJobError as error:
            reason = str(error).strip().partition("\n")[0]
            raise ConfigError("the cluster does not accept the jobs", cluster=self._cluster, reason=reason) from None
        return dict(zip(jobs, submitted, strict=True))

    def _wait(self, waiting: dict[int, Callable[[frozenset[str]], bool]]) -> None:
        while waiting:
            time.sleep(POLL_SECONDS)
            try:
                listed = listed_jobs() if self._cluster == SLURM else frozenset()
            except StorageError as error:  # the controller of the cluster is busy or restarts
                LOG.warning("%s", error)
                continue
            for number in [number for number, ended in waiting.items() if ended(listed)]:
                del waiting[number]
                self._controller.job_left(number)


def queued_jobs(submitted: Mapping[int, str]) -> dict[int, str]:
    """Those of the submitted jobs, with their ids, that still wait or run in Slurm's queue. Raises as `listed`."""
    listed = listed_jobs() if submitted else frozenset()
    return {number: name for number, name in submitted.items() if name in listed}


def refuse_other_launcher(launcher: str, queued: Mapping[int, str]) -> None:
    """Raise ConfigError when jobs are in Slurm's queue and another launcher shall run the sweep."""
    if queued and not launcher.endswith("SlurmLauncher"):
        jobs = " ".join(f"{number} ({name})" for number, name in queued.items())
        repair = f"resume with hydra/launcher=submitit_slurm, or scancel {' '.join(queued.values())}"
        raise ConfigError("jobs of the sweep are in Slurm's queue", launcher=launcher, jobs=jobs, repair=repair)


def _slurm_ended(name: str) -> Callable[[frozenset[str]], bool]:
    return lambda listed: name not in listed


def _local_ended(job: Any) -> Callable[[frozenset[str]], bool]:
    return lambda listed: bool(job.done())


# The choice of a launcher, and the division of cores among jobs.

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
