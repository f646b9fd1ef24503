"""`runner compare RUN_A RUN_B` for dumps: finds the first operator, in execution order, that causes a difference."""

import json
from collections.abc import Sequence
from pathlib import Path

from runner.errors import ConfigError, MismatchError
from runner.observe.dump.diff import Verdict
from runner.observe.dump.dump import Dump
from runner.observe.dump.metrics import Tolerance
from runner.observe.dump.walk import DumpWalk
from runner.report.dump import diff_table
from runner.report.dump.diff_rows import Row, count, entry_row, summary


def main(runs: Sequence[Path], tolerance: Tolerance, everything: bool, strict: bool, as_json: bool) -> int:
    """Compare two dumps and print the result. Returns 0 if they agree, otherwise 6.

    `strict`: operators and parameters of one side only are a difference.

    Raises MismatchError if the dumps have nothing in common, ConfigError if both runs share one dump, DataError for
    missing and damaged files, StorageError for unreadable files.
    """
    a, b = map(Dump, runs)
    if a.path.resolve() != b.path.resolve() and a.locations == b.locations:
        hint = "dump into the run directories, or give each run a dump.path of its own"
        raise ConfigError("both runs have their dump in the same folder", path=a.device, hint=hint)
    found = compare(a, b, tolerance, everything, strict)
    if as_json:
        print(json.dumps(found, allow_nan=False))  # noqa: T201  output of the command
    else:
        diff_table.print_comparison(found)
    return 0 if found["same"] else MismatchError.exit_code


def compare(a: Dump, b: Dump, tolerance: Tolerance, everything: bool = False, strict: bool = False) -> Row:
    """The comparison of two dumps as `diff_rows.summary`; it ends at the first cause unless `everything` is set."""
    walk, verdict = DumpWalk(a, b, tolerance), Verdict()
    rows: list[Row] | None = [] if everything else None
    counts = dict.fromkeys(("operators", "values", "tensors", "differing"), 0)
    for found in walk:
        count(found, counts)
        is_open = verdict.add(found)
        if rows is not None:
            rows.append(entry_row(found))
        elif not is_open:
            break
    return summary(walk, verdict, counts, rows, strict)
