"""`runner watch`: follows a run, which it only reads, until it has ended."""

import sys
import time
from argparse import Namespace
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from runner import rundir
from runner.errors import ConfigError
from runner.host.console import ConsoleStream, visible
from runner.host.json import without_lists
from runner.report.list import EVALUATION, default_folders, find_runs
from runner.report.record import MetricsTail, RunRecord, is_number
from runner.rundir import can_be_resumed, is_run, run_directories

# How far a run is: its state, epoch, step, loss and speed, from its files.

WINDOW = 50  # looks with new steps over which the speed is measured
KILLED = 1


class Progress:
    """The progress of the run in a directory, updated by `read_state` and `add`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.epoch = self.step = self._shown = 0
        self.loss: float | None = None
        self._losses: list[float] = []  # of the epoch
        self.total: int | None = None
        self._run = RunRecord(folder)
        self._looks: deque[tuple[float, int]] = deque(maxlen=WINDOW)

    @property
    def is_running(self) -> bool:
        """Whether the run was running when its state was last read."""
        return self._run.state == "running"

    def read_state(self) -> bool:
        """Read the state again; whether the run is running."""
        self._run = RunRecord(self.folder)
        return self.is_running

    def add(self, events: Sequence[dict[str, Any]], now: float) -> list[str]:
        """Take new events, at a time in seconds; a line for each epoch that ended and for each evaluation.

        Of what happened before the first call, only the last lines.
        """
        is_first = not self._looks
        last = max([self.step, *(event["global_step"] for event in events if event["event"] == "step")])
        if is_first or last > self.step:
            self._looks.append((now, last))
        if events and self.total is None:  # the manifest is written after the first step
            self.total = _whole(self._run.manifest.get("total_steps"))
        lines = [line for event in events for line in self._take(event)]
        lines += [] if self.is_running else self._ended_epoch()
        return lines[-2:] if is_first else lines

    def _take(self, event: dict[str, Any]) -> Iterator[str]:
        if event["event"] == "eval":
            yield from self._ended_epoch()
            yield _evaluation_line(event)
            return
        epoch = _whole(event.get("epoch")) or self.epoch
        if epoch != self.epoch:
            yield from self._ended_epoch()
            self._losses = []
        self._losses.append(event["loss"])
        self.epoch, self.step, self.loss = epoch, event["global_step"], event["loss"]

    def _ended_epoch(self) -> Iterator[str]:
        """The line of the epoch, once."""
        if self.step != self._shown:
            self._shown = self.step
            yield self.line()

    def line(self) -> str:
        """Epoch, step, mean loss of the epoch so far and speed, as a run prints its epochs."""
        step = f"step {self.step}" + (f" of {self.total}" if self.total else "")
        loss = f"loss {sum(self._losses) / len(self._losses):.4g}" if self._losses else ""
        return f"epoch {self.epoch_text}, {step}: {', '.join(filter(None, [loss, self.rate_text]))}"

    @property
    def epoch_text(self) -> str:
        """The epoch, and their number if the config has it."""
        epochs = _whole(self._run.config.get("epochs"))
        return f"{self.epoch} of {epochs}" if epochs is not None and epochs >= self.epoch else str(self.epoch)

    @property
    def loss_text(self) -> str:
        """The last loss."""
        return "-" if self.loss is None else f"{self.loss:.4g}"

    @property
    def rate_text(self) -> str:
        """The steps per second of the last looks; "" while no step was made."""
        (start, first), (end, last) = self._looks[0], self._looks[-1]
        return f"{(last - first) / (end - start):.3g} steps/s" if last > first and end > start else ""

    @property
    def exit_code(self) -> int:
        """That of an ended run; 1 if it was killed, 0 while it is running."""
        if self._run.state in ("ok", "running"):
            return 0
        code = _whole(self._run.status.get("exit_code"))
        return code if code is not None and code < 256 else KILLED

    def ending(self) -> Iterator[str]:
        """Lines about the end of the run: its state, its metrics, its error, and how it continues."""
        run, state = self._run, self._run.state
        if state == "running":
            return
        at = f" at step {self.step}" if self.step else ""
        code = f", exit code {self.exit_code}" if state != "killed" else ", its process no longer exists"
        yield f"{state}: {self.folder}{at}{code}"
        if error := run.status.get("error"):
            yield from str(error).splitlines()
        if state in ("interrupted", "killed") and can_be_resumed(self.folder):
            yield f"runner resume {self.folder} continues it"


def _evaluation_line(event: dict[str, Any]) -> str:
    numbers = {name: value for name, value in without_lists(event).items() if name not in EVALUATION}
    values = (f"{name} {value:.4f}" for name, value in numbers.items() if is_number(value))
    return f"evaluation at step {event['global_step']}: {', '.join(values) or 'no numbers'}"


def _whole(value: object) -> int | None:
    """A positive integer of a file, which may have anything."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


# The command.

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
    tail = MetricsTail(folder / rundir.METRICS, MOST_BYTES)
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
    if (folder / rundir.SWEEP).is_file():
        jobs = [path for path in run_directories(folder) if RunRecord(path).state == "running"]
        hint = f"the directory of a job, such as {jobs[0]}" if jobs else f"runner ls {folder} lists its jobs"
        raise ConfigError("a sweep has several runs", path=folder, hint=hint)
    if not is_run(folder):
        raise ConfigError("not a run directory", path=folder, hint="runner ls DIR lists the runs in a folder")
    return folder
