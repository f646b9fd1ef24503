"""Overrides from the command line: parsed with Hydra's grammar, checked, and converted for Hydra."""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import (
    ChoiceSweep,
    Glob,
    IntervalSweep,
    Override,
    OverrideType,
    RangeSweep,
    Sweep,
    ValueType,
)
from hydra.errors import HydraException

from runner.config import gate
from runner.errors import ConfigError
from runner.validation.rules import show

MAX_LENGTH = 4096
MAX_OVERRIDES = 1000
MAX_JOBS = 10_000
SIGNS = {"": OverrideType.CHANGE, "+": OverrideType.ADD, "++": OverrideType.FORCE_ADD}
COMMAND_LINE = "command line"
# What most overrides are: a key or a group, and a number or a word. They need no grammar, whose parser takes a
# millisecond for each and three for the first one.
SIMPLE = re.compile(
    r"(?P<key>[A-Za-z_]\w*(?:(?:\.[A-Za-z_]\w*)+|(?:/[A-Za-z_]\w*)+)?)="
    r"(?:(?P<int>0|[1-9]\d*)|(?P<float>(?:0|[1-9]\d*)\.\d+)|(?P<str>[A-Za-z_]\w*))",
    re.ASCII,
)
TYPES: dict[str, Callable[[str], int | float | str]] = {"int": int, "float": float, "str": str}
CONSTANTS = frozenset(("null", "true", "false", "nan", "inf"))  # words that are values, in any case of letters
# Keys whose text is not in Hydra's grammar (JSON and shapes); the shell removes their quotes.
TEXTS = ("profiling.options", "profiling.op_trace", "session.profiling_options", "session.op_trace")


def parse(lines: Sequence[str]) -> list[Override]:
    """Parsed and checked overrides. Raises ConfigError."""
    if len(lines) > MAX_OVERRIDES:
        raise ConfigError("too many overrides", value=len(lines), allowed=f"at most {MAX_OVERRIDES}")
    parsed = [parse_line(line) for line in lines]
    values = sum(len(sweep_values(one)) for one in parsed if one.is_discrete_sweep())
    if values > MAX_JOBS:
        raise ConfigError("the sweep has too many values", value=values, allowed=f"at most {MAX_JOBS}")
    _require_all_kept(parsed)
    return parsed


def _require_all_kept(parsed: Sequence[Override]) -> None:
    """Raise ConfigError for a value of a key whose own keys another override sets: Hydra would keep only one."""
    values = {one.key_or_group: one for one in parsed if "." in one.key_or_group and not isinstance(one._value, dict)}
    for one in parsed:
        parts = one.key_or_group.split(".")
        for end in range(2, len(parts)):
            whole = values.get(".".join(parts[:end]))
            if whole is not None and not whole.is_delete():
                rows = {"key": whole.key_or_group, "value": whole.get_value_string(), "also": str(one.input_line)}
                hint = f"{whole.key_or_group}.name={whole.get_value_string()}, if it is a name"
                raise ConfigError("a value and keys below it", **rows, hint=hint).add(**{"from": COMMAND_LINE})


def reject_sweeps(parsed: Sequence[Override]) -> None:
    """Raise ConfigError when an override has several values, for a single run."""
    for override in parsed:
        if override.is_sweep_override():
            hint = "-m sweeps over the values, [a,b] is a list, quotes make it text"
            rows = {"key": override.key_or_group, "value": override.get_value_string(), "hint": hint}
            raise ConfigError("several values for one run", **rows).add(**{"from": COMMAND_LINE})


def reject_repeated(parsed: Sequence[Override]) -> None:
    """Raise ConfigError for a key of a sweep with several values or a group of keys twice: Hydra keeps the last one."""
    first: dict[str, Override] = {}
    for one in parsed:
        other = first.setdefault(one.get_key_element().lstrip("+"), one)
        if other is not one and any(each.is_sweep_override() or isinstance(each._value, dict) for each in (other, one)):
            rows = {"key": one.key_or_group, "value": other.get_value_string(), "also": str(one.input_line)}
            repair = f"one {one.get_key_element()}=VALUE,VALUE,... with all values"
            raise ConfigError("one key of a sweep is given twice", **rows, repair=repair).add(**{"from": COMMAND_LINE})


def grid_errors(parsed: Sequence[Override]) -> Iterator[ConfigError]:
    """Errors of a sweep over all combinations of the values."""
    for one in parsed:
        if one.is_interval_sweep():
            hint = "hydra/sweeper=optuna searches in it; range(start,end,step) has values"
            yield ConfigError(
                "an interval is not a list of values", key=one.key_or_group, value=one.get_value_string()
            ).add(hint=hint)
    jobs = math.prod(len(sweep_values(one)) for one in parsed if one.is_discrete_sweep())
    if jobs > MAX_JOBS:
        hint = "hydra/sweeper=optuna tries some of them"
        yield ConfigError("the sweep has too many jobs", value=jobs, allowed=f"at most {MAX_JOBS}", hint=hint)


def with_force(override: Override) -> str:
    """The line with `++`, which also sets unknown keys: these are reported later, all at once."""
    line = str(override.input_line)
    return line if override.is_hydra_override() or override.is_delete() else "++" + line.lstrip("+")


