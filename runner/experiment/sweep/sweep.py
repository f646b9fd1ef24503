"""Runs a sweep from its first job to its table, and resumes one that was interrupted."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from runner import rundir
from runner.config.code import loaded_files
from runner.config.command_line import CommandLine
from runner.config.groups import search as search_space
from runner.errors import ConfigError, RunnerError
from runner.experiment import manifest, observers
from runner.experiment.manifest import config_hash, relevant_versions
from runner.experiment.sweep import journal
from runner.experiment.sweep.controller import DIED, SweepController, key_of, show
from runner.experiment.sweep.journal import Outcome, SweepState, refuse_changes, relative, settle, varying
from runner.experiment.sweep.launchers import queued_jobs, refuse_other_launcher
from runner.experiment.sweep.plan import SweepPlan, plan
from runner.host import arithmetic, files
from runner.host.files import write_json
from runner.host.json import fits
from runner.host.machine import packages
from runner.host.process import only_run, stopped_by_signals

# The best job of a search, printed below the table and written to `best.json`.


def best(outcomes: Sequence[Outcome], search: Mapping[str, Any]) -> Outcome | None:
    """The job with the best value of the metric (the first of equal ones); None when no job has a value."""
    metric, sign = str(search["metric"]), -1 if search["direction"] == "maximize" else 1
    ranked = [(sign * value, one.number, one) for one in outcomes if (value := one.value(metric)) is not None]
    return min(ranked, key=lambda found: found[:2])[2] if ranked else None


def sentence(found: Outcome, outcomes: Sequence[Outcome], search: Mapping[str, Any]) -> str:
    """A line with the job's number, its value, and the overrides that not all jobs share."""
    metric = str(search["metric"])
    own = varying([one.overrides for one in outcomes])
    return " ".join(
        [f"best: job {found.number}, {metric} {found.value(metric):.4f} ", *filter(own.__contains__, found.overrides)]
    )


def write(folder: Path, found: Outcome, search: Mapping[str, Any]) -> None:
    """Write `best.json` into the folder of the sweep. Raises StorageError."""
    metric = str(search["metric"])
    path = found.folder and relative(found.folder, folder)
    job = {"job": found.number, "folder": path, "overrides": list(found.overrides)}
    write_json(
        folder / rundir.BEST, {"metric": metric, "direction": search["direction"], "value": found.value(metric), **job}
    )


# Start and resume.

MAY_CHANGE = ("sweep.", "hydra.launcher.", "hydra/launcher", "hydra.sweeper.n_trials")


class SweepError(RunnerError):
    """Some jobs of a sweep failed; the others were run."""

    exit_code = 8
    outcomes: Sequence[Outcome] = ()  # of all jobs


@only_run()
def start(call: CommandLine) -> list[Outcome]:
    """Run every job of a sweep, even if others fail, and print the table.

    Raises ConfigError before anything is written, SweepError at the end when some jobs failed, KeyboardInterrupt when a
    signal stopped the sweep.
    """
    sweep_plan = plan(call)
    arithmetic.require(sweep_plan.config.exact)
    observers.check(sweep_plan.config, sweep_plan.folder)
    with stopped_by_signals():
        folder = rundir.claim_run(sweep_plan.folder, sweep_plan.folder_given)
        with rundir.claimed(folder), files.locked(folder / rundir.LOCK):
            config = _base(sweep_plan)
            values = {"call": _call_values(call), "config": config, "config_sha256": config_hash(config)}
            values |= {manifest.HASHES: manifest.hashes(loaded_files()), **manifest.given()}
            journal.append(folder, "sweep", version=journal.VERSION, **values, threads=sweep_plan.shares.threads)
            return _run_jobs(sweep_plan, folder, force=False)


@only_run()
def resume(
    folder: Path, lines: Sequence[str] = (), force: bool = False, given_code: Sequence[str] = ()
) -> list[Outcome]:
    """Run the missing jobs of the sweep in `folder`: those never started, failed or interrupted.

    `lines` may override the launcher, `sweep.*`, and the number of trials of a search. Raises ConfigError when this is
    no sweep or when its config or code has changed (unless `force`), BusyError while it is running, otherwise as
    `start`.
    """
    rundir.refuse_links(folder)
    state = SweepState(folder)
    state.update()
    call = _resumed_call(state.header["call"], lines)._replace(code=tuple(given_code))
    with stopped_by_signals(), files.locked(folder / rundir.LOCK):
        state.update()  # rows written before the lock was acquired
        with manifest.naming_code_of(folder, state.header):
            sweep_plan = plan(call, resumed=True)
            arithmetic.require(sweep_plan.config.exact)
            found = manifest.hashes(loaded_files())
            if not force and state.code is not None:
                manifest.refuse_change("the code of the sweep has changed", state.code, found)
        if not force:
            refuse_changes("the config of the sweep has changed", state.header["config"], _base(sweep_plan))
        done = state.done()
        submitted = {number: name for number, name in state.submitted.items() if number not in done}
        queued = {} if force else queued_jobs(submitted)
        refuse_other_launcher(str(sweep_plan.master.hydra.launcher._target_), queued)
        settle(state, [number for number in state.started if number not in {*state.ended, *queued}], DIED)
        journal.append(folder, "resume", overrides=list(lines), **{manifest.HASHES: found})
        return _run_jobs(sweep_plan, folder, force, queued)


