"""Rules for the values of config keys, in addition to their types."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import field
from typing import Any, TypeVar

from runner.validation.records import Frozen

T = TypeVar("T")


class Rule(Frozen):
    """Restrictions of a value; `low` and `high` are inclusive, `above` and `below` exclusive."""

    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None
    also: tuple[int, ...] = ()  # values allowed outside of the range
    choices: Collection[str] = ()  # may grow, as the names in a registry do
    aliases: Mapping[object, str] = field(default_factory=dict)  # alternative spellings; text in lower case
    pattern: str = ""  # a regular expression that text must match
    path: bool = False  # text must be possible as the path of a file
    fold: bool = False  # choices and aliases are case-insensitive
    validate: Callable[[object], Any] | None = None  # replaces type and rule; raises Invalid
    hint: str | None = None
    # Of a key that determines where a run writes: the path, from the value and the record with the key; None: nowhere.
    # A relative path starts from the working directory or, with `in_run_folder`, from the run directory.
    writes: Callable[[Any, Any], str | None] | None = None
    in_run_folder: bool = False

    def __hash__(self) -> int:
        """By some of the fields, since others cannot be hashed: `Annotated` types with a rule are in sets."""
        return hash((self.low, self.high, self.above, self.below, self.choices, self.pattern))


FREE = Rule()
FILE_PATH = Rule(path=True)
# Bounds of numbers without a smaller one of their own.
MAX_COUNT = 2**31 - 1  # of steps, samples and seconds: numbers of steps are Int32 in graphs
MAX_SEED = 2**63 - 1
LARGEST_FLOAT32 = 3.4e38  # in which runner computes


def as_path(value: str | None, record: object) -> str | None:
    """For `Rule.writes`: the value is the path."""
    return value


def key(default: T, **rule: Any) -> T:
    """A field with a default and a rule."""
    declared: T = field(default=default, metadata={"rule": Rule(**rule)})
    return declared


def rule_of(owner: type[Frozen], name: str) -> Rule:
    """The rule of a key; `FREE` without one."""
    rule: Rule = owner.__dataclass_fields__[name].metadata.get("rule", FREE)
    return rule
