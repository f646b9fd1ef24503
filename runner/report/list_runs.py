"""`runner ls`: lists the runs below a folder, newest first, including those whose files are damaged."""

from collections.abc import Sequence
from pathlib import Path

from runner.config.project import OUTPUTS, SWEEPS, project
from runner.errors import ConfigError
from runner.host.plain_text import visible
from runner.report.record import RunRecord, run_directories
from runner.report.terminal import open_console

COLUMNS = ("started", "status", "experiment", "mode", "device", "loss", "accuracy", "folder")
PIPED_WIDTH = 240  # columns
_COLOURS = {
    "ok": "green",
    "running": "cyan",
    "interrupted": "yellow",
    "failed": "red",
    "killed": "red",
    "broken": "red",
}


def main(folder: str | None) -> int:
    """Print the table of one folder, or of `default_folders`. Raises ConfigError for a folder that does not exist."""
    if folder is not None and not Path(folder).is_dir():
        raise ConfigError("the folder does not exist", path=folder)
    _print(find_runs(default_folders() if folder is None else [Path(folder)]))
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


def _print(runs: Sequence[RunRecord]) -> None:
    # importing rich takes 60 ms, and only the table needs it
    from rich.box import SIMPLE
    from rich.table import Table
    from rich.text import Text

    console = open_console(PIPED_WIDTH)
    if not runs:
        console.print("no runs here; start one with: runner +experiment=lenet")
        return
    table = Table(*COLUMNS, box=SIMPLE)
    for run in runs:
        style = {"status": _COLOURS[run.state]}
        table.add_row(
            *(Text(visible(text), style=style.get(name, "")) for name, text in zip(COLUMNS, _cells(run), strict=True))
        )
    console.print(table)


def _cells(run: RunRecord) -> list[str]:
    values = run.status | run.summary if run.status else {}
    metrics = values.get("metrics")
    values["accuracy"] = metrics.get("accuracy") if isinstance(metrics, dict) else None
    started = _started(run)[:19].replace("T", " ")
    return [started, run.state, *(_cell(values.get(name)) for name in COLUMNS[2:-1]), str(run.folder)]


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" if isinstance(value, float) else str(value)
