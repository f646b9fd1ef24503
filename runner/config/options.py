"""Options from tables: each entry of a table is an option of its group, without a file.

Files in `conf/` are for options that set several values, such as experiments, and take precedence over tables.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from runner.config import read
from runner.config.groups import GROUPS, NAMED, REGISTERED
from runner.config.groups.entries import CALLBACKS
from runner.config.schema import RunConfig, defaults
from runner.host import files

TABLES = (*GROUPS, "callbacks")


def all_options(folders: Iterable[Path] = ()) -> dict[str, list[str]]:
    """The options of each group of runner, from `conf/`, further folders and tables, in alphabetical order."""
    found: dict[str, set[str]] = {group: set(option_names(group)) for group in TABLES}
    for folder in (files.folder("conf"), *folders):
        for file in folder.glob("*/*"):
            if file.suffix in read.SUFFIXES:
                found.setdefault(file.parent.name, set()).add(file.stem)
    return {group: sorted(options) for group, options in sorted(found.items())}


def group_lines() -> Iterator[str]:
    """A line for each group of runner with its options, for `--help`."""
    for group, options in all_options().items():
        yield f"{group:<12}{', '.join(options)}"


def option_names(group: str) -> tuple[str, ...]:
    """The names of the options of a group that come from its table."""
    return tuple(CALLBACKS) if group == "callbacks" else tuple(GROUPS.get(group, ()))


def table_option(group: str, name: str) -> dict[str, Any] | None:
    """The values that an option from a table sets; None when there is no such option.

    >>> table_option("callbacks", "time_monitor"), table_option("dataset", "x")
    ({'time_monitor': True}, None)
    """
    if name not in option_names(group):
        return None
    if group == "callbacks":
        return {name: CALLBACKS[name]().written}
    kinds = GROUPS[group]
    is_default = not _is_in_option(group) and name == next(iter(kinds))  # its keys are already part of every run
    return {} if is_default else defaults(kinds[name])


def defaults_of_all_runs() -> dict[str, Any]:
    """The keys of all runs, whatever options are chosen, with their defaults: the config `schema/run`."""
    values = defaults(RunConfig)
    for field in fields(RunConfig):
        if field.name in GROUPS and _is_in_option(field.name):
            del values[field.name]
        elif field.type in NAMED:
            keys = _keys(NAMED[field.type])
            values[field.name] = {
                key: values[field.name][key] for key in keys[0] if all(key in other for other in keys)
            }
    return values


def _is_in_option(group: str) -> bool:
    """Whether all keys of a group are part of its options: other options lack keys of the first one."""
    if group in REGISTERED:
        return True
    first, *others = _keys(GROUPS[group])
    return any(key not in other for other in others for key in first)


def _keys(table: Mapping[str, type[Any]]) -> list[tuple[str, ...]]:
    return [tuple(kind.__dataclass_fields__) for kind in table.values()]
