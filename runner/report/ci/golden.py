"""`runner golden --update|--check FILE [RUN_DIR]`: whether a run still gives the numbers that it gave."""

from dataclasses import replace
from pathlib import Path

from runner.errors import ConfigError, MismatchError
from runner.report import list_runs
from runner.report.ci import golden_file
from runner.report.ci.golden_check import Row, check
from runner.report.format import shown

_SHOWN = 12  # rows of the error


def main(file: str, run: str | None, should_update: bool) -> int:
    """Update the file from a run, or check the run against it; None is the newest run.

    Raises MismatchError when the run is not what it was, ConfigError and DataError for what cannot be compared.
    """
    folder = newest() if run is None else Path(run)
    return update(Path(file), folder) if should_update else checked(Path(file), folder)


def newest() -> Path:
    """The newest run in the folders that `runner ls` lists. Raises ConfigError when there is none."""
    found = list_runs.find(list_runs.default_folders())
    if not found:
        raise ConfigError("no run here", hint="runner golden --update|--check FILE RUN_DIR")
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
