"""From overrides to a finished run: compose, check, claim a folder, record, run; at last, what the command prints.

`run_call` is the command, `run` is `runner.run`, `execute_recorded` the rest of a run that has its config already. The
run executes inside `run_status`, with the lock of its directory and a status that says how it ended (`rundir`).
"""

import shlex
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from runner import rundir
from runner.config import code
from runner.config.command_line import CommandLine
from runner.config.compose import Composition, compose
from runner.config.groups.services import tracking_is_requested
from runner.config.schema import RunRequest
from runner.errors import RunnerError, unexpected
from runner.experiment import observers, run as experiment, tracking
from runner.experiment.manifest import ConfiguredRun
from runner.experiment.ranks.processes import on_all_ranks, processes_of, report_on_first_rank
from runner.host import arithmetic, files
from runner.host.console import LOG, Console, visible
from runner.host.lazy import gc_paused
from runner.host.process import only_run, stopped_by_signals

Run = Callable[[RunRequest], dict[str, Any]]


def run(overrides: Sequence[str] = (), config_dir: str | Path | None = None) -> dict[str, Any]:
    """Run one experiment as the command line does, and return its summary.

    `overrides` are written as on the command line: `runner.run(["+experiment=lenet", "epochs=2"])`. Raises the
    RunnerError whose `exit_code` the command would have returned; BusyError while another thread executes a run.
    """
    return run_call(CommandLine(tuple(overrides), config_dir=None if config_dir is None else Path(config_dir)))


@only_run()
def run_call(call: CommandLine) -> dict[str, Any]:
    """Run one experiment; creates nothing before the whole config is valid. Raises RunnerError."""
    with stopped_by_signals():
        with gc_paused(), report_on_first_rank(call.overrides):
            composition = on_all_ranks(lambda: compose(call))
            arithmetic.require(composition.config.exact)
        named = {"hydra.run.dir": composition.folder_text}
        with processes_of(composition.config, composition.folder, named) as ranks:
            folder = Path(ranks.first(lambda: str(_claim_new(composition))))
            with rundir.claimed(folder), composition.activate(folder) as request:
                request = observers.with_directories(request, ranks.first)
                with observers.released_unless_started(request):
                    return ranks.run(request, lambda own: _run_and_record(own, composition))


def _claim_new(composition: Composition) -> Path:
    observers.check(composition.config, composition.folder)
    return rundir.claim_run(composition.folder, composition.folder_given)


def _run_and_record(request: RunRequest, composition: Composition) -> dict[str, Any]:
    """Write the config records of the run folder, then run."""
    with run_status(request):
        code.write()
        for name, content in composition.records():
            files.make_directory((request.folder / name).parent)
            files.write_atomically(request.folder / name, content)
        composition.configure_logging()
        return execute(request)


def execute_recorded(request: RunRequest) -> dict[str, Any]:
    """Run in a folder that has its config records, with its lock and `status.json`."""
    with run_status(request):
        return execute(request)


def execute(request: RunRequest) -> dict[str, Any]:
    """Run the experiment; an unexpected exception becomes an InternalError."""
    if remark := arithmetic.remark(request.config.exact):
        LOG.warning("%s", remark)
    try:
        run: Run = experiment.run if request.config.session.graph_run_mode else experiment.run_evaluation
        if tracking_is_requested(request.config.tracking):
            run = tracking.with_tracking(run)
        return run(request)
    except (RunnerError, KeyboardInterrupt):
        raise
    except Exception as error:
        if request.config.runner.debug:
            traceback.print_exc()
        raise unexpected(error) from error


@contextmanager
def run_status(request: RunRequest) -> Iterator[None]:
    """Hold the lock of the run folder and maintain `status.json` while the context is open.

    A console that cannot be written does not end the run; the status has the reason as `console`. Raises BusyError when
    another process works in the folder, ConfigError for a run to resume that has symbolic links.
    """
    if request.resume:
        rundir.refuse_links(request.folder)
    names = ConfiguredRun(request).names
    locked = files.locked(request.folder / rundir.LOCK)
    with Console() as console, locked, rundir.kept_status(request.folder, names, console, request.resume):
        yield


# What a command prints at the end of a run.

FILES = (rundir.NETWORK, rundir.METRICS, rundir.CHECKPOINTS)


def print_summary(summary: Mapping[str, Any]) -> None:
    """Print it on standard output."""
    sys.stdout.write(summary_text(summary))


def summary_text(summary: Mapping[str, Any]) -> str:
    """The metrics, the speed and the files of a run, and commands for it, as lines; "" for a sweep, which has no
    summary."""
    lines = []
    metrics = summary.get("metrics") or {}
    numbers = {name: value for name, value in metrics.items() if not isinstance(value, list)}
    if numbers:
        values = ", ".join(f"{visible(name)} {_number(value)}" for name, value in numbers.items())
        steps, speed = summary["steps"], summary["steps_per_second"]
        split = f"on the {summary.get('split', 'test')} split"
        lines.append(f"{values} {split}" + (f"; {steps} steps at {speed:.0f} steps/s" if speed else ""))
    if summary.get("run_dir"):
        lines += _locations(Path(summary["run_dir"]))
    return "".join(f"{line}\n" for line in lines)


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.4f}"


def _locations(folder: Path) -> list[str]:
    found = [name for name in FILES if (folder / name).exists()]
    name = shlex.quote(visible(str(folder)))
    return [
        f"run directory: {visible(str(folder))}",
        *([f"files: {', '.join(found)}"] if found else []),
        f"next: runner report {name}",
        f"      runner predict {name} FILE",
        "      runner ls",
    ]
