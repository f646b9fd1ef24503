"""`runner compare RUN_A RUN_B`: walk two dumps in the order of execution and show the first operator that differs."""

import json
from collections.abc import Sequence
from pathlib import Path

from runner.errors import ConfigError, MismatchError
from runner.observe.dump.diff import Verdict, Walk
from runner.observe.dump.metrics import Tolerance
from runner.observe.dump.recording import Dump
from runner.report.dump import diff_table
from runner.report.dump.diff_rows import Row, counted, described, summary


def main(runs: Sequence[Path], tolerance: Tolerance, everything: bool, as_json: bool) -> int:
    """Compare two dumps and print the result. Returns 0 when they agree and 6 when they do not.

    Raises MismatchError when the dumps have nothing in common, ConfigError when both are one, DataError for missing and
    damaged files, StorageError for those that cannot be read.
    """
    a, b = map(Dump, runs)
    if a.path.resolve() != b.path.resolve() and a.places == b.places:
        hint = "dump into the run directories, or give each run a dump.path of its own"
        raise ConfigError("both runs have their dump in one place", path=a.device, hint=hint)
    found = compare(a, b, tolerance, everything)
    if as_json:
        print(json.dumps(found, allow_nan=False))  # noqa: T201  what the flag is for
    else:
        diff_table.show(found)
    return 0 if found["same"] else MismatchError.exit_code


def compare(a: Dump, b: Dump, tolerance: Tolerance, everything: bool = False) -> Row:
    """What `report.summary` describes. Only `everything` looks at what follows the first difference."""
    walk, verdict = Walk(a, b, tolerance), Verdict()
    rows: list[Row] | None = [] if everything else None
    counts = dict.fromkeys(("operators", "values", "tensors", "differing"), 0)
    for found in walk:
        counted(found, counts)
        goes_on = verdict.see(found)
        if rows is not None:
            rows.append(described(found))
        elif not goes_on:
            break
    return summary(walk, verdict, counts, rows)
