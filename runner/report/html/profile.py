"""The section of a run's profile: `render` shows the figures that the console had, from `profile_summary_{d}.json`, or
what is in tables of other profilers.
"""

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from runner.errors import ConfigError, DataError, StorageError
from runner.host import files, json
from runner.report.html.page import Content, Markup, bar, concat, notes, table, tag
from runner.report.record import is_number

# The figures.

NAME = "profile_summary_*.json"
SUMMARY_BYTES = 1 << 20


class ReportedTime(NamedTuple):
    """A time in milliseconds: of a step, of a part of it, or of an operator with its `places` in the ranking."""

    name: str
    value: float
    is_mean: bool
    low: float
    high: float
    samples: int
    share: float
    places: str = ""


class ReportedFigures(NamedTuple):
    """The figures of a profile; `step` is the sum of its parts in milliseconds, `spread` the distribution of this sum,
    `operators` the number of all that were timed.
    """

    source: Path
    steps: int
    timed: int
    step: float
    spread: ReportedTime
    parts: list[ReportedTime]
    operators: int
    ranking: list[ReportedTime]
    sentences: list[str]
    notes: list[str]
    next: str


def read_figures(folder: Path) -> ReportedFigures | None:
    """The figures of the first rank in a folder; None if there is no file or it is damaged."""
    for path in sorted(folder.rglob(NAME))[:1]:
        try:
            found = json.parse_config(files.read_bytes(path, SUMMARY_BYTES).decode(), path.name)
            return _figures(path, found)
        except (ConfigError, DataError, StorageError, UnicodeDecodeError, _Damaged):
            return None
    return None


class _Damaged(Exception):
    """A value has another type than it should."""


def _figures(path: Path, found: Any) -> ReportedFigures:
    return ReportedFigures(
        source=path,
        steps=int(_number(found, "steps")),
        timed=int(_number(found, "timed_steps")),
        step=_number(found, "step_us") / 1e3,
        spread=_time("step", _value(found, "step"), 1.0),
        parts=[_time(_text(row, "part"), row, _number(row, "share")) for row in _list(found, "parts")],
        operators=int(_number(found, "operators")),
        ranking=[
            _time(_text(row, "full_op_name"), row, _number(row, "share"), _text(row, "places"))
            for row in _list(found, "ranking")
        ],
        sentences=list(_texts(found, "sentences")),
        notes=list(_texts(found, "notes")),
        next=_text(found, "next"),
    )


def _time(name: str, row: Any, share: float, places: str = "") -> ReportedTime:
    is_mean = isinstance(row, dict) and "mean_us" in row
    keys = "mean_us" if is_mean else "median_us", "lower_quartile_us", "upper_quartile_us"
    value, low, high = (_number(row, key) / 1e3 for key in keys)
    return ReportedTime(name, value, is_mean, low, high, int(_number(row, "samples")), share, places)


def _value(values: Any, key: str) -> Any:
    if not isinstance(values, dict) or key not in values:
        raise _Damaged(key)
    return values[key]


def _number(values: Any, key: str) -> float:
    value = _value(values, key)
    if not is_number(value):
        raise _Damaged(key)
    return float(value)


def _text(values: Any, key: str) -> str:
    value = _value(values, key)
    if not isinstance(value, str):
        raise _Damaged(key)
    return value


def _list(values: Any, key: str) -> list[Any]:
    value = _value(values, key)
    if not isinstance(value, list):
        raise _Damaged(key)
    return value


def _texts(values: Any, key: str) -> Iterator[str]:
    for value in _list(values, key):
        yield _text({key: value}, key)


# The tables of a profile, of any device and program: the parts of a step and the slowest operators.

STEPS = "*step_trace_raw_*_detail_time.csv"
OPERATORS = ("*_op_detail_info_*.csv", "aicore_intermediate_*_detail.csv")
TICKS_PER_MS = 1e5  # a tick is 10 ns
TABLE_BYTES = 8 << 20
_UNITS = {"us": 1e-3, "ms": 1.0, "s": 1e3}
_PARTS = {"iteration_interval": "data and waiting", "fp_and_bp": "forward and backward", "tail": "update and rest"}


class OperatorTotal(NamedTuple):
    """The total time of an operator over all of its calls, in milliseconds."""

    name: str
    op_type: str
    calls: int | None
    total: float


class ProfileSummary(NamedTuple):
    """The parts of the mean step in milliseconds, by name, and operators, slowest first. Either may be empty."""

    parts: dict[str, float]
    operators: list[OperatorTotal]
    sources: list[Path]


def read_tables(folder: Path) -> ProfileSummary | None:
    """The summary of the profile below a folder; None if there is no readable profile."""
    parts: dict[str, float] = {}
    operators: list[OperatorTotal] = []
    sources = []
    for pattern in (STEPS, *OPERATORS):
        for path in sorted(folder.rglob(pattern))[:1]:
            rows = list(_rows(path))
            if pattern == STEPS and not parts:
                parts = _parts(rows)
            elif pattern != STEPS and not operators:
                operators = _operators(rows)
            sources.append(path)
    return ProfileSummary(parts, operators, sources) if parts or operators else None


