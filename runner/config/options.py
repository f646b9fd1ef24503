"""Options from tables: each entry of a table is an option of its group, without a file.

Files in `conf/` are for options that set several values, such as experiments, and take precedence over tables.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any

from runner.config import networks, read
from runner.config.groups import GROUPS, NAMED
from runner.config.schema import RunConfig, defaults
from runner.dataset.catalog import CATALOG
from runner.host import resources

# Groups all of whose options have the same keys: an option sets the name.
NAMES: Mapping[str, Callable[[], Iterable[str]]] = {"dataset": lambda: CATALOG, "network": networks.names}
TABLES = (*NAMES, *GROUPS)


def all_options() -> dict[str, list[str]]:
    """The options of each group of runner, from its files and tables, in alphabetical order."""
    found: dict[str, set[str]] = {group: set(table_options(group)) for group in TABLES}
    for file in resources.folder("conf").glob("*/*"):
        if file.suffix in read.SUFFIXES:
            found.setdefault(file.parent.name, set()).add(file.stem)
    return {group: sorted(options) for group, options in sorted(found.items())}


def table_options(group: str) -> dict[str, dict[str, Any]]:
    """The options of a group that come from its table, by name, with the values that each sets.

    >>> table_options("dataset")["mnist"], table_options("callbacks")
    ({'name': 'mnist'}, {})
    """
    if group in NAMES:
        return {name: {"name": name} for name in NAMES[group]()}
    if group not in GROUPS:
        return {}
    kinds = GROUPS[group]
    default = () if lacks_common_keys(group) else tuple(kinds)[:1]  # its keys are already part of every run
    return {name: {} if name in default else defaults(kind) for name, kind in kinds.items()}


def defaults_of_all_runs() -> dict[str, Any]:
    """The keys of all runs, whatever options are chosen, with their defaults: the config `schema/run`."""
    values = defaults(RunConfig)
    for field in fields(RunConfig):
        if field.name in GROUPS and lacks_common_keys(field.name):
            del values[field.name]  # part of the option
        elif field.type in NAMED:
            keys = _keys(NAMED[field.type])
            values[field.name] = {
                key: values[field.name][key] for key in keys[0] if all(key in other for other in keys)
            }
    return values


def lacks_common_keys(group: str) -> bool:
    """Whether other options of a group lack keys of the first one, which are then not part of every run."""
    first, *others = _keys(GROUPS[group])
    return any(key not in other for other in others for key in first)


def _keys(table: Mapping[str, type[Any]]) -> list[tuple[str, ...]]:
    return [tuple(kind.__dataclass_fields__) for kind in table.values()]
