"""`runner compare RUN_A RUN_B`: compares the dumps if both runs have one, otherwise configs, losses and metrics.

`compare_runs` compares two runs without dumps; its result is plain values, which `--json` prints, and which `tables`,
`markdown` and `spreadsheet` show. Notebooks and pages about two runs use them too. Dumps are compared in `dump/`.
"""

import json
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from runner import rundir
from runner.errors import ConfigError, DataError, MismatchError, StorageError
from runner.host.console import csv_text, spreadsheet_cell
from runner.observe.tolerance import Tolerance
from runner.report.dump import tables as dumps
from runner.report.dump.reader import find_iterations
from runner.report.record import (
    RunRecord,
    code,
    differing_keys,
    format_value,
    inline,
    open_console,
    print_line,
    print_table,
    size_text,
    table_row,
)

Row = dict[str, Any]
FIGURES = ("status", "steps_per_second", "train_seconds", "compile_seconds", "first_loss_seconds", "peak_rss_mb")


@dataclass(frozen=True)
class MetricTolerance:
    """Values agree if |a - b| <= atol + rtol * |b|."""

    rtol: float = 1e-4
    atol: float = 0.0


# The command.


def main(args: Namespace) -> int:
    """Compare two runs and print the result. Returns 0 if they agree, otherwise 6.

    Raises ConfigError for mutually exclusive flags, and the errors of the dump comparison.
    """
    metric_flags = [f"--{name}" for name in ("csv", "md", "metrics") if getattr(args, name)]
    dump_flags = [f"--{name}" for name in ("all", "dumps", "strict") if getattr(args, name)]
    if metric_flags and dump_flags:
        reason = f"{dump_flags[0]} and {metric_flags[0]}"
        raise ConfigError("wrong usage", reason=reason, hint="runner compare --help")
    runs = Path(args.a), Path(args.b)
    missing = [] if dump_flags else _runs_without_dump(runs)
    if metric_flags or missing:
        return _compare_metrics(runs, missing, args)
    return dumps.main(runs, Tolerance(args.rtol, args.atol), args.all, args.strict, args.json)


def compare_run_directories(folders: Sequence[Path], tolerance: MetricTolerance) -> Row:
    """`compare_runs` for two folders. Raises ConfigError if one is not a run directory."""
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError("the run does not exist", path=folder, hint="runner ls lists runs")
        if not any((folder / name).exists() for name in (rundir.STATUS, rundir.METRICS, rundir.HYDRA)):
            raise rundir.not_a_run(folder)
    a, b = map(RunRecord, folders)
    return compare_runs(a, b, tolerance)


def has_dump(folder: Path) -> bool:
    """Whether a run has at least one dump that can be located."""
    try:
        find_iterations(folder)
    except (DataError, StorageError):
        return False
    except ConfigError:  # several dumps
        return True
    return True


def _runs_without_dump(folders: Sequence[Path]) -> list[Path]:
    """The runs that have no dump; none if one of the folders is not a run directory: it may be a dump itself."""
    if not all((folder / rundir.STATUS).is_file() for folder in folders):
        return []
    return [folder for folder in folders if not has_dump(folder)]


def _compare_metrics(runs: Sequence[Path], missing: Sequence[Path], args: Namespace) -> int:
    tolerance = MetricTolerance(MetricTolerance.rtol if args.rtol is None else args.rtol, args.atol)
    found = compare_run_directories(runs, tolerance)
    found["notes"] += [f"there is no dump in {run}, so operators are not compared" for run in missing]
    if args.json:
        print(json.dumps(found, allow_nan=False))  # noqa: T201  output of the command
    elif args.md or args.csv:
        print(markdown(found) if args.md else spreadsheet(found), end="")  # noqa: T201
    else:
        _print(found)
    return 0 if found["same"] else MismatchError.exit_code


def _print(found: Row) -> None:
    console = open_console()
    print_line(console, verdict(found), "green" if found["same"] else "bold red")
    for table in tables(found):
        rows = [(row, "red" if number in table.marked else "") for number, row in enumerate(table.rows)]
        print_table(console, [(name, "") for name in table.columns], rows, table.title)
    for note in found["notes"]:
        print_line(console, f"note: {note}")


# Comparison of two runs without dumps: configs, manifests, every loss, metrics and speed.


