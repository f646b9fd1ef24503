"""One job of a sweep, called by a launcher in the job's folder, in this process or another one."""

import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from runner.config.schema import RunRequest
from runner.errors import ConfigError, RunnerError
from runner.experiment import launch, output_directories
from runner.experiment.code import refuse_other
from runner.experiment.run import CONFIG_FILE
from runner.experiment.status import STATUS_FILE
from runner.experiment.sweep import journal, state
from runner.host import json
from runner.host.process import PREEMPTION, Preempted, exit_code, stopped_by_signals
from runner.train.checkpoint.state import sweep_temporaries

SKIPPED = 0


@dataclass(frozen=True)
class Job:
    """Runs jobs of the sweep in `sweep` and writes their journal rows; launchers copy it into other processes.

    Jobs in `done` are not run again; with `fail_fast` none starts after one has failed. `force` resumes runs whose
    config has changed. `code` are the hashes of the user's files with which all of them run, in whatever process.
    """

    sweep: Path
    done: frozenset[int] = frozenset()
    fail_fast: bool = False
    force: bool = False
    code: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, number: int, request: RunRequest, wrong: ConfigError | None) -> int:
        """Run or resume one job and return its exit code; `wrong` is the error of its config.

        Raises KeyboardInterrupt when a signal stops it, StorageError when the journal cannot be written. After the
        signal of a cluster this process ends, and submitit requeues the job as `hydra.launcher.max_num_timeout` allows.
        """
        if number in self.done or self.stopped():
            return SKIPPED
        self._begin(number, request.folder)
        try:
            with stopped_by_signals(), launch.run_status(request := self._resumed(request)):
                if wrong is not None:
                    raise wrong
                refuse_other("the code of the job is not that of its sweep", self.code)
                sweep_temporaries(request.folder)
                request = replace(request, directories=output_directories.claim(request, self.sweep, number))
                summary = launch.execute(request)
        except RunnerError as error:
            return self.failed(number, request.folder, error)
        except KeyboardInterrupt as stop:
            state.end(self.sweep, number, request.folder, "interrupted", exit_code(stop))
            if isinstance(stop, Preempted):
                signal.raise_signal(PREEMPTION)  # submitit's handler, with everything saved
            raise
        state.end(self.sweep, number, request.folder, summary=summary)
        return 0

    def stopped(self) -> bool:
        """Whether no further job may start."""
        if not self.fail_fast:
            return False
        known = state.SweepState(self.sweep)
        known.update()
        return known.failed()

    def composition_failed(self, number: int, error: RunnerError) -> int:
        """Record a job whose config could not be composed, and return its exit code."""
        folder = self.sweep / str(number)
        self._begin(number, folder)
        return self.failed(number, folder, error)

    def failed(self, number: int, folder: Path, error: RunnerError) -> int:
        """Record and print that a job failed, and return its exit code."""
        print(f"job {number} failed\n{error}", file=sys.stderr, flush=True)  # noqa: T201  maybe in another process
        state.end(self.sweep, number, folder, "failed", error.exit_code, error=str(error))
        return error.exit_code

    def _begin(self, number: int, folder: Path) -> None:
        journal.append(self.sweep, "start", job=number, folder=state.relative(folder, self.sweep), pid=os.getpid())

    def _resumed(self, request: RunRequest) -> RunRequest:
        """The request, which resumes the run in the folder if there is one. Raises ConfigError for another config."""
        if not (request.folder / CONFIG_FILE).exists() or not (request.folder / STATUS_FILE).exists():
            return request
        before = json.read_object(request.folder / CONFIG_FILE)
        if not self.force:
            state.refuse_changes("the config of the job has changed", before, request.resolved)
        return replace(request, resume=True, force=self.force)
