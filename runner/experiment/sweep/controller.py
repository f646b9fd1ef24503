"""The controller of a sweep: which of its jobs run, and their results."""

from collections.abc import Mapping
from types import MappingProxyType

from runner.config.code import loaded_files
from runner.errors import ConfigError
from runner.experiment import code
from runner.experiment.sweep import journal
from runner.experiment.sweep.job import Job
from runner.experiment.sweep.state import Jobs, Outcome, SweepState, settle
from runner.experiment.sweep.table import ended_line

DIED = "SweepError: the process of the job ended unexpectedly"


class SweepController:
    """Decides which jobs of a sweep run, receives their results, and writes journal rows that jobs cannot write."""

    def __init__(
        self, state: SweepState, fail_fast: bool, force: bool, queued: Mapping[int, str] = MappingProxyType({})
    ) -> None:
        self.state, self.queued = state, queued  # jobs that an earlier call has submitted: number to id
        expected = code.hashes(loaded_files())
        self.job = Job(state.folder.absolute(), state.done(), fail_fast, force, expected)

    def pending(self, batch: Jobs) -> Jobs:
        """The jobs of a batch that still have to run. Raises ConfigError when the batch differs from the journal's."""
        known = self.state.jobs
        jobs = {
            number: tuple(line for line in lines if not key_of(line).startswith("sweep."))
            for number, lines in batch.items()
        }
        if new := {number: lines for number, lines in jobs.items() if number not in known}:
            journal.append(self.state.folder, "jobs", first=min(new), overrides=list(new.values()))
            self.state.update()
        changed = {f"#{number}": " ".join(known[number]) for number, lines in jobs.items() if known[number] != lines}
        if changed:
            raise ConfigError("the jobs of the sweep have changed", **changed)
        started = {*self.job.done, *self.queued}
        return {number: lines for number, lines in batch.items() if number not in started}

    def trial_value(self, number: int, params: Mapping[str, str], metric: str) -> float | None:
        """The value of a job for the search: the one reported before, or else that of the job's outcome.

        A job that had failed when it was reported keeps that value after a successful rerun, since later proposals
        depend on it.
        """
        self.state.update()
        if number not in self.state.trials:
            value = self.state.outcome(number).value(metric)
            ending = "failed" if value is None else "complete"
            journal.append(self.state.folder, "trial", job=number, params=dict(params), state=ending, value=value)
            self.state.update()
        found: float | None = self.state.trials[number]["value"]
        return found

    def job_ended(self, number: int, code: int) -> bool:
        """Record that the process of a job has ended; whether to stop the other jobs."""
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        outcome = self.job_left(number, f"{DIED} ({how})")
        return self.job.fail_fast and outcome.status in ("failed", "killed")

    def job_left(self, number: int, reason: str = DIED) -> Outcome:
        """Record that a job no longer runs, with the reason if it could not record its own end, and print it."""
        self.state.update()
        if number not in self.state.ended:
            settle(self.state, [number], reason)
            self.state.update()
        outcome = self.state.outcome(number)
        print(ended_line(outcome), flush=True)  # noqa: T201
        return outcome


def key_of(line: str) -> str:
    """The key of an override."""
    return line.lstrip("+").partition("=")[0]
