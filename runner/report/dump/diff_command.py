"""`runner compare RUN_A RUN_B`: walk two dumps in the order of execution and show the first operator that differs."""

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from runner.errors import ConfigError, MismatchError
from runner.observe.dump.diff import Verdict, Walk
from runner.observe.dump.metrics import RTOL, Tolerance
from runner.observe.dump.recording import Dump
from runner.report.dump import diff_table
from runner.report.dump.diff_rows import Row, counted, described, summary

USAGE = "runner compare RUN_A RUN_B [--rtol X] [--atol X] [--all] [--json]"
_DEFAULTS = ", ".join(f"{value:g} for {kind}" for kind, value in RTOL.items())
HELP = f"""\
usage
  {USAGE}

RUN_A, RUN_B   run directories, dump paths, or folders below them down to that of one iteration

Operators are matched by full name, whether steps were sunk or not and whether names keep their classes, and compared in
the order of execution. The first one is shown that makes a difference: results outside of tolerance, and at least four
times as far apart (as |A - B| / |B| of whole tensors) as its inputs. When there is none, rounding has grown on the way
or the inputs came from elsewhere, and the first operator outside of tolerance is shown. Parameters and constants come
before all operators. B is the reference.

  --rtol X   an element differs when |a - b| > atol + rtol * max(|b|, rms, least), where rms is the root mean square of
             the finite elements of the tensor of B (elements near zero are often sums that cancel), and least the
             smallest normal number of the coarser of the two types. The default is that of the coarser type, too:
             {_DEFAULTS}.
             Integers and truth values must be equal. NaN equals NaN, an infinity equals itself.
  --atol X   0 unless given: gradients may be so small that any other number would hide their errors
  --all      do not stop: a table of all operators
  --json     one JSON object instead of tables

exit codes
  0 same   2 wrong usage   5 a file cannot be read   6 different   7 no dump, or a damaged one
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError("wrong usage", reason=message, usage=USAGE, hint="runner compare --help")


def main(words: Sequence[str]) -> int:
    """Compare and show. Returns 0 when the dumps agree and 6 when they do not.

    Raises ConfigError for wrong words, MismatchError when the dumps have nothing in common, DataError for missing and
    damaged files, StorageError for those that cannot be read.
    """
    given = _parser().parse_args(words)
    if given.help:
        print(HELP, end="")  # noqa: T201  what the flag is for
        return 0
    if len(given.runs) != 2:
        raise ConfigError("wrong usage", value=" ".join(words), usage=USAGE, hint="runner compare --help")
    a, b = (Dump(Path(run)) for run in given.runs)
    if a.path.resolve() != b.path.resolve() and a.places == b.places:
        hint = "dump into the run directories, or give each run a dump.path of its own"
        raise ConfigError("both runs have their dump in one place", path=a.device, hint=hint)
    found = compare(a, b, Tolerance(given.rtol, given.atol), given.all)
    if given.json:
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


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="runner compare", add_help=False, allow_abbrev=False)
    parser.add_argument("runs", nargs="*")
    parser.add_argument("--rtol", type=from_zero)
    parser.add_argument("--atol", type=from_zero, default=0.0)
    for flags in (("--all",), ("--json",), ("-h", "--help")):
        parser.add_argument(*flags, action="store_true")
    return parser


def from_zero(text: str) -> float:
    """A number of the command line that is finite and not below zero. Raises what argparse expects."""
    value = float(text)
    if not math.isfinite(value) or value < 0:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 0 on")
    return value
