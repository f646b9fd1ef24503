"""`runner ls`: lists the runs below a folder, newest first, including those whose files are damaged.

Before the command stand its parts: the figures of a run, the selection of runs, and the table.
"""

import json
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from runner import rundir
from runner.config.code import OUTPUTS, SWEEPS, project
from runner.errors import ConfigError, nearest
from runner.host.console import visible
from runner.host.json import without_lists
from runner.report.record import RunRecord, format_value, is_number, last_events, metric_text, open_console
from runner.rundir import run_directories
from runner.validation.rules import Frozen

# What `runner ls` shows of a run: names, state, loss and metrics, and any key of its config.

EVALUATION = ("event", "epoch", "global_step")  # of an `eval` event; its other names are metrics
TEST_LOSS = "eval.loss"
# Of metrics that no summary lists, since no run with them has ended.
LARGER_IS_BETTER = frozenset({"accuracy", "top_5", "precision", "recall", "f1", "r2"})


class RunFigures:
    """The figures of a run, read when first used; those of an unfinished run are from the end of its metrics."""

    def __init__(self, run: RunRecord) -> None:
        self.run = run

    @cached_property
    def values(self) -> dict[str, Any]:
        """`run_dir`, `status`, `started`, ...: an object of `runner ls --json`. What is not known is None."""
        said, summary = self.run.status, self._summary
        names = ("started", "finished", "exit_code", "experiment", "network", "dataset", "mode", "device")
        return {
            "run_dir": str(self.run.folder),
            "status": self.run.state,
            **{name: _plain(said.get(name)) for name in names},
            "steps": _number(summary.get("steps")),
            "loss": _number(summary.get("loss")),
            "metrics": self.metrics,
            "seconds": _number(summary.get("train_seconds")),
            "steps_per_second": _number(summary.get("steps_per_second")),
        }

    @cached_property
    def metrics(self) -> dict[str, float]:
        """The metrics of the last evaluation that are numbers; `eval.loss` is the loss on the evaluated split."""
        found = self._summary.get("metrics")
        numbers = {name: value for name, value in found.items() if is_number(value)} if isinstance(found, dict) else {}
        return {TEST_LOSS if name == "loss" else name: value for name, value in numbers.items()}

    @property
    def names(self) -> set[str]:
        """Everything that `value` knows of this run."""
        return {*self.values, *self.metrics, *self.run.config} - {"metrics"}

    def value(self, name: str) -> Any:
        """A figure, a metric, or a key of the config; for a group, such as `optimizer`, the name of its option."""
        for known in (self.values, self.metrics, self.run.config):
            if name in known:
                return known[name]
        return self.run.config.get(f"{name}.name")

    @cached_property
    def _summary(self) -> dict[str, Any]:
        """`summary.json`; for a run without it, the same names from the end of `metrics.jsonl`."""
        if not self.run.status or self.run.summary:
            return self.run.summary if self.run.status else {}
        found: dict[str, Any] = {}
        for event in last_events(self.run.folder / rundir.METRICS):
            if event["event"] == "eval":
                metrics = {name: value for name, value in event.items() if name not in EVALUATION}
                found["metrics"] = without_lists(metrics)
            else:
                found |= {"steps": event["global_step"], "loss": event["loss"]}
        return found


def _plain(value: object) -> object:
    return value if value is None or is_number(value) else str(value)


def _number(value: object) -> object:
    return value if is_number(value) else None


# Which runs `runner ls` shows, and in what order: `--status`, `--where`, `--sort`, `--best`, `--limit`.

NEWEST_FIRST = ("started", "finished")
_TRUTH = {"true": True, "false": False, "null": None}


