"""The possible values of keys of the schema that have a short list of them: choices, true and false."""

from types import NoneType
from typing import Any, get_args

from runner.config.groups import NAMED
from runner.config.schema import RunConfig
from runner.validation.rules import rule_of


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
