"""`runner compare RUN_A RUN_B`: their dumps where both have one, or else configs and metrics."""

import json
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from runner.errors import ConfigError, DataError, MismatchError, StorageError
from runner.observe.dump.locate import find
from runner.observe.dump.metrics import Tolerance
from runner.report.diff_metrics import Bound, Row, likeness
from runner.report.dump import diff_command as dumps
from runner.report.format import Table, comma_separated, markdown, tables, verdict
from runner.report.record import Record

PIPED_WIDTH = 400  # columns; lines are not broken there


def main(given: Namespace) -> int:
    """Compare two runs and print the result. Returns 0 when they agree and 6 when they do not.

    Raises ConfigError for flags that exclude each other, and what the comparison of dumps raises.
    """
    of_metrics = [f"--{name}" for name in ("csv", "md", "metrics") if getattr(given, name)]
    of_dumps = [f"--{name}" for name in ("all", "dumps") if getattr(given, name)]
    if of_metrics and of_dumps:
        reason = f"{of_dumps[0]} and {of_metrics[0]}"
        raise ConfigError("wrong usage", reason=reason, hint="runner compare --help")
    runs = Path(given.a), Path(given.b)
    missing = [] if of_dumps else _without_dumps(runs)
    if of_metrics or missing:
        return _metrics(runs, missing, given)
    return dumps.main(runs, Tolerance(given.rtol, given.atol), given.all, given.json)


def between(folders: Sequence[Path], bound: Bound) -> Row:
    """`likeness` of two folders. Raises ConfigError when one is no run."""
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError("the run does not exist", path=folder, hint="runner ls lists runs")
        if not any((folder / name).exists() for name in ("status.json", "metrics.jsonl", ".hydra")):
            raise ConfigError("not a run directory", path=folder, missing="status.json", hint="runner ls lists runs")
    a, b = map(Record, folders)
    return likeness(a, b, bound)


def _without_dumps(folders: Sequence[Path]) -> list[Path]:
    """If all folders are runs, those that have no dump: then metrics are what can be compared. Otherwise none."""
    if not all((folder / "status.json").is_file() for folder in folders):
        return []
    return [folder for folder in folders if not has_dump(folder)]


def has_dump(folder: Path) -> bool:
    """Whether a run has a dump that can be found, or several to choose from."""
    try:
        find(folder)
    except (DataError, StorageError):
        return False
    except ConfigError:
        return True
    return True


def _metrics(runs: Sequence[Path], missing: Sequence[Path], given: Namespace) -> int:
    found = between(runs, Bound(Bound.rtol if given.rtol is None else given.rtol, given.atol))
    found["notes"] += [f"there is no dump in {run}, so operators are not compared" for run in missing]
    if given.json:
        print(json.dumps(found, allow_nan=False))  # noqa: T201  what the flag is for
    elif given.md or given.csv:
        print(markdown(found) if given.md else comma_separated(found), end="")  # noqa: T201
    else:
        _show(found)
    return 0 if found["same"] else MismatchError.exit_code


def _show(found: Row) -> None:
    # rich takes 60 ms to import, and --json needs none of it
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(width=PIPED_WIDTH, soft_wrap=True, highlight=False)
    console.print(Text(verdict(found), style="green" if found["same"] else "bold red"))
    for table in tables(found):
        console.print(_rich(table))
    for note in found["notes"]:
        console.print(Text(f"note: {note}"))


def _rich(table: Table) -> object:
    from rich.box import SIMPLE
    from rich.table import Table as RichTable
    from rich.text import Text

    made = RichTable(*table.columns, title=table.title, title_justify="left", box=SIMPLE)
    for number, row in enumerate(table.rows):
        made.add_row(*map(Text, row), style="red" if number in table.marked else "")
    return made