def compare_runs(a: RunRecord, b: RunRecord, tolerance: MetricTolerance) -> Row:
    """Compare two runs; B is the reference. Losses and metrics decide whether they are the same.

    {"same", "a", "b": paths, "rtol", "atol",
     "config", "manifest", "figures": [{"key", "a", "b"}, ...], differing keys only,
     "metrics": [{"metric", "a", "b", "abs", "rel", "differs"}, ...]; for arrays, "abs" and "rel" are the largest of
        their elements, "elements" and "differing" the numbers of all and of those that differ,
     "losses": as `compare_losses`, "notes": [text, ...]}

    A value that a run does not have is null.
    """
    x, y = ({**run.results, **run.arrays} for run in (a, b))
    metrics = [_metric(name, x.get(name), y.get(name), tolerance) for name in {**x, **y}]
    losses = compare_losses(a, b, tolerance)
    losses_agree = not losses["differing"] and not losses["only_a"] and not losses["only_b"]
    return {
        "same": losses_agree and bool(metrics) and not any(row["differs"] for row in metrics),
        "a": str(a.folder),
        "b": str(b.folder),
        "rtol": tolerance.rtol,
        "atol": tolerance.atol,
        "config": differing_values(a.config, b.config),
        "manifest": differing_values(a.manifest, b.manifest),
        "metrics": metrics,
        "losses": losses,
        "figures": differing_values(*({name: run.summary.get(name) for name in FIGURES} for run in (a, b))),
        "notes": [f"{side}: {note}" for side, run in (("A", a), ("B", b)) for note in run.notes],
    }


def compare_losses(a: RunRecord, b: RunRecord, tolerance: MetricTolerance) -> Row:
    """Compare the losses of the steps that both runs recorded.

    {"steps", "identical", "differing": counts, "only_a", "only_b": steps of one run, "max_abs", "max_rel": null without
     steps, "first": null or the first step that differs: {"global_step", "a", "b"}}
    """
    steps, left, right = np.intersect1d(a.metrics.steps, b.metrics.steps, return_indices=True)
    x, y = a.metrics.losses[left], b.metrics.losses[right]
    absolute = np.abs(x - y)
    outside = absolute > tolerance.atol + tolerance.rtol * np.abs(y)
    relative = np.divide(absolute, np.abs(y), out=np.where(absolute > 0, np.inf, 0.0), where=y != 0)
    first = int(np.argmax(outside)) if outside.any() else None
    return {
        "steps": len(steps),
        "identical": int(np.count_nonzero(absolute == 0)),
        "differing": int(np.count_nonzero(outside)),
        "only_a": len(np.setdiff1d(a.metrics.steps, steps)),
        "only_b": len(np.setdiff1d(b.metrics.steps, steps)),
        "max_abs": float(absolute.max()) if len(absolute) else None,
        "max_rel": _finite(float(relative.max())) if len(absolute) else None,
        "first": None if first is None else _step(steps[first], x[first], y[first]),
    }


def differing_values(a: dict[str, Any], b: dict[str, Any]) -> list[Row]:
    """A row for every key whose values differ."""
    return [{"key": key, "a": a.get(key), "b": b.get(key)} for key in differing_keys([a, b])]


def _metric(name: str, a: Any, b: Any, tolerance: MetricTolerance) -> Row:
    """The row of a number or an array."""
    x, y = ((None if one is None else np.asarray(one, np.float64)) for one in (a, b))
    if x is None or y is None or x.shape != y.shape:
        return {"metric": name, "a": a, "b": b, "abs": None, "rel": None, "differs": True}
    absolute = np.abs(x - y)
    relative = np.divide(absolute, np.abs(y), out=np.where(absolute > 0, np.inf, 0.0), where=y != 0)
    outside = absolute > tolerance.atol + tolerance.rtol * np.abs(y)
    largest = {"abs": float(absolute.max()), "rel": _finite(float(relative.max()))}
    counts = {"elements": x.size, "differing": int(outside.sum())} if x.ndim else {}
    return {"metric": name, "a": a, "b": b, **largest, "differs": bool(outside.any()), **counts}


def _finite(value: float) -> float | str:
    return value if np.isfinite(value) else "inf"


