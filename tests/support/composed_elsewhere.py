"""`runner` with a launcher that composes a job's config here and runs it in a new process, as Ray does."""

import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import cloudpickle
from hydra.core.singleton import Singleton
from hydra.core.utils import run_job
from omegaconf import open_dict

from runner import cli
from runner.experiment.sweep import launchers

WORKER = "import pickle, sys; pickle.load(sys.stdin.buffer)()"


class Elsewhere:
    """A launcher of Hydra."""

    def __init__(self, context: Any, master: Any, task: Any) -> None:
        self.context, self.master, self.task = context, master, task

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> list[Any]:
        """Run the jobs, one after the other."""
        for number, lines in enumerate(job_overrides, initial_job_idx):
            config = self.context.config_loader.load_sweep_config(self.master, list(lines))
            with open_dict(config):
                config.hydra.job.id = config.hydra.job.num = number
            keys = {"job_dir_key": "hydra.sweep.dir", "job_subdir_key": "hydra.sweep.subdir"}
            job = partial(run_job, hydra_context=self.context, task_function=self.task, config=config, **keys)
            work = cloudpickle.dumps(partial(_work, job, Singleton.get_state()))
            subprocess.run([sys.executable, "-c", WORKER], input=work, check=True)
        return []


def _work(job: Any, state: Any) -> None:
    Singleton.set_state(state)
    job()


if __name__ == "__main__":
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    launchers.usual_launcher = Elsewhere  # type: ignore[assignment]
    sys.exit(cli.main(sys.argv[1:]))
