"""Reader of `profile_summary_{d}.json`: the figures of a profile that its console output had."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from runner.errors import ConfigError, DataError, StorageError
from runner.host import files, json_file
from runner.report.record import is_number

NAME = "profile_summary_*.json"
MAX_BYTES = 1 << 20


class ReportedTime(NamedTuple):
    """The time of a part of a step or of an operator in milliseconds, and its share of the step.

    `op_type` and `places` are those of an operator, and empty for a part.
    """

    name: str
    value: float
    is_mean: bool
    low: float
    high: float
    samples: int
    share: float
    op_type: str = ""
    places: str = ""


class ReportedFigures(NamedTuple):
    """The figures of a profile; `step` is in milliseconds, `operators` the number of all that were timed."""

    source: Path
    steps: int
    timed: int
    step: float
    parts: list[ReportedTime]
    operators: int
    ranking: list[ReportedTime]
    sentences: list[str]
    notes: list[str]
    next: str


def read(folder: Path) -> ReportedFigures | None:
    """The figures of the first rank in a folder; None if there is no file or it is damaged."""
    for path in sorted(folder.rglob(NAME))[:1]:
        try:
            found = json_file.parse(files.read_bytes(path, MAX_BYTES).decode(), path.name)
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
        parts=[_time(row, "part") for row in _list(found, "parts")],
        operators=int(_number(found, "operators")),
        ranking=[_time(row, "full_op_name") for row in _list(found, "ranking")],
        sentences=list(_texts(found, "sentences")),
        notes=list(_texts(found, "notes")),
        next=_text(found, "next"),
    )


def _time(row: Any, name: str) -> ReportedTime:
    is_mean = isinstance(row, dict) and "mean_us" in row
    value, low, high = (
        _number(row, key) / 1e3
        for key in ("mean_us" if is_mean else "median_us", "lower_quartile_us", "upper_quartile_us")
    )
    samples, share = int(_number(row, "samples")), _number(row, "share")
    kind, places = (_text(row, key) if name == "full_op_name" else "" for key in ("op_type", "places"))
    return ReportedTime(_text(row, name), value, is_mean, low, high, samples, share, kind, places)


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
