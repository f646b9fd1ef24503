"""What a key of the config must be besides its type; the schema states it beside each field."""

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, TypeVar

from runner.validation.records import Frozen

T = TypeVar("T")


class Rule(Frozen):
    """What a value must be besides its type; bounds are inclusive, `above` and `below` exclusive."""

    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None
    also: tuple[int, ...] = ()  # single values that are allowed outside of the range
    choices: tuple[str, ...] = ()
    aliases: Mapping[object, str] = field(default_factory=dict)  # other spellings, text in lower case
    pattern: str = ""  # a regular expression that text must match
    fold: bool = False  # choices and aliases match in upper and lower case
    validate: Callable[[object], Any] | None = None  # in place of type and rule; raises Invalid
    hint: str | None = None


FREE = Rule()


def key(default: T, **rule: Any) -> T:
    """A field with a default and a rule."""
    made: T = field(default=default, metadata={"rule": Rule(**rule)})
    return made


def rule_of(owner: type, name: str) -> Rule:
    """The rule of a key; the free rule when it has none."""
    found: Rule = owner.__dataclass_fields__[name].metadata.get("rule", FREE)  # type: ignore[attr-defined]
    return found