def _parts(rows: list[dict[str, str]]) -> dict[str, float]:
    """The parts of the mean step, from the row of averages, whose step number is a dash."""
    average = next((row for row in rows if row.get("step_num") == "-"), {})
    found = {name: _cell_number(average.get(column)) for column, name in _PARTS.items()}
    return {name: ticks / TICKS_PER_MS for name, ticks in found.items() if ticks is not None and ticks >= 0}


def _operators(rows: list[dict[str, str]]) -> list[OperatorTotal]:
    """The operators, slowest first; the unit is part of the column name."""
    operators = []
    for row in rows:
        column = next((name for name in row if re.match(r"op_total_time|execution_time", name)), "")
        total, name = _cell_number(row.get(column)), row.get("full_op_name") or row.get("op_full_name")
        if total is None or not name:
            continue
        unit = re.search(r"\((us|ms|s)\)", column)
        calls = _cell_number(row.get("op_occurrences"))
        op_type = row.get("op_type") or re.sub(r"-op\d+$", "", name.rpartition("/")[2])
        factor = _UNITS[unit[1]] if unit else 1.0
        operators.append(OperatorTotal(name, op_type, None if calls is None else int(calls), total * factor))
    return sorted(operators, key=lambda operator: -operator.total)


def _rows(path: Path) -> Iterator[dict[str, str]]:
    try:
        text = files.read_bytes(path, TABLE_BYTES).decode(errors="replace")
    except (DataError, StorageError):
        return
    try:
        for row in csv.DictReader(io.StringIO(text)):
            yield {name.strip(): (value or "").strip() for name, value in row.items() if isinstance(name, str)}
    except csv.Error:
        return


def _cell_number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if value == value and abs(value) < 1e300 else None


# The section.

MAX_OPERATORS = 15
TIME = ("ms", "lower quartile", "upper quartile", "share")


def render(folder: Path) -> tuple[Markup | None, list[Path]]:
    """The section about the profile in a folder and the files that it shows; None if there is no readable one."""
    if (figures := read_figures(folder)) is not None:
        return _section(figures), [figures.source]
    if (found := read_tables(folder)) is not None:
        return _tables(found), found.sources
    return None, []


def _section(figures: ReportedFigures) -> Markup:
    content = [
        tag("h3", "One step"),
        tag("p", _step(figures), class_="sub"),
        bar({part.name: part.value for part in figures.parts}, "ms"),
        table(
            ("part", *TIME, "samples"),
            [(part.name, *_time_cells(part), part.samples) for part in figures.parts],
        ),
    ]
    if figures.ranking:
        ranked = figures.ranking[:MAX_OPERATORS]
        rows = [(one.places, *_time_cells(one), tag("span", one.name, class_="mono")) for one in ranked]
        content.append(tag("h3", f"Slowest operators, {len(rows)} of {figures.operators}, in {figures.timed} steps"))
        content.append(table(("place", *TIME, "full name"), rows))
    content += [tag("p", sentence) for sentence in figures.sentences]
    return concat(*content, notes(figures.notes), tag("p", f"Next: {figures.next}"))


def _step(figures: ReportedFigures) -> str:
    """The time of a step, its quartiles if there are some, and where the figures come from."""
    samples = figures.spread.samples
    spread = f" (quartiles of {samples}: {figures.spread.low:.3f} to {figures.spread.high:.3f} ms)"
    means = ", ".join(part.name for part in figures.parts if part.is_mean)
    kinds = f"Times are medians; {means}: mean." if means else "Times are medians."
    timed = f"{figures.steps} steps, operators were timed in {figures.timed} of them."
    return f"{figures.step:.3f} ms{spread if samples > 1 else ''}; {timed} {kinds}"


def _time_cells(time: ReportedTime) -> tuple[Content, ...]:
    return round(time.value, 3), round(time.low, 3), round(time.high, 3), _share(time.share)


def _tables(found: ProfileSummary) -> Markup:
    parts: list[Markup] = []
    if found.parts:
        parts += [tag("h3", "Mean step"), bar(found.parts, "ms")]
    if found.operators:
        total = sum(operator.total for operator in found.operators) or 1.0
        rows = [
            (op.op_type, tag("span", op.name, class_="mono"), op.calls, op.total, _share(op.total / total))
            for op in found.operators[:MAX_OPERATORS]
        ]
        parts.append(tag("h3", f"Slowest operators, {len(rows)} of {len(found.operators)}"))
        parts.append(table(("type", "full name", "calls", "ms", "share"), rows, sortable=True))
    return concat(*parts)


def _share(part: float) -> Markup:
    return concat(tag("span", class_="share", style=f"width:{120 * part:.1f}px"), f" {100 * part:.1f}%")
