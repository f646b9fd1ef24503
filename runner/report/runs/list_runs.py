"""`runner ls`: lists the runs below a folder, newest first, including those whose files are damaged."""

import json
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from runner.config.code import OUTPUTS, SWEEPS, project
from runner.errors import ConfigError
from runner.report.record import RunRecord, run_directories
from runner.report.runs.figures import TEST_LOSS, RunFigures
from runner.report.runs.run_table import GAP, RunTable
from runner.report.runs.selection import Selection
from runner.report.terminal import open_console

_COLOURS = {
    "ok": "green",
    "running": "cyan",
    "interrupted": "yellow",
    "failed": "red",
    "killed": "red",
    "broken": "red",
}


def main(args: Namespace) -> int:
    """Print the runs below one folder, or below `default_folders`.

    Raises ConfigError for a folder that does not exist, and for conditions that are not valid.
    """
    selection = Selection.of(args)
    if args.folder is not None and not Path(args.folder).is_dir():
        raise ConfigError("the folder does not exist", path=args.folder)
    folders = default_folders() if args.folder is None else [Path(args.folder)]
    every = [RunFigures(run) for run in find_runs(folders)]
    runs = selection.apply(every)
    keys = [*filter(None, [selection.sort]), *(key for key, _ in selection.where)]
    if args.json:
        print(_json(runs, keys))  # noqa: T201  output of the command
    elif not runs:
        start = "no runs here; start one with: runner +experiment=lenet"
        print("no run matches" if every else start)  # noqa: T201
    elif sys.stdout.isatty():
        _print_coloured(runs, [*filter(None, [selection.sort]), *_metric_without_accuracy(runs)])
    else:
        table = RunTable(runs, [*filter(None, [selection.sort])], None)
        print("\n".join(map(table.line, table.rows)))  # noqa: T201
    return 0


def default_folders() -> list[Path]:
    """The existing folders in which `runner` creates runs and sweeps, one of them if it contains the other.

    Raises ConfigError for an invalid project file.
    """
    outputs = project().outputs
    names = (OUTPUTS, SWEEPS) if outputs is None else (outputs,)
    return [Path(name) for name in names if Path(name).is_dir()]


def find_runs(folders: Sequence[Path]) -> list[RunRecord]:
    """The runs below some folders, newest first."""
    runs = [RunRecord(directory) for folder in folders for directory in run_directories(folder)]
    return sorted(runs, key=lambda run: (_started(run), str(run.folder)), reverse=True)


def _started(run: RunRecord) -> str:
    return str(run.status.get("started", ""))


def _json(runs: Sequence[RunFigures], keys: Sequence[str]) -> str:
    """An array with an object for each run; `config` has the keys of the command line."""
    return json.dumps([run.values | {"config": {key: run.value(key) for key in keys}} for run in runs])


def _metric_without_accuracy(runs: Sequence[RunFigures]) -> list[str]:
    """The metric that most runs have, where none has an accuracy."""
    counts = Counter(name for run in runs for name in run.metrics if name != TEST_LOSS)
    return [] if "accuracy" in counts else [name for name, _ in counts.most_common(1)]


def _print_coloured(runs: Sequence[RunFigures], keys: Sequence[str]) -> None:
    # importing rich takes 60 ms, and only a terminal needs it
    from rich.text import Text

    console = open_console()
    table = RunTable(runs, keys, console.width)
    head, *rows = table.rows
    console.print(Text(table.line(head), style="bold"), soft_wrap=True)
    for row, run in zip(rows, runs, strict=True):
        line = Text()
        for name, text in zip(table.columns, row, strict=True):
            style = _COLOURS[run.run.state] if name == "status" else ""
            line.append(f"{GAP if line else ''}")
            line.append(table.aligned(name, text), style=style)
        console.print(line, soft_wrap=True)
