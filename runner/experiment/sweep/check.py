"""Validates each value of a sweep before any of its jobs exists."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from hydra.core.override_parser.types import IntervalSweep, Override

from runner.config import overrides
from runner.config.check import examine
from runner.config.commands import CommandLine
from runner.config.compose import Composition, Loader, compose
from runner.config.gate import path_errors
from runner.config.groups import search
from runner.config.schema import plain
from runner.errors import ConfigError, raise_all
from runner.host.json import set_dotted


def check_sweep(loader: Loader, call: CommandLine, params: Sequence[str] = ()) -> Composition:
    """Validate every swept value, and return the composed config without them.

    `params` are overrides from `hydra.sweeper.params`. Raises ConfigError, or ConfigErrors.
    """
    parsed = overrides.parse((*params, *call.overrides))
    problems = [problem for problem in map(loader.unknown_option, parsed) if problem]
    raise_all(problems)
    lines = [_without_sweep(loader, override) for override in parsed]
    elsewhere = recorded_keys(call, params)
    plain_call = call._replace(overrides=tuple(line for line in lines if line), recorded=elsewhere)
    composition = compose(plain_call)
    errors: dict[str, ConfigError] = {}
    for key, value in _swept(loader, parsed):
        values = plain(composition.config)
        set_dotted(values, key, value)
        config, found = examine(values, lambda key: search.PARAMS if key in elsewhere else overrides.COMMAND_LINE)
        if not found and key in elsewhere:
            misplaced = path_errors(config, composition.folder, composition.typed)
            found = [error.add(**{"from": search.PARAMS}) for error in misplaced]
        errors |= {str(error): error for error in (_with_hint(error, parsed) for error in found)}
    raise_all(list(errors.values()))
    return composition


def recorded_keys(call: CommandLine, params: Sequence[str]) -> frozenset[str]:
    """The keys of overrides that the user has not typed: from `hydra.sweeper.params`, or from a resumed sweep."""
    from_file, typed = ({one.key_or_group for one in overrides.parse(lines)} for lines in (params, call.overrides))
    return call.recorded | (from_file - typed)


def _with_hint(error: ConfigError, parsed: Sequence[Override]) -> ConfigError:
    intervals = {one.key_or_group: one for one in parsed if one.is_interval_sweep()}
    override = intervals.get(error.rows["key"])
    if override is None or error.what != "not a whole number":
        return error
    del error.rows["value"]
    error.rows.pop("nearest", None)
    return error.add(value=override.get_value_string(), hint=f"int({override.get_value_string()})")


def _without_sweep(loader: Loader, override: Override) -> str | None:
    """The override with the first of its options; None for swept values."""
    if not override.is_sweep_override():
        return str(override.input_line)
    if not override.is_discrete_sweep() or not loader.is_option(override):
        return None
    options = overrides.sweep_values(override)
    first = loader.options(override.key_or_group)[0] if options == ["*"] else options[0]
    return f"{override.get_key_element()}={first}"


def _swept(loader: Loader, parsed: list[Override]) -> Iterator[tuple[str, Any]]:
    for override in parsed:
        if isinstance(override._value, IntervalSweep):
            yield from ((override.key_or_group, end) for end in (override._value.start, override._value.end))
        elif override.is_discrete_sweep() and not loader.is_option(override):
            lines = [f"x={value}" for value in overrides.sweep_values(override)]
            values = itertools.chain.from_iterable(overrides.parse([line]) for line in lines)
            yield from ((override.key_or_group, value.value()) for value in values)