def _run_jobs(
    sweep_plan: SweepPlan, folder: Path, force: bool, queued: Mapping[int, str] = MappingProxyType({})
) -> list[Outcome]:
    state = SweepState(folder)
    state.update()
    controller = SweepController(state, sweep_plan.config.sweep.fail_fast, force, queued)
    try:
        sweep_plan.run(folder, state.header["threads"], controller)
    except KeyboardInterrupt:
        print(f"resume the sweep with: runner resume {folder}", file=sys.stderr)  # noqa: T201
        raise
    state.update()
    outcomes = state.outcomes()
    show(outcomes, folder)
    if state.search:
        _report_best(outcomes, state)
    _raise_failed(outcomes, folder)
    return outcomes


def _report_best(outcomes: Sequence[Outcome], state: SweepState) -> None:
    search = state.search or {}
    found = best(outcomes, search)
    if found is not None:
        write(state.folder, found, search)
        print(sentence(found, outcomes, search))  # noqa: T201


def _raise_failed(outcomes: Sequence[Outcome], folder: Path) -> None:
    failed = [one for one in outcomes if one.status in ("failed", "killed")]
    rest = sum(one.status != "ok" for one in outcomes) - len(failed)
    if failed or rest:
        text = f"{len(failed)} of {len(outcomes)} jobs failed"
        error = SweepError(f"{text}, {rest} did not end" if rest else text)
        error.outcomes = tuple(outcomes)
        raise error.add(**{f"#{one.number}": _block(one) for one in failed}, hint=f"runner resume {folder}")


def _block(outcome: Outcome) -> str:
    """The row of a failed job: its status, overrides and folder, and its error."""
    first = f"{outcome.status}, exit {outcome.exit_code}  {' '.join(outcome.overrides)}  {outcome.folder or ''}"
    return f"{first.rstrip()}\n{outcome.error}" if outcome.error else first.rstrip()


def _base(sweep_plan: SweepPlan) -> dict[str, Any]:
    """Everything that all jobs depend on: the config, and versions by the same rule as for one run."""
    optuna = {"optuna": search_space.version()} if sweep_plan.searcher else {}
    return {**sweep_plan.base, "version": {**relevant_versions(packages()), **optuna}}


def _call_values(call: CommandLine) -> dict[str, Any]:
    places = {"config_dir": call.config_dir, "config_path": call.config_path}
    absolute = {name: place and str(place.expanduser().absolute()) for name, place in places.items()}
    return {"overrides": list(call.overrides), "config_name": call.config_name, **absolute}


def _resumed_call(words: dict[str, Any], lines: Sequence[str]) -> CommandLine:
    """The command line of a resumed sweep: that of its journal, which is checked again, with new overrides."""
    found = words.get("overrides")
    if not fits(found, [str]):
        raise ConfigError("the journal has no command line", value=found)
    effective = {key_of(line): line for line in found}  # the last line of a key counts
    typed = [line for line in lines if effective.get(key_of(line)) != line]
    for line in typed:
        if not key_of(line).startswith(MAY_CHANGE):
            allowed = "hydra/launcher, hydra.launcher.*, hydra.sweeper.n_trials, sweep.*, and overrides that it has"
            raise ConfigError("a resumed sweep cannot change this key", value=line, allowed=allowed)
    new = {key_of(line) for line in typed}
    kept = [line for line in found if key_of(line) not in new]
    if "hydra/launcher" in new:
        kept = [line for line in kept if not key_of(line).startswith("hydra.launcher.")]
    places = {name: Path(words[name]) for name in ("config_dir", "config_path") if isinstance(words.get(name), str)}
    recorded = frozenset(key_of(line) for line in kept if line not in lines)
    name = str(words.get("config_name", "config"))
    return CommandLine((*kept, *typed), name, places.get("config_dir"), places.get("config_path"), recorded)
