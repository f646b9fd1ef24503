"""`runner compare RUN_A RUN_B`: their dumps where both have one, or else configs and metrics."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from runner.errors import ConfigError, DataError, MismatchError, StorageError
from runner.observe.dump.locate import find
from runner.report.diff_metrics import Bound, Row, likeness
from runner.report.dump import diff_command as dumps
from runner.report.dump.diff_command import from_zero
from runner.report.format import Table, comma_separated, markdown, tables, verdict
from runner.report.record import Record

USAGE = "runner compare RUN_A RUN_B [--metrics] [--rtol X] [--atol X] [--md | --json | --csv]"
HELP = f"""

configs and metrics
  {USAGE}

--metrics compares every loss, the metrics, configs, manifests and speed; so do --md and --csv, and runs without dumps.
Losses and metrics decide: |a - b| <= atol + rtol * |b|, with 1e-4 and 0 unless given. B is the reference.

  --metrics  not the dumps            --dumps  the dumps, or an error when there are none
  --md       as Markdown              --csv    as CSV: part, key, A, B, abs, rel, differs
"""
_CHOSEN = {"--metrics", "--md", "--csv"}
_DUMPS = {"--dumps", "--all"}
PIPED_WIDTH = 400  # columns; lines are not broken there


def main(words: Sequence[str]) -> int:
    """Compare and show. Returns 0 when the runs agree and 6 when they do not.

    Raises ConfigError for wrong words, and what the comparison of dumps raises.
    """
    if "--help" in words or "-h" in words:
        print(dumps.HELP.rstrip() + HELP, end="")  # noqa: T201  what the flag is for
        return 0
    wanted = _CHOSEN.intersection(words)
    if wanted and (both := _DUMPS.intersection(words)):
        raise ConfigError(
            "wrong usage", reason=f"{min(both)} and {min(wanted)}", usage=USAGE, hint="runner compare --help"
        )
    missing = [] if _DUMPS.intersection(words) else _without_dumps(words)
    if wanted or missing:
        return _metrics(words, missing)
    return dumps.main([word for word in words if word != "--dumps"])


def between(folders: Sequence[Path], bound: Bound) -> Row:
    """`likeness` of two folders. Raises ConfigError when one is no run."""
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError("the run does not exist", path=folder, hint="runner ls lists runs")
        if not any((folder / name).exists() for name in ("status.json", "metrics.jsonl", ".hydra")):
            raise ConfigError("not a run directory", path=folder, missing="status.json", hint="runner ls lists runs")
    a, b = map(Record, folders)
    return likeness(a, b, bound)


def _without_dumps(words: Sequence[str]) -> list[Path]:
    """Of two runs those that have no dump: then their metrics are what can be compared. None for all other paths."""
    runs = [Path(word) for word in words if (Path(word) / "status.json").is_file()]
    return [run for run in runs if not has_dump(run)] if len(runs) == 2 else []


def has_dump(folder: Path) -> bool:
    """Whether a run has a dump that can be found, or several to choose from."""
    try:
        find(folder)
    except (DataError, StorageError):
        return False
    except ConfigError:
        return True
    return True


def _metrics(words: Sequence[str], missing: Sequence[Path]) -> int:
    given = _parser().parse_args([word for word in words if word != "--metrics"])
    if len(given.runs) != 2:
        raise ConfigError("wrong usage", value=" ".join(words), usage=USAGE, hint="runner compare --help")
    found = between([Path(run) for run in given.runs], Bound(given.rtol, given.atol))
    found["notes"] += [f"there is no dump in {run}, so operators are not compared" for run in missing]
    if given.json:
        print(json.dumps(found, allow_nan=False))  # noqa: T201  what the flag is for
    elif given.md or given.csv:
        print(markdown(found) if given.md else comma_separated(found), end="")  # noqa: T201
    else:
        _show(found)
    return 0 if found["same"] else MismatchError.exit_code


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError("wrong usage", reason=message, usage=USAGE, hint="runner compare --help")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="runner compare", add_help=False, allow_abbrev=False)
    parser.add_argument("runs", nargs="*")
    parser.add_argument("--rtol", type=from_zero, default=Bound.rtol)
    parser.add_argument("--atol", type=from_zero, default=Bound.atol)
    forms = parser.add_mutually_exclusive_group()
    for flag in ("--md", "--json", "--csv"):
        forms.add_argument(flag, action="store_true")
    return parser


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
