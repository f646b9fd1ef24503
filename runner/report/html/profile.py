"""What a profile says: the parts of a step, and the slowest operators. Files of any device, found by their columns."""

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from runner.errors import DataError, StorageError
from runner.host import files

STEPS = "*step_trace_raw_*_detail_time.csv"
OPERATORS = ("*_op_detail_info_*.csv", "aicore_intermediate_*_detail.csv")
TICKS = 1e5  # of 10 ns in a millisecond
MOST_BYTES = 8 << 20
_UNITS = {"us": 1e-3, "ms": 1.0, "s": 1e3}
_PARTS = {"iteration_interval": "data and waiting", "fp_and_bp": "forward and backward", "tail": "update and rest"}


class Operator(NamedTuple):
    """Milliseconds of an operator, in all of its calls."""

    name: str
    kind: str
    calls: int | None
    total: float


class Profile(NamedTuple):
    """Milliseconds of the parts of a mean step, by name, and operators, the slowest first. Either may be empty."""

    parts: dict[str, float]
    operators: list[Operator]
    sources: list[Path]


def read(folder: Path) -> Profile | None:
    """The profile below a folder; None when there is none, or none that can be read."""
    parts: dict[str, float] = {}
    operators: list[Operator] = []
    sources = []
    for pattern in (STEPS, *OPERATORS):
        for path in sorted(folder.rglob(pattern))[:1]:
            rows = list(_rows(path))
            if pattern == STEPS and not parts:
                parts = _parts(rows)
            elif pattern != STEPS and not operators:
                operators = _operators(rows)
            sources.append(path)
    return Profile(parts, operators, sources) if parts or operators else None


def _parts(rows: list[dict[str, str]]) -> dict[str, float]:
    """Of the row of averages, whose number is a dash."""
    average = next((row for row in rows if row.get("step_num") == "-"), {})
    found = {name: _number(average.get(column)) for column, name in _PARTS.items()}
    return {name: ticks / TICKS for name, ticks in found.items() if ticks is not None and ticks >= 0}


def _operators(rows: list[dict[str, str]]) -> list[Operator]:
    """The slowest first; the unit stands in the name of the column."""
    made = []
    for row in rows:
        column = next((name for name in row if re.match(r"op_total_time|execution_time", name)), "")
        total, name = _number(row.get(column)), row.get("full_op_name") or row.get("op_full_name")
        if total is None or not name:
            continue
        unit = re.search(r"\((us|ms|s)\)", column)
        calls = _number(row.get("op_occurrences"))
        kind = row.get("op_type") or re.sub(r"-op\d+$", "", name.rpartition("/")[2])
        factor = _UNITS[unit[1]] if unit else 1.0
        made.append(Operator(name, kind, None if calls is None else int(calls), total * factor))
    return sorted(made, key=lambda operator: -operator.total)


def _rows(path: Path) -> Iterator[dict[str, str]]:
    try:
        text = files.read_bytes(path, MOST_BYTES).decode(errors="replace")
    except (DataError, StorageError):
        return
    try:
        for row in csv.DictReader(io.StringIO(text)):
            yield {name.strip(): (value or "").strip() for name, value in row.items() if isinstance(name, str)}
    except csv.Error:
        return


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if value == value and abs(value) < 1e300 else None
