"""The table of `runner ls`: the directory is always whole, and other columns give way until a line fits."""

from collections.abc import Sequence
from typing import Any

from runner.host.console import visible
from runner.report.format import format_value
from runner.report.runs.figures import RunFigures
from runner.report.values import metric_text

PIPED = ("started", "status", "experiment", "mode", "device", "loss", "accuracy", "folder")  # for programs: always
GAP = "  "
LONG = 48  # columns of a directory; a longer one makes no column give way, and its own line may be wrapped
# In the order in which they are printed, with the order in which they are added while there is room.
_RANKS = {
    "started": 6,
    "status": 1,
    "experiment": 4,
    "network": 10,
    "dataset": 11,
    "mode": 5,
    "device": 7,
    "steps": 8,
    "seconds": 9,
    "loss": 3,
    "accuracy": 2,
    "folder": 0,
}
_NUMBERS = ("steps", "seconds", "loss", "accuracy")


class RunTable:
    """Some runs as lines of text. `width`: that of the terminal; None for output that is no terminal.

    `keys` are the keys of the command line, which have a column of their own.
    """

    def __init__(self, runs: Sequence[RunFigures], keys: Sequence[str], width: int | None) -> None:
        extra = [name for name in dict.fromkeys(keys) if name not in _RANKS]
        ranks = {**_RANKS, **dict.fromkeys(extra, 1)}
        names = [*(name for name in _RANKS if name != "folder"), *extra, "folder"]
        if width is None:
            names = [name for name in names if name in PIPED or name in extra]
        cells = {name: [visible(text) for text in (name, *(_cell(name, run) for run in runs))] for name in names}
        if width is not None:
            cells = _fitting(cells, ranks, width)
        self.columns = list(cells)
        self._widths = {name: max(map(len, column)) for name, column in cells.items()}
        self.rows = list(zip(*cells.values(), strict=True))
        self._numeric = {*_NUMBERS, *(name for name in extra if _is_numeric(name, runs))}

    def line(self, row: Sequence[str]) -> str:
        """The cells of a row, aligned; the directory ends the line."""
        pairs = zip(self.columns, row, strict=True)
        return GAP.join(self.aligned(name, text) for name, text in pairs).rstrip()

    def aligned(self, name: str, text: str) -> str:
        """A cell with the width of its column; the last one as it is."""
        if name == "folder":
            return text
        return text.rjust(self._widths[name]) if name in self._numeric else text.ljust(self._widths[name])


def _fitting(cells: dict[str, list[str]], ranks: dict[str, int], width: int) -> dict[str, list[str]]:
    """The columns that fit, by rank; those without any value give way first, and the directory is always there."""
    chosen = {"folder"}
    used = min(LONG, max(map(len, cells["folder"])))
    for name in sorted(cells, key=lambda name: (ranks[name], list(cells).index(name))):
        column = cells[name]
        needed = max(map(len, column)) + len(GAP)
        if name not in chosen and any(text != "-" for text in column[1:]) and used + needed <= width:
            chosen.add(name)
            used += needed
    return {name: column for name, column in cells.items() if name in chosen}


def _cell(name: str, run: RunFigures) -> str:
    if name == "folder":
        return str(run.run.folder)
    value: Any = run.value(name)
    if name == "started":
        value = str(value or "")[:19].replace("T", " ")
        return value or "-"
    if isinstance(value, float) and name in (*_NUMBERS, *run.metrics):
        return f"{value:.1f}" if name == "seconds" else metric_text(value)
    return format_value(value)


def _is_numeric(name: str, runs: Sequence[RunFigures]) -> bool:
    values = [run.value(name) for run in runs]
    return all(isinstance(value, int | float) or value is None for value in values)
