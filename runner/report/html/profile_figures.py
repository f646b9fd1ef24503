"""Reader of `profile_summary_{d}.json`: the figures of a profile that its console output had."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from runner.errors import ConfigError, DataError, StorageError
from runner.host import files, json
from runner.report.values import is_number

NAME = "profile_summary_*.json"
MAX_BYTES = 1 << 20


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


def read(folder: Path) -> ReportedFigures | None:
    """The figures of the first rank in a folder; None if there is no file or it is damaged."""
    for path in sorted(folder.rglob(NAME))[:1]:
        try:
            found = json.parse(files.read_bytes(path, MAX_BYTES).decode(), path.name)
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
