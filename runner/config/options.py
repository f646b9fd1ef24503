"""Options from tables, and the possible values of keys.

Each entry of a table is an option of its group, without a file. Files in `conf/` are for options that set several
values, such as experiments, and take precedence over tables. `choices` has the values of keys that have a short list.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from types import NoneType
from typing import Any, get_args

from runner.config import read
from runner.config.groups import GROUPS, NAMED, REGISTERED
from runner.config.groups.entries import CALLBACKS
from runner.config.schema import RunConfig, defaults
from runner.host import files
from runner.validation.rules import rule_of

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


# The possible values of keys of the schema that have a short list of them: choices, true and false.


def choices(key: str) -> list[str]:
    """The values of a dotted key, in all options of its group. Empty if the key is unknown or has no list of values.

    >>> choices("mode"), choices("eval.mode"), choices("epochs")
    (['graph', 'pynative'], ['graph', 'pynative', 'null'], [])
    >>> choices("optimizer.schedule.name")
    ['constant', 'step', 'exponential', 'cosine', 'polynomial']
    """
    *groups, name = key.split(".")
    owners: list[type[Any]] = [RunConfig]
    for group in groups:
        owners = [kind for owner in owners for kind in kinds(owner, group) if hasattr(kind, "__dataclass_fields__")]
    found = [value for owner in owners for value in _values(owner, name)]
    return list(dict.fromkeys(found))


def kinds(owner: type[Any], name: str) -> tuple[Any, ...]:
    """The types that a field may have; none when there is no such field."""
    field = owner.__dataclass_fields__.get(name)
    if field is None:
        return ()
    return tuple(NAMED.get(field.type, {}).values()) or get_args(field.type) or (field.type,)


def _values(owner: type[Any], name: str) -> list[str]:
    possible = kinds(owner, name)
    listed = rule_of(owner, name).choices if possible else ()
    booleans = ("true", "false") if bool in possible else ()
    return [*listed, *booleans, *(["null"] if (listed or booleans) and NoneType in possible else [])]