def _step(step: np.generic, a: np.generic, b: np.generic) -> Row:
    return {"global_step": int(step), "a": float(a), "b": float(b)}


# The result as tables for the terminal, as Markdown and as CSV.

HEAD = ("part", "key", "A", "B", "abs", "rel", "differs")


@dataclass(frozen=True)
class Table:
    """A title, the names of the columns, and cells; `marked` are the indices of the rows that differ."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    marked: frozenset[int] = field(default=frozenset())


def verdict(found: Row) -> str:
    """The result in one line, beginning with `same: ` or `different: `."""
    losses = found["losses"]
    if found["same"]:
        return f"same: {losses['steps']} losses and {len(found['metrics'])} metrics agree within rtol {found['rtol']:g}"
    reasons = [f"{row['metric']} differs" for row in found["metrics"] if row["differs"]]
    if losses["differing"]:
        first = losses["first"]["global_step"]
        reasons.append(f"{losses['differing']} of {losses['steps']} losses differ, first at step {first}")
    reasons += [f"{losses[f'only_{side}']} steps only in {side.upper()}" for side in "ab" if losses[f"only_{side}"]]
    return f"different: {'; '.join(reasons or ['there are no metrics'])}"


def tables(found: Row) -> list[Table]:
    """Metrics and losses, then the differing keys of configs, manifests and speed."""
    result = [_metrics(found)] if found["metrics"] or found["losses"]["steps"] else []
    titles = {"config": "config", "manifest": "what the numbers depend on", "figures": "speed and memory"}
    for part, title in titles.items():
        rows: list[tuple[str, ...]] = [
            (row["key"], format_value(row["a"]), format_value(row["b"])) for row in found[part]
        ]
        if rows:
            result.append(Table(title, ("key", "A", "B"), rows))
    return result


def markdown(found: Row) -> str:
    """Markdown for a comment on a pull request or the summary of a CI job."""
    lines = [f"**{inline(verdict(found))}**", "", f"A {code(found['a'])}, B {code(found['b'])}", ""]
    for table in tables(found):
        lines += [f"### {table.title}", "", table_row(list(table.columns)), table_row(["---"] * len(table.columns))]
        lines += [table_row([inline(cell) for cell in cells]) for cells in table.rows] + [""]
    return "\n".join([*lines, *(f"note: {inline(note)}" for note in found["notes"])]).rstrip() + "\n"


def spreadsheet(found: Row) -> str:
    """One table with the columns of HEAD for spreadsheets (RFC 4180), in which no text is a formula."""
    names = "metric", "a", "b", "abs", "rel", "differs"
    rows: list[tuple[object, ...]] = [("metrics", *(_cell(one[name]) for name in names)) for one in found["metrics"]]
    rows += [("losses", name, value) for name, value in found["losses"].items() if name != "first"]
    rows += [(part, *one.values()) for part in ("config", "manifest", "figures") for one in found[part]]
    return csv_text([HEAD, *(tuple(map(spreadsheet_cell, cells)) for cells in rows)], "\r\n")


def _cell(value: object) -> object:
    """A number as it is, the size of an array."""
    return size_text(value) if isinstance(value, list) else value


def _side(value: object) -> str:
    return format_value(_cell(value))


def _word(row: Row) -> str:
    if not row["differs"]:
        return "ok"
    return f"DIFFERS in {row['differing']} of {row['elements']} numbers" if "elements" in row else "DIFFERS"


def _metrics(found: Row) -> Table:
    rows = [
        (
            row["metric"],
            *(_side(row[name]) for name in ("a", "b")),
            *(format_value(row[name]) for name in ("abs", "rel")),
            _word(row),
        )
        for row in found["metrics"]
    ]
    marked = {k for k, row in enumerate(found["metrics"]) if row["differs"]}
    losses = found["losses"]
    if losses["steps"]:
        first = losses["first"]
        word = f"DIFFERS at step {first['global_step']}" if first else "ok"
        ends = (format_value(first["a"]), format_value(first["b"])) if first else ("", "")
        marked |= {len(rows)} if first else set()
        rows.append(
            (f"{losses['steps']} losses", *ends, format_value(losses["max_abs"]), format_value(losses["max_rel"]), word)
        )
    return Table("metrics", ("metric", "A", "B", "max abs", "max rel", ""), rows, frozenset(marked))
