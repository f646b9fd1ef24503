"""The controller of a sweep: which of its jobs run, and their results.

In order: one job, as a launcher calls it; the check of all swept values before any job exists; the table of results;
`SweepController`, which Hydra's sweepers call with lists of overrides.
"""

import itertools
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hydra.core.override_parser.types import IntervalSweep, Override

from runner import rundir
from runner.config import overrides
from runner.config.check import examine
from runner.config.code import loaded_files
from runner.config.command_line import CommandLine
from runner.config.compose import Composition, Loader, compose
from runner.config.gate import path_errors
from runner.config.groups import search
from runner.config.schema import RunRequest, plain
from runner.errors import ConfigError, RunnerError, raise_all
from runner.experiment import launch, manifest, observers
from runner.experiment.manifest import refuse_other
from runner.experiment.sweep import journal
from runner.experiment.sweep.journal import Jobs, Outcome, SweepState, settle, varying
from runner.host import json
from runner.host.console import visible
from runner.host.json import set_dotted
from runner.host.lazy import lazy_import
from runner.host.process import PREEMPTION, Preempted, exit_code, only_run, stopped_by_signals
from runner.train.checkpoint.state import sweep_temporaries

# One job of a sweep, called by a launcher in the job's folder, in this process or another one.

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
            with only_run(), stopped_by_signals(), launch.run_status(request := self._resumed(number, request)):
                if wrong is not None:
                    raise wrong
                refuse_other("the code of the job is not that of its sweep", self.code)
                sweep_temporaries(request.folder)
                request = replace(request, directories=observers.claim(request, self.sweep, number))
                summary = launch.execute(request)
        except RunnerError as error:
            return self.failed(number, request.folder, error)
        except KeyboardInterrupt as stop:
            journal.end(self.sweep, number, request.folder, "interrupted", exit_code(stop))
            if isinstance(stop, Preempted):
                signal.raise_signal(PREEMPTION)  # submitit's handler, with everything saved
            raise
        journal.end(self.sweep, number, request.folder, summary=summary)
        return 0

    def stopped(self) -> bool:
        """Whether no further job may start."""
        if not self.fail_fast:
            return False
        known = journal.SweepState(self.sweep)
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
        journal.end(self.sweep, number, folder, "failed", error.exit_code, error=str(error))
        return error.exit_code

    def _begin(self, number: int, folder: Path) -> None:
        journal.append(self.sweep, "start", job=number, folder=journal.relative(folder, self.sweep), pid=os.getpid())

    def _resumed(self, number: int, request: RunRequest) -> RunRequest:
        """The request, which resumes the run in the folder if there is one.

        Raises ConfigError for another config, and for the run of another job.
        """
        if not (request.folder / rundir.CONFIG).exists() or not (request.folder / rundir.STATUS).exists():
            return request
        folder = journal.relative(request.folder, self.sweep)
        known = journal.SweepState(self.sweep)
        known.update()
        owner = next(one for one, row in known.started.items() if row["folder"] == folder)
        if owner != number:
            raise one_folder(folder, owner, number)
        before = json.read_object(request.folder / rundir.CONFIG)
        if not self.force:
            journal.refuse_changes("the config of the job has changed", before, request.resolved)
        return replace(request, resume=True, force=self.force)


def one_folder(folder: str, one: int, other: int) -> ConfigError:
    """The error for two jobs that would write into one folder."""
    rows = {"key": "hydra.sweep.subdir", "folder": folder, "jobs": f"#{one}, #{other}"}
    return ConfigError("two jobs of the sweep have one folder", **rows, repair="${hydra.job.num} in hydra.sweep.subdir")


EXACT = "exact"


def one_exactness(values: str) -> ConfigError:
    """The error for jobs of one sweep with several values of `exact`: all, or that of a job with another one."""
    what = "the jobs of a sweep have one value of this key, since numpy is loaded once for all"
    repair = "a sweep for each: runner -m exact=true ..., and runner -m exact=false ..."
    return ConfigError(what, key=EXACT, value=values, repair=repair)


# Validates each value of a sweep before any of its jobs exists.


def check_sweep(loader: Loader, call: CommandLine, params: Sequence[str] = ()) -> Composition:
    """Validate every swept value, and return the composed config without them.

    `params` are overrides from `hydra.sweeper.params`. Raises ConfigError, or ConfigErrors.
    """
    parsed = overrides.parse((*params, *call.overrides))
    overrides.reject_repeated(parsed[len(params) :])
    problems = [problem for problem in map(loader.unknown_option, parsed) if problem]
    raise_all(problems)
    lines = [_without_sweep(loader, override) for override in parsed]
    elsewhere = recorded_keys(call, params)
    plain_call = call._replace(overrides=tuple(line for line in lines if line), recorded=elsewhere)
    composition = compose(plain_call)
    errors: dict[str, ConfigError] = {}
    if both := [one for one in parsed if one.is_sweep_override() and one.key_or_group == EXACT]:
        errors[EXACT] = one_exactness(both[0].get_value_string())
    for key, value in _swept(loader, parsed):
        values = plain(composition.config)
        set_dotted(values, key, value)
        config, found = examine(values, lambda key: search.PARAMS if key in elsewhere else overrides.COMMAND_LINE)
        if not found and key in elsewhere:
            misplaced = path_errors(config, composition.folder, composition.typed)
            found = [error.add(**{"from": search.PARAMS}) for error in misplaced]
        errors |= {str(error): error for error in (_with_hint(error, parsed) for error in found)}
    raise_all(list(errors.values()))
    return composition


