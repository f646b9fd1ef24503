"""`runner watch`: follows a run, which it only reads, until it has ended."""

import sys
import time
from argparse import Namespace
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from runner.errors import ConfigError
from runner.experiment.sweep import journal
from runner.host.console import ConsoleStream, visible
from runner.report.record import RunRecord, run_directories
from runner.report.runs.list_runs import default_folders, find_runs
from runner.report.runs.progress import Progress
from runner.report.runs.run_folder import is_run
from runner.report.runs.tail import MetricsTail

INTERVAL = 0.2  # seconds between two looks, each of which takes a tenth of a millisecond
EVERY = 10.0  # seconds after which an epoch that lasts longer has another line, where there is no terminal
MOST_BYTES = 4 << 20  # of metrics at a time
INTERRUPTED = 130


def main(args: Namespace) -> int:
    """Follow a run, or the newest one, and return its exit code; 1 if it was killed.

    Raises ConfigError if there is no such run.
    """
    folder = _newest() if args.run is None else _checked(Path(args.run))
    progress = Progress(folder)
    tail = MetricsTail(folder / "metrics.jsonl", MOST_BYTES)
    try:
        with ExitStack() as stack:
            show = _bar(progress, stack) if sys.stdout.isatty() else _lines(progress)
            while _look(progress, tail, show) and not _is_closed():
                time.sleep(INTERVAL)
    except KeyboardInterrupt:
        print(f"the run goes on; runner watch {folder} follows it again", file=sys.stderr)  # noqa: T201
        return INTERRUPTED
    for line in progress.ending():
        print(visible(line))  # noqa: T201  output of the command
    return progress.exit_code


def _look(progress: Progress, tail: MetricsTail, show: Callable[[list[str]], None]) -> bool:
    """Read and show what is new; whether the run is running. The state is read first: events precede its end."""
    is_running = progress.read_state()
    show(progress.add(tail.new_events(), time.monotonic()))
    return is_running


def _is_closed() -> bool:
    """Whether the reader of the output is gone."""
    return isinstance(sys.stdout, ConsoleStream) and sys.stdout.problem is not None


def _lines(progress: Progress) -> Callable[[list[str]], None]:
    """Output that is no terminal: the lines, and where a long epoch is."""
    last_step, last_time = 0, time.monotonic()

    def show(lines: list[str]) -> None:
        nonlocal last_step, last_time
        now = time.monotonic()
        if not lines and now - last_time >= EVERY and progress.step != last_step:
            lines = [progress.line()]
        if lines:
            print("\n".join(map(visible, lines)), flush=True)  # noqa: T201  output of the command
            last_step, last_time = progress.step, now

    return show


def _bar(progress: Progress, stack: ExitStack) -> Callable[[list[str]], None]:
    """A bar on a terminal, below the lines; it is removed when the stack is closed."""
    # importing rich takes 60 ms, and only a terminal needs it
    from rich.progress import BarColumn, MofNCompleteColumn, Progress as Bar, TextColumn, TimeRemainingColumn
    from rich.text import Text

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    figures = TextColumn("loss {task.fields[loss]}  {task.fields[rate]}")
    bar = stack.enter_context(Bar(*columns, figures, refresh_per_second=5, transient=True))
    task = bar.add_task("starting", total=None, loss="-", rate="")

    def show(lines: list[str]) -> None:
        for line in lines:
            bar.console.print(Text(visible(line)))
        where = f"epoch {progress.epoch_text}" if progress.epoch else "starting"
        bar.update(task, description=where, completed=progress.step, total=progress.total)
        bar.update(task, loss=progress.loss_text, rate=progress.rate_text)

    return show


def _newest() -> Path:
    """The newest run that is running, or else the newest. Raises ConfigError if there is none."""
    runs = find_runs(default_folders())
    if not runs:
        raise ConfigError("no runs here", hint="runner watch RUN_DIR, or start one: runner +experiment=lenet")
    return next((run for run in runs if run.state == "running"), runs[0]).folder


def _checked(folder: Path) -> Path:
    if not folder.is_dir():
        raise ConfigError("the run does not exist", path=folder, hint="runner ls lists runs")
    if (folder / journal.NAME).is_file():
        jobs = [path for path in run_directories(folder) if RunRecord(path).state == "running"]
        hint = f"the directory of a job, such as {jobs[0]}" if jobs else f"runner ls {folder} lists its jobs"
        raise ConfigError("a sweep has several runs", path=folder, hint=hint)
    if not is_run(folder):
        raise ConfigError("not a run directory", path=folder, hint="runner ls DIR lists the runs in a folder")
    return folder
