"""The result of `compare_runs` as tables for the terminal, as Markdown and as CSV."""

from dataclasses import dataclass, field

from runner.host import console
from runner.host.console import spreadsheet_cell
from runner.report.diff_metrics import Row
from runner.report.record import code, inline, size_text, table_row

HEAD = ("part", "key", "A", "B", "abs", "rel", "differs")


@dataclass(frozen=True)
class Table:
    """A title, the names of the columns, and cells; `marked` are the indices of the rows that differ."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    marked: frozenset[int] = field(default=frozenset())


def verdict(found: Row) -> str:
    """The result in one line, beginning with `same: ` or `different: `."""
    losses = found["losses"]
    if found["same"]:
        return f"same: {losses['steps']} losses and {len(found['metrics'])} metrics agree within rtol {found['rtol']:g}"
    reasons = [f"{row['metric']} differs" for row in found["metrics"] if row["differs"]]
    if losses["differing"]:
        first = losses["first"]["global_step"]
        reasons.append(f"{losses['differing']} of {losses['steps']} losses differ, first at step {first}")
    reasons += [f"{losses[f'only_{side}']} steps only in {side.upper()}" for side in "ab" if losses[f"only_{side}"]]
    return f"different: {'; '.join(reasons or ['there are no metrics'])}"


def tables(found: Row) -> list[Table]:
    """Metrics and losses, then the differing keys of configs, manifests and speed."""
    result = [_metrics(found)] if found["metrics"] or found["losses"]["steps"] else []
    titles = {"config": "config", "manifest": "what the numbers depend on", "figures": "speed and memory"}
    for part, title in titles.items():
        rows: list[tuple[str, ...]] = [
            (row["key"], format_value(row["a"]), format_value(row["b"])) for row in found[part]
        ]
        if rows:
            result.append(Table(title, ("key", "A", "B"), rows))
    return result


def markdown(found: Row) -> str:
    """Markdown for a comment on a pull request or the summary of a CI job."""
    lines = [f"**{inline(verdict(found))}**", "", f"A {code(found['a'])}, B {code(found['b'])}", ""]
    for table in tables(found):
        lines += [f"### {table.title}", "", table_row(list(table.columns)), table_row(["---"] * len(table.columns))]
        lines += [table_row([inline(cell) for cell in cells]) for cells in table.rows] + [""]
    return "\n".join([*lines, *(f"note: {inline(note)}" for note in found["notes"])]).rstrip() + "\n"


def csv_text(found: Row) -> str:
    """One table with the columns of HEAD for spreadsheets (RFC 4180), in which no text is a formula."""
    names = "metric", "a", "b", "abs", "rel", "differs"
    rows: list[tuple[object, ...]] = [("metrics", *(_cell(one[name]) for name in names)) for one in found["metrics"]]
    rows += [("losses", name, value) for name, value in found["losses"].items() if name != "first"]
    rows += [(part, *one.values()) for part in ("config", "manifest", "figures") for one in found[part]]
    return console.csv_text([HEAD, *(tuple(map(spreadsheet_cell, cells)) for cells in rows)], "\r\n")


def format_value(value: object) -> str:
    """A value as the text of a table cell.

    >>> format_value(None), format_value(0.1), format_value(1e-7 / 3), format_value([1, 2])
    ('-', '0.1', '3.33333e-08', '1, 2')
    """
    if value is None:
        return "-"
    if isinstance(value, list | tuple):
        return ", ".join(map(format_value, value))
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _cell(value: object) -> object:
    """A number as it is, the size of an array."""
    return size_text(value) if isinstance(value, list) else value


def _side(value: object) -> str:
    return format_value(_cell(value))


def _word(row: Row) -> str:
    if not row["differs"]:
        return "ok"
    return f"DIFFERS in {row['differing']} of {row['elements']} numbers" if "elements" in row else "DIFFERS"


def _metrics(found: Row) -> Table:
    rows = [
        (
            row["metric"],
            *(_side(row[name]) for name in ("a", "b")),
            *(format_value(row[name]) for name in ("abs", "rel")),
            _word(row),
        )
        for row in found["metrics"]
    ]
    marked = {k for k, row in enumerate(found["metrics"]) if row["differs"]}
    losses = found["losses"]
    if losses["steps"]:
        first = losses["first"]
        word = f"DIFFERS at step {first['global_step']}" if first else "ok"
        ends = (format_value(first["a"]), format_value(first["b"])) if first else ("", "")
        marked |= {len(rows)} if first else set()
        rows.append(
            (f"{losses['steps']} losses", *ends, format_value(losses["max_abs"]), format_value(losses["max_rel"]), word)
        )
    return Table("metrics", ("metric", "A", "B", "max abs", "max rel", ""), rows, frozenset(marked))