def recorded_keys(call: CommandLine, params: Sequence[str]) -> frozenset[str]:
    """The keys of overrides that the user has not typed: from `hydra.sweeper.params`, or from a resumed sweep."""
    from_file, typed = ({one.key_or_group for one in overrides.parse(lines)} for lines in (params, call.overrides))
    return call.recorded | (from_file - typed)


def _with_hint(error: ConfigError, parsed: Sequence[Override]) -> ConfigError:
    intervals = {one.key_or_group: one for one in parsed if one.is_interval_sweep()}
    override = intervals.get(error.rows["key"])
    if override is None or error.what != "not a whole number":
        return error
    del error.rows["value"]
    error.rows.pop("nearest", None)
    return error.add(value=override.get_value_string(), hint=f"int({override.get_value_string()})")


def _without_sweep(loader: Loader, override: Override) -> str | None:
    """The override with the first of its options; None for swept values."""
    if not override.is_sweep_override():
        return str(override.input_line)
    if not override.is_discrete_sweep() or not loader.is_option(override):
        return None
    options = overrides.sweep_values(override)
    first = loader.options(override.key_or_group)[0] if options == ["*"] else options[0]
    return f"{override.get_key_element()}={first}"


def _swept(loader: Loader, parsed: list[Override]) -> Iterator[tuple[str, Any]]:
    for override in parsed:
        if isinstance(override._value, IntervalSweep):
            yield from ((override.key_or_group, end) for end in (override._value.start, override._value.end))
        elif override.is_discrete_sweep() and not loader.is_option(override):
            lines = [f"x={value}" for value in overrides.sweep_values(override)]
            values = itertools.chain.from_iterable(overrides.parse([line]) for line in lines)
            yield from ((override.key_or_group, value.value()) for value in values)


# The table of a sweep's jobs.

COLOURS = {"ok": "green", "failed": "red", "killed": "red", "interrupted": "yellow", "missing": "yellow"}


def show(outcomes: Sequence[Outcome], folder: Path) -> None:
    """Print the outcomes of all jobs: coloured on a terminal, otherwise as plain columns."""
    console_of, box, tables, texts = (lazy_import(f"rich.{name}") for name in ("console", "box", "table", "text"))
    console = console_of.Console()
    if not console.is_terminal:
        print("\n".join(table_lines(outcomes)))  # noqa: T201
    else:
        head, *rows = cells(outcomes)
        table = tables.Table(*head, box=box.SIMPLE)
        for outcome, row in zip(outcomes, rows, strict=True):
            style = {1: COLOURS.get(outcome.status, "")}
            table.add_row(*(texts.Text(text, style=style.get(place, "")) for place, text in enumerate(row)))
        console.print(table)
    done = sum(outcome.status == "ok" for outcome in outcomes)
    of = "" if done == len(outcomes) else f" of {len(outcomes)}"
    print(f"{done}{of} jobs finished in {folder}")  # noqa: T201


def table_lines(outcomes: Sequence[Outcome]) -> list[str]:
    """The lines of the table, in columns."""
    rows = cells(outcomes)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def cells(outcomes: Sequence[Outcome]) -> list[list[str]]:
    """The header and one row per job: number, status, exit code, overrides that not all jobs share, loss, metrics."""
    names = sorted({name for outcome in outcomes for name in outcome.metrics} - {"loss"})
    own = varying([outcome.overrides for outcome in outcomes])
    rows = [["job", "status", "exit", "overrides", "loss", *names], *(_row(one, names, own) for one in outcomes)]
    return [[visible(text) for text in row] for row in rows]


def ended_line(outcome: Outcome) -> str:
    """One line about a finished job."""
    values = {**outcome.metrics, "loss": outcome.loss}
    numbers = " ".join(f"{name} {value:.4f}" for name, value in values.items() if value is not None)
    result = numbers if outcome.status == "ok" else (outcome.error or "").partition("\n")[0]
    return visible(f"job {outcome.number} {outcome.status}: {' '.join(outcome.overrides)}  {result}".rstrip())


def _row(outcome: Outcome, names: Sequence[str], own: set[str]) -> list[str]:
    lines = [line for line in outcome.overrides if line in own]
    numbers = [outcome.loss, *(outcome.metrics.get(name) for name in names)]
    texts = ["-" if value is None else f"{value:.4f}" for value in numbers]
    return [str(outcome.number), outcome.status, str(outcome.exit_code), " ".join(lines) or "-", *texts]


# The controller.

DIED = "SweepError: the process of the job ended unexpectedly"


class SweepController:
    """Decides which jobs of a sweep run, receives their results, and writes journal rows that jobs cannot write."""

    def __init__(
        self, state: SweepState, fail_fast: bool, force: bool, queued: Mapping[int, str] = MappingProxyType({})
    ) -> None:
        self.state, self.queued = state, queued  # jobs that an earlier call has submitted: number to id
        expected = manifest.hashes(loaded_files())
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
