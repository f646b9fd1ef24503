"""Jobs of a sweep that submitit submits: `hydra/launcher=submitit_slurm`, or `submitit_local` for processes here.

The journal has the id that each job got from its cluster, so a sweep that is resumed knows which of its jobs still wait
or run there, and waits for them instead of submitting them again.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from hydra.core.singleton import Singleton

from runner.errors import ConfigError, StorageError
from runner.experiment.sweep import journal, slurm_queue
from runner.experiment.sweep.controller import SweepController
from runner.experiment.sweep.state import Jobs
from runner.host.console import LOG

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
                listed = slurm_queue.listed() if self._cluster == SLURM else frozenset()
            except StorageError as error:  # the controller of the cluster is busy or restarts
                LOG.warning("%s", error)
                continue
            for number in [number for number, ended in waiting.items() if ended(listed)]:
                del waiting[number]
                self._controller.job_left(number)


def queued_jobs(submitted: Mapping[int, str]) -> dict[int, str]:
    """Those of the submitted jobs, with their ids, that still wait or run in Slurm's queue. Raises as `listed`."""
    listed = slurm_queue.listed() if submitted else frozenset()
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
