"""`runner golden --update|--check FILE [RUN_DIR]`: writes the results of a run to a golden file, or checks a run
against it."""

from dataclasses import replace
from pathlib import Path

from runner.errors import ConfigError, MismatchError
from runner.report.ci import golden_file
from runner.report.ci.golden_check import ComparedValue, compare
from runner.report.format import format_value
from runner.report.runs import list_runs

_MAX_ROWS = 12  # of the error


def main(file: str, run: str | None, should_update: bool) -> int:
    """Update the file from a run, or check the run against it. `run` None means the newest run.

    Raises MismatchError if the results differ, ConfigError and DataError for what cannot be compared.
    """
    folder = newest_run() if run is None else Path(run)
    return update(Path(file), folder) if should_update else check(Path(file), folder)


def newest_run() -> Path:
    """The newest run in the folders that `runner ls` lists. Raises ConfigError if there is none."""
    runs = list_runs.find_runs(list_runs.default_folders())
    if not runs:
        raise ConfigError("no run here", hint="runner golden --update|--check FILE RUN_DIR")
    return runs[0].folder


def update(file: Path, run: Path) -> int:
    """Write the results of a run; the settings that users edit in an existing file are kept."""
    golden = golden_file.from_run(run)
    if file.exists():
        old = golden_file.read(file)
        golden = replace(golden, may_differ=old.may_differ, exact=old.exact, tolerance=old.tolerance)
    golden_file.write(file, golden)
    print(f"{file}: {len(golden.metrics)} metrics and {len(golden.tensors)} tensors of {run}")  # noqa: T201  output
    return 0


def check(file: Path, run: Path) -> int:
    """Check a run against the file. Raises MismatchError."""
    golden = golden_file.read(file)
    rows, differing = compare(golden, golden_file.from_run(run))
    wrong = [row for row in rows if row.differs]
    how = "bit for bit" if golden.exact and not differing else "within tolerance"
    how += f" ({', '.join(differing)}: not the same)" if differing else ""
    if wrong:
        is_foreign = any(row.name.startswith("key.") for row in wrong)
        what = "the run does not belong to this file" if is_foreign else "the results of the run have changed"
        error = MismatchError(what, file=file, run=run, compared=None if is_foreign else how)
        error.add(**{row.name: _describe(row) for row in wrong[:_MAX_ROWS]})
        error.add(more=f"{len(wrong) - _MAX_ROWS} other values" if len(wrong) > _MAX_ROWS else None)
        raise error.add(hint=f"if the change is intended: runner golden --update {file} {run}")
    print(f"unchanged, {how}: {len(rows)} values of {run}")  # noqa: T201  output
    return 0


def _describe(row: ComparedValue) -> str:
    allowed = f", allowed {row.allowed}" if row.allowed else ""
    return f"was {format_value(row.was)}, is {format_value(row.now)}{allowed}"