class Selection(Frozen):
    """The flags of `runner ls` that select and sort runs. `where` has keys with the texts that they must equal."""

    states: tuple[str, ...] = ()
    where: tuple[tuple[str, str], ...] = ()
    sort: str | None = None
    limit: int | None = None
    best: bool = False

    @classmethod
    def of(cls, args: Namespace) -> "Selection":
        """From the parsed arguments. Raises ConfigError for a condition that is not KEY=VALUE."""
        pairs = [condition.partition("=") for condition in args.where]
        for (key, equals, _), text in zip(pairs, args.where, strict=True):
            if not key or not equals:
                raise ConfigError("not a condition", value=text, allowed="KEY=VALUE, such as optimizer.name=adam")
        where = tuple((key, value) for key, _, value in pairs)
        return cls(tuple(args.status), where, args.sort, args.limit, args.best)

    def apply(self, runs: Sequence[RunFigures]) -> list[RunFigures]:
        """The selected runs. `runs` are newest first, and stay so without another order.

        Raises ConfigError for a key that no run has.
        """
        key = self.sort or (_metric(runs) if self.best else None)
        _check_keys([*(name for name, _ in self.where), *filter(None, [key])], runs)
        found = [run for run in runs if self._accepts(run)]
        if key is not None:
            found = self._sorted(found, key, _maximized(runs))
        return found[: 1 if self.best else self.limit]

    def _accepts(self, run: RunFigures) -> bool:
        if self.states and run.run.state not in self.states:
            return False
        return all(is_equal(run.value(key), text) for key, text in self.where)

    def _sorted(self, runs: Sequence[RunFigures], key: str, maximized: Collection[str]) -> list[RunFigures]:
        """The runs by a value: the best metric first, the newest time first, others ascending; without a value last."""
        values = [(run.value(key), run) for run in runs]
        known = [(value, run) for value, run in values if value is not None]
        reverse = key in maximized or key in NEWEST_FIRST
        known.sort(key=lambda pair: (is_number(pair[0]), _order(pair[0])), reverse=reverse)
        without = [] if self.best else [run for value, run in values if value is None]
        return [run for _, run in known] + without


def is_equal(value: object, text: str) -> bool:
    """Whether a value of a config equals a text of the command line.

    >>> is_equal(0.1, "1e-1"), is_equal(True, "true"), is_equal(None, "null"), is_equal([1, 2], "[1,2]")
    (True, True, True, True)
    >>> is_equal("adam", "sgd"), is_equal(1, "true")
    (False, False)
    """
    if isinstance(value, bool) or value is None:
        return text.lower() in _TRUTH and _TRUTH[text.lower()] is value
    if isinstance(value, int | float):
        return _as_number(text) == value
    if isinstance(value, list):
        return ",".join(map(str, value)) == text.strip("[]").replace(", ", ",")
    return str(value) == text


def _as_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _order(value: Any) -> Any:
    return value if is_number(value) else str(value)


def _metric(runs: Sequence[RunFigures]) -> str:
    """The metric of `--best` without `--sort`: the accuracy if there is one, or else a loss."""
    names = {name for run in runs for name in run.metrics}
    return next((name for name in ("accuracy", TEST_LOSS) if name in names), "loss")


def _maximized(runs: Sequence[RunFigures]) -> frozenset[str]:
    """The names of the metrics for which larger is better."""
    said = [run.run.maximized for run in runs]
    return LARGER_IS_BETTER.union(*(names for names in said if names is not None))


def _check_keys(keys: Sequence[str], runs: Sequence[RunFigures]) -> None:
    """Raise ConfigError for a key that no run has; a group, such as `optimizer`, is one."""
    if not keys or not runs:
        return
    known: Mapping[str, None] = dict.fromkeys(name for run in runs for name in sorted(run.names))
    for key in keys:
        if key not in known and f"{key}.name" not in known:
            hint = "a column of `runner ls`, a metric, or a key of the config"
            raise ConfigError("no run has this key", key=key, nearest=nearest(key, known), hint=hint)


# The table of `runner ls`: the directory is always whole, and other columns give way until a line fits.

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


# The command.

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
