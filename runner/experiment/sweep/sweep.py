"""A sweep from its first job to its table, and again from where it ended too early."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.config.command_line import CommandLine
from runner.config.groups import search_space
from runner.errors import ConfigError, RunnerError
from runner.experiment import launch
from runner.experiment.manifest import config_hash
from runner.experiment.sweep import best, journal
from runner.experiment.sweep.hydra_launchers import Jobs
from runner.experiment.sweep.hydra_plan import SweepPlan, plan
from runner.experiment.sweep.job import Job
from runner.experiment.sweep.state import Outcome, SweepState, refuse_changes, settle
from runner.experiment.sweep.table import ended_line, show
from runner.host import files
from runner.host.machine import packages

MAY_CHANGE = ("sweep.", "hydra.launcher.", "hydra/launcher", "hydra.sweeper.n_trials")
DIED = "SweepError: the process of the job ended without a word"


class SweepError(RunnerError):
    """Some jobs of a sweep failed; the others ran."""

    exit_code = 8
    outcomes: Sequence[Outcome] = ()  # of all jobs


def start(call: CommandLine) -> list[Outcome]:
    """Run every job of a sweep, whatever happens to the others, and print the table.

    Raises ConfigError before anything is written, SweepError at the end when some jobs failed, KeyboardInterrupt when a
    signal stopped the sweep.
    """
    made = plan(call)
    with launch.stopped_by_signals():
        folder = launch.claim(made.folder, made.folder_given)
        with files.locked(folder / launch.LOCK_FILE):
            config = _base(made)
            journal.append(
                folder,
                "sweep",
                version=journal.VERSION,
                call=_words(call),
                config=config,
                config_sha256=config_hash(config),
                threads=made.shares.threads,
            )
            return _conduct(made, folder, force=False)


def resume(folder: Path, lines: Sequence[str] = (), force: bool = False) -> list[Outcome]:
    """Run what is missing of the sweep in `folder`: jobs that never began, that failed or that were interrupted.

    `lines` may choose another launcher, `sweep.fail_fast`, or how many trials a search has. Raises ConfigError when
    this is no sweep or when its config has changed (unless `force`), BusyError while it is running, and otherwise as
    `start`.
    """
    state = SweepState(folder)
    state.update()
    call = _again(state.header["call"], lines)
    with launch.stopped_by_signals(), files.locked(folder / launch.LOCK_FILE):
        state.update()  # what was written before the folder was ours
        made = plan(call)
        if not force:
            refuse_changes("the sweep would not go on as it began", state.header["config"], _base(made))
        settle(state, [number for number in state.started if number not in state.ended], DIED)
        journal.append(folder, "resume", overrides=list(lines))
        return _conduct(made, folder, force)


def _conduct(made: SweepPlan, folder: Path, force: bool) -> list[Outcome]:
    state = SweepState(folder)
    state.update()
    controller = _Controller(state, made.config.sweep.fail_fast, force)
    try:
        made.run(folder, state.header["threads"], controller)
    except KeyboardInterrupt:
        print(f"the sweep goes on with: runner resume {folder}", file=sys.stderr)  # noqa: T201
        raise
    state.update()
    outcomes = state.outcomes()
    show(outcomes, folder)
    if state.search:
        _tell_best(outcomes, state)
    _raise_failed(outcomes, folder)
    return outcomes


def _tell_best(outcomes: Sequence[Outcome], state: SweepState) -> None:
    search = state.search or {}
    found = best.best(outcomes, search)
    if found is not None:
        best.write(state.folder, found, search)
        print(best.sentence(found, outcomes, search))  # noqa: T201


def _raise_failed(outcomes: Sequence[Outcome], folder: Path) -> None:
    failed = [one for one in outcomes if one.status in ("failed", "killed")]
    rest = sum(one.status != "ok" for one in outcomes) - len(failed)
    if failed or rest:
        text = f"{len(failed)} of {len(outcomes)} jobs failed"
        error = SweepError(f"{text}, {rest} did not end" if rest else text)
        error.outcomes = tuple(outcomes)
        raise error.add(**{f"#{one.number}": _block(one) for one in failed}, hint=f"runner resume {folder}")


class _Controller:
    """Decides what is run, and keeps the journal where jobs cannot."""

    def __init__(self, state: SweepState, fail_fast: bool, force: bool) -> None:
        self.state = state
        self.job = Job(state.folder.absolute(), state.done(), fail_fast, force)

    def composition_failed(self, number: int, error: RunnerError) -> int:
        """A job that could not be composed."""
        return self.job.composition_failed(number, error)

    def pending(self, batch: Jobs) -> Jobs:
        """What is to run of a batch. Raises ConfigError when it is another one than before."""
        known = self.state.jobs
        jobs = {
            number: tuple(line for line in lines if not _key(line).startswith("sweep."))
            for number, lines in batch.items()
        }
        if new := {number: lines for number, lines in jobs.items() if number not in known}:
            journal.append(self.state.folder, "jobs", first=min(new), overrides=list(new.values()))
            self.state.update()
        changed = {f"#{number}": " ".join(known[number]) for number, lines in jobs.items() if known[number] != lines}
        if changed:
            raise ConfigError("the sweep has other jobs than when it began", **changed)
        return {number: lines for number, lines in batch.items() if number not in self.job.done}

    def stopped(self) -> bool:
        """Whether no further job may begin."""
        return self.job.stopped()

    @property
    def reported_trials(self) -> int:
        """How many jobs a search was told of."""
        return len(self.state.trials)

    def trial_value(self, number: int, params: Mapping[str, str], metric: str) -> float | None:
        """What a job is worth to a search: what it was told before, or else how the job has ended.

        A job that failed then and is well now stays as it was told, since later proposals came of that.
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
        """The process of a job has ended; it has written its row, if it could."""
        self.state.update()
        if number not in self.state.ended:
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            settle(self.state, [number], f"{DIED} ({how})")
            self.state.update()
        outcome = self.state.outcome(number)
        print(ended_line(outcome), flush=True)  # noqa: T201
        return self.job.fail_fast and outcome.status in ("failed", "killed")


