"""The table of a sweep's jobs."""

from collections.abc import Sequence
from pathlib import Path

from runner.experiment.sweep.state import Outcome, varying
from runner.host.console import visible
from runner.host.lazy import lazy_import

COLOURS = {"ok": "green", "failed": "red", "killed": "red", "interrupted": "yellow", "missing": "yellow"}


def show(outcomes: Sequence[Outcome], folder: Path) -> None:
    """Print the outcomes of all jobs: coloured on a terminal, otherwise as plain columns."""
    console_of, box, tables, texts = (lazy_import(f"rich.{name}") for name in ("console", "box", "table", "text"))
    console = console_of.Console()
    if not console.is_terminal:
        print("\n".join(plain(outcomes)))  # noqa: T201
    else:
        head, *rows = cells(outcomes)
        table = tables.Table(*head, box=box.SIMPLE)
        for outcome, row in zip(outcomes, rows, strict=True):
            style = {1: COLOURS.get(outcome.status, "")}
            table.add_row(*(texts.Text(text, style=style.get(place, "")) for place, text in enumerate(row)))
        console.print(table)
    done = sum(outcome.status == "ok" for outcome in outcomes)
    of = "" if done == len(outcomes) else f" of {len(outcomes)}"
    print(f"{done}{of} jobs finished in {folder}")  # noqa: T201


def plain(outcomes: Sequence[Outcome]) -> list[str]:
    """The lines of the table, in columns."""
    rows = cells(outcomes)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def cells(outcomes: Sequence[Outcome]) -> list[list[str]]:
    """The header and one row per job: number, status, exit code, overrides that not all jobs share, loss, metrics."""
    names = sorted({name for outcome in outcomes for name in outcome.metrics} - {"loss"})
    own = varying([outcome.overrides for outcome in outcomes])
    rows = [["job", "status", "exit", "overrides", "loss", *names], *(_row(one, names, own) for one in outcomes)]
    return [[visible(text) for text in row] for row in rows]


def ended_line(outcome: Outcome) -> str:
    """One line about a finished job."""
    values = {**outcome.metrics, "loss": outcome.loss}
    numbers = " ".join(f"{name} {value:.4f}" for name, value in values.items() if value is not None)
    result = numbers if outcome.status == "ok" else (outcome.error or "").partition("\n")[0]
    return visible(f"job {outcome.number} {outcome.status}: {' '.join(outcome.overrides)}  {result}".rstrip())


def _row(outcome: Outcome, names: Sequence[str], own: set[str]) -> list[str]:
    lines = [line for line in outcome.overrides if line in own]
    numbers = [outcome.loss, *(outcome.metrics.get(name) for name in names)]
    texts = ["-" if value is None else f"{value:.4f}" for value in numbers]
    return [str(outcome.number), outcome.status, str(outcome.exit_code), " ".join(lines) or "-", *texts]
