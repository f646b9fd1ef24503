"""Summary of the tables of a profile, of any device and program: the parts of a step and the slowest operators."""

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
TICKS_PER_MS = 1e5  # a tick is 10 ns
MAX_BYTES = 8 << 20
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


def read(folder: Path) -> ProfileSummary | None:
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
    found = {name: _number(average.get(column)) for column, name in _PARTS.items()}
    return {name: ticks / TICKS_PER_MS for name, ticks in found.items() if ticks is not None and ticks >= 0}


def _operators(rows: list[dict[str, str]]) -> list[OperatorTotal]:
    """The operators, slowest first; the unit is part of the column name."""
    operators = []
    for row in rows:
        column = next((name for name in row if re.match(r"op_total_time|execution_time", name)), "")
        total, name = _number(row.get(column)), row.get("full_op_name") or row.get("op_full_name")
        if total is None or not name:
            continue
        unit = re.search(r"\((us|ms|s)\)", column)
        calls = _number(row.get("op_occurrences"))
        op_type = row.get("op_type") or re.sub(r"-op\d+$", "", name.rpartition("/")[2])
        factor = _UNITS[unit[1]] if unit else 1.0
        operators.append(OperatorTotal(name, op_type, None if calls is None else int(calls), total * factor))
    return sorted(operators, key=lambda operator: -operator.total)


def _rows(path: Path) -> Iterator[dict[str, str]]:
    try:
        text = files.read_bytes(path, MAX_BYTES).decode(errors="replace")
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