def _block(outcome: Outcome) -> str:
    """The row of a failed job: what it was, and its error block."""
    first = f"{outcome.status}, exit {outcome.exit_code}  {' '.join(outcome.overrides)}  {outcome.folder or ''}"
    return f"{first.rstrip()}\n{outcome.error}" if outcome.error else first.rstrip()


def _base(made: SweepPlan) -> dict[str, Any]:
    """What all jobs depend on: the config, and versions by the same rule as for one run."""
    versions = {name: text for name, text in packages().items() if name.startswith(("runner", "numpy", "onnx"))}
    proposing = {"optuna": search_space.version()} if made.searcher else {}
    return {**made.base, "version": {**versions, **proposing}}


def _words(call: CommandLine) -> dict[str, Any]:
    places = {"config_dir": call.config_dir, "config_path": call.config_path}
    absolute = {name: place and str(place.expanduser().absolute()) for name, place in places.items()}
    return {"overrides": list(call.overrides), "config_name": call.config_name, **absolute}


def _again(words: dict[str, Any], lines: Sequence[str]) -> CommandLine:
    """The call of a sweep that goes on, from the words in its journal, which pass the gate once more."""
    for line in lines:
        if not _key(line).startswith(MAY_CHANGE):
            allowed = "hydra/launcher, hydra.launcher.*, hydra.sweeper.n_trials, sweep.*"
            raise ConfigError("a sweep goes on as it began", value=line, allowed=allowed)
    found = words.get("overrides")
    if not isinstance(found, list) or not all(isinstance(line, str) for line in found):
        raise ConfigError("the journal does not say what was typed", value=found)
    new = {_key(line) for line in lines}
    kept = [line for line in found if _key(line) not in new]
    if "hydra/launcher" in new:
        kept = [line for line in kept if not _key(line).startswith("hydra.launcher.")]
    places = {name: Path(words[name]) for name in ("config_dir", "config_path") if isinstance(words.get(name), str)}
    return CommandLine((*kept, *lines), str(words.get("config_name", "config")), **places)


def _key(line: str) -> str:
    return line.lstrip("+").partition("=")[0]
