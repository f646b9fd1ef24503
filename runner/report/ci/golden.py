"""`runner golden --update|--check FILE [RUN_DIR]`: whether a run still gives the numbers that it gave."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from runner.errors import ConfigError, MismatchError
from runner.report import list_runs
from runner.report.ci import golden_file
from runner.report.ci.golden_check import Row, check
from runner.report.format import shown

USAGE = "runner golden --update|--check FILE [RUN_DIR]"
HELP = f"""\
usage
  {USAGE}

--update writes what a run gave into a file (JSON) that belongs under version control: metrics, losses, hashes of all
parameters, and what these numbers depend on. --check compares a run with it. A run with the same config, data, seed,
threads, processor and versions must give the same bits. One that differs in what the file's "may_differ" names must
stay within the file's "tolerance"; one that differs in anything else does not belong to the file. Edit both in the
file: an update keeps them. RUN_DIR is the newest run unless given.

exit codes
  0 as it was   2 wrong usage, or no finished run   5 a file cannot be written   6 different   7 a damaged file
"""
_SHOWN = 12  # rows of the error


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError("wrong usage", reason=message, usage=USAGE, hint="runner golden --help")


def main(words: Sequence[str]) -> int:
    """Do what the words say.

    Raises MismatchError when the run is not what it was, ConfigError and DataError for what cannot be compared.
    """
    parser = _Parser(prog="runner golden", add_help=False, allow_abbrev=False)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--update", action="store_true")
    what.add_argument("--check", action="store_true")
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("places", nargs="*")
    given = parser.parse_intermixed_args(words)
    if given.help:
        print(HELP, end="")  # noqa: T201  what the flag is for
        return 0
    if given.update == given.check or not 1 <= len(given.places) <= 2:
        raise ConfigError("wrong usage", value=" ".join(words), usage=USAGE, hint="runner golden --help")
    file = Path(given.places[0])
    run = Path(given.places[1]) if len(given.places) == 2 else newest()
    return update(file, run) if given.update else checked(file, run)


def newest() -> Path:
    """The newest run in the folders that `runner ls` looks into. Raises ConfigError when there is none."""
    found = list_runs.find([Path(name) for name in list_runs.DEFAULT_FOLDERS if Path(name).is_dir()])
    if not found:
        raise ConfigError("no run here", usage=USAGE)
    return found[0].folder


def update(file: Path, run: Path) -> int:
    """Write what a run gave; what the user has chosen in an old file stays."""
    made = golden_file.of_run(run)
    if file.exists():
        old = golden_file.read(file)
        made = replace(made, may_differ=old.may_differ, exact=old.exact, tolerance=old.tolerance)
    golden_file.write(file, made)
    print(f"{file}: {len(made.metrics)} metrics and {len(made.tensors)} tensors of {run}")  # noqa: T201  the answer
    return 0


def checked(file: Path, run: Path) -> int:
    """Say whether a run is what the file says. Raises MismatchError."""
    golden = golden_file.read(file)
    rows, differing = check(golden, golden_file.of_run(run))
    wrong = [row for row in rows if row.differs]
    how = "bit for bit" if golden.exact and not differing else "within tolerance"
    how += f" ({', '.join(differing)}: not the same)" if differing else ""
    if wrong:
        is_foreign = any(row.name.startswith("key.") for row in wrong)
        what = "the run does not belong to this file" if is_foreign else "the run is not what it was"
        error = MismatchError(what, file=file, run=run, compared=None if is_foreign else how)
        error.add(**{row.name: _told(row) for row in wrong[:_SHOWN]})
        error.add(more=f"{len(wrong) - _SHOWN} other values" if len(wrong) > _SHOWN else None)
        raise error.add(hint=f"when that is right: runner golden --update {file} {run}")
    print(f"as it was, {how}: {len(rows)} values of {run}")  # noqa: T201  the answer
    return 0


def _told(row: Row) -> str:
    allowed = f", allowed {row.allowed}" if row.allowed else ""
    return f"was {shown(row.was)}, is {shown(row.now)}{allowed}"
