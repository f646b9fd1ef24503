"""`runner ls`: lists the runs below a folder, newest first, including those whose files are damaged."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.errors import ConfigError
from runner.report.record import RunRecord, run_directories

DEFAULT_FOLDERS = ("outputs", "multirun")
COLUMNS = ("started", "status", "experiment", "mode", "device", "loss", "accuracy", "folder")
_COLOURS = {
    "ok": "green",
    "running": "cyan",
    "interrupted": "yellow",
    "failed": "red",
    "killed": "red",
    "broken": "red",
}


@dataclass(frozen=True)
class ListedRun:
    """A row of the list."""

    folder: Path
    status: str
    started: str
    values: dict[str, Any]


def main(folder: str | None) -> int:
    """Print the table of one folder, or of DEFAULT_FOLDERS. Raises ConfigError for a folder that does not exist."""
    if folder is not None and not Path(folder).is_dir():
        raise ConfigError("the folder does not exist", path=folder)
    _print(find_runs(default_folders() if folder is None else [Path(folder)]))
    return 0


def default_folders() -> list[Path]:
    """The existing ones of DEFAULT_FOLDERS, in which `runner` creates runs and sweeps."""
    return [Path(name) for name in DEFAULT_FOLDERS if Path(name).is_dir()]


def find_runs(folders: Sequence[Path]) -> list[ListedRun]:
    """The runs below some folders, newest first."""
    runs = [_read(directory) for folder in folders for directory in run_directories(folder)]
    return sorted(runs, key=lambda run: (run.started, str(run.folder)), reverse=True)


def _read(directory: Path) -> ListedRun:
    record = RunRecord(directory)
    if not record.status:
        return ListedRun(directory, "broken", "", {})
    summary, status = record.summary, record.status
    values = {name: summary.get(name, status.get(name)) for name in ("experiment", "mode", "device", "loss")}
    metrics = summary.get("metrics")
    values["accuracy"] = metrics.get("accuracy") if isinstance(metrics, dict) else None
    return ListedRun(directory, record.state, str(record.status.get("started", "")), values)


def _print(runs: Sequence[ListedRun]) -> None:
    # importing rich takes 60 ms, and only the table needs it
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    if not console.is_terminal:
        console = Console(width=240, soft_wrap=True)
    if not runs:
        console.print("no runs here; start one with: runner +experiment=lenet")
        return
    table = Table(*COLUMNS, box=SIMPLE)
    for run in runs:
        style = {"status": _COLOURS[run.status]}
        table.add_row(*(Text(text, style=style.get(name, "")) for name, text in zip(COLUMNS, _cells(run), strict=True)))
    console.print(table)


def _cells(run: ListedRun) -> list[str]:
    started = run.started[:19].replace("T", " ")
    return [started, run.status, *(_cell(run.values.get(name)) for name in COLUMNS[2:-1]), str(run.folder)]


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" if isinstance(value, float) else str(value)