def sweep_values(override: Override) -> list[str]:
    """The values over which an override sweeps, as text; a pattern over group options counts as one."""
    value = override._value
    if isinstance(value, RangeSweep):
        return _range_values(override, value)
    return list(override.sweep_string_iterator()) if isinstance(value, ChoiceSweep) else ["*"]


def _range_values(override: Override, value: RangeSweep) -> list[str]:
    step, start, stop = (float(x or 0) for x in (value.step, value.start, value.stop))
    steps = (stop - start) / step if step else math.inf
    rows = {"key": override.key_or_group, "value": override.get_value_string()}
    if steps <= 0:
        raise ConfigError("an empty range", **rows, hint="the end of a range is exclusive")
    if not steps <= MAX_JOBS:
        raise ConfigError("not a usable range", **rows, allowed=f"1 to {MAX_JOBS} values")
    return list(override.sweep_string_iterator())


@lru_cache(maxsize=MAX_OVERRIDES)
def parse_line(line: str) -> Override:
    """The parsed and checked override of a line. Raises ConfigError."""
    _check_limits(line)
    try:
        override = _read(line)
        _scan(override)
    except ConfigError as error:
        raise error.add(**{"from": COMMAND_LINE}) from None
    except (HydraException, RecursionError, ValueError, ArithmeticError) as reason:
        lines = str(reason).splitlines() or [type(reason).__name__]
        message = next((text for text in lines if not text.startswith("Error ")), lines[0])  # of the parser
        hint = "write key=value or group=option"
        raise ConfigError("not an override", value=show(line), reason=message, hint=hint) from None
    return override


def _read(line: str) -> Override:
    """The override of a line. What follows `+` and `++` is parsed once: Hydra gets all of them with `++`."""
    signs = line[: len(line) - len(line.lstrip("+"))]
    override = _read_plain(line.removeprefix(signs)) if signs in SIGNS else None
    if override is None or override.is_delete():
        return _parser().parse_overrides([line])[0]
    return replace(override, type=SIGNS[signs], input_line=f"{signs}{override.input_line}")


@lru_cache(maxsize=MAX_OVERRIDES)
def _read_plain(line: str) -> Override:
    found = SIMPLE.fullmatch(line)
    if found and (found["str"] or "").lower() not in CONSTANTS:
        kind = str(found.lastgroup)
        return Override(OverrideType.CHANGE, found["key"], ValueType.ELEMENT, TYPES[kind](found[kind]), input_line=line)
    try:
        (override,) = _parser().parse_overrides([line])
    except HydraException:
        name, _, text = line.partition("=")
        if name.lstrip("+") not in TEXTS or text[:1] in "'\"":
            raise
        quoted = text.replace("'", r"\'")
        (override,) = _parser().parse_overrides([f"{name}='{quoted}'"])
    return override


@lru_cache(maxsize=1)
def _parser() -> OverridesParser:
    return OverridesParser.create()


def _check_limits(line: str) -> None:
    """Check length and depth before parsing: the parser is recursive and slow. Raises ConfigError."""
    depth = deepest = 0
    for letter in line[: MAX_LENGTH + 1]:
        depth += (letter in "[{(") - (letter in "]})")
        deepest = max(deepest, depth)
    if len(line) > MAX_LENGTH or deepest > 16:
        raise ConfigError("the override is too long or nested too deeply", value=show(line), **{"from": COMMAND_LINE})


def _scan(override: Override) -> None:
    key = override.key_or_group
    if override.package is not None:
        raise ConfigError(
            "an override cannot move a group to another package", key=key, value=show(override.input_line)
        )
    for part in key.replace("/", ".").split("."):
        gate.scan_key(part, key.rpartition(part)[0].rstrip("./"))
    if "/" in key:
        gate.scan_name(key, key)
    if key.split("/")[0] == "hydra" and key not in gate.HYDRA_GROUPS:
        raise ConfigError("a config may not change this part of Hydra", key=key, allowed=", ".join(gate.HYDRA_GROUPS))
    _reject_inner_sweeps(override)
    for one in _plain(override):
        if key.startswith("hydra."):
            gate.scan_hydra_key(key, one, in_file=False)
        gate.scan_values(one, key)


def _reject_inner_sweeps(override: Override) -> None:
    """Hydra parses sweeps inside of sweeps, lists and groups of keys, and cannot use them."""
    value = override._value
    todo: list[Any] = [*value.list] if isinstance(value, ChoiceSweep) else [value]
    while todo:
        one = todo.pop()
        if isinstance(one, Sweep | Glob) and one is not value:
            hint = "one list of values, such as 1,2,3 or range(1,4)"
            rows = {"key": override.key_or_group, "value": override.get_value_string(), "hint": hint}
            raise ConfigError("a sweep inside of another value", **rows)
        todo += one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()


def _plain(override: Override) -> Iterator[Any]:
    """The values of an override without the parser's wrappers; those of a sweep one by one."""
    value = override._value
    if isinstance(value, ChoiceSweep):
        yield from (replace(override, _value=one).value() for one in value.list)
    elif not isinstance(value, RangeSweep | IntervalSweep):
        yield override.value()
