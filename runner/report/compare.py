"""`runner compare RUN_A RUN_B`: compares the dumps if both runs have one, otherwise configs and metrics."""

import json
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from runner.errors import ConfigError, DataError, MismatchError, StorageError
from runner.observe.tolerance import Tolerance
from runner.report.diff_metrics import MetricTolerance, Row, compare_runs
from runner.report.dump import tables as dumps
from runner.report.dump.reader import find_iterations
from runner.report.format import csv_text, markdown, tables, verdict
from runner.report.record import RunRecord
from runner.report.terminal import open_console, print_line, print_table


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
        if not any((folder / name).exists() for name in ("status.json", "metrics.jsonl", ".hydra")):
            raise ConfigError("not a run directory", path=folder, missing="status.json", hint="runner ls lists runs")
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
    if not all((folder / "status.json").is_file() for folder in folders):
        return []
    return [folder for folder in folders if not has_dump(folder)]


def _compare_metrics(runs: Sequence[Path], missing: Sequence[Path], args: Namespace) -> int:
    tolerance = MetricTolerance(MetricTolerance.rtol if args.rtol is None else args.rtol, args.atol)
    found = compare_run_directories(runs, tolerance)
    found["notes"] += [f"there is no dump in {run}, so operators are not compared" for run in missing]
    if args.json:
        print(json.dumps(found, allow_nan=False))  # noqa: T201  output of the command
    elif args.md or args.csv:
        print(markdown(found) if args.md else csv_text(found), end="")  # noqa: T201
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
