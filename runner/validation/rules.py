"""Frozen records, the rules of their fields, the check of a value by type and rule, and names of arguments.

`Frozen` is the base of every record; `key(default, low=...)` adds a `Rule` to a field; `validate` makes a value its
final form or says why it is `Invalid`; `validate_keys` does so for the keys of one source. Config, dumps, profiles and
registered classes declare their keys in this way. `KeywordNames` is the base of classes whose constructors name the
nearest argument when one is unknown.
"""

import dataclasses
import inspect
import json
import math
import os
import re
import sys
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, ClassVar, NamedTuple, Self, TypeVar, Union, dataclass_transform, get_args, get_origin

from runner.errors import ConfigError, nearest
from runner.validation.paths import ALLOWED, path_problem

# Names of keyword arguments: the error for one that a constructor does not take.
#
# Public classes derive from `KeywordNames`. It checks names only, before the constructor runs, and only for the
# constructors of runner, so those of users' classes raise what Python raises.


class MissingArgument(NamedTuple):
    """Why a class does not have an argument that it has in MindSpore, and what to use in its place."""

    release: str  # of MindSpore
    why: str
    alternative: str


# By class and argument.
MISSING: Mapping[str, Mapping[str, MissingArgument]] = {
    "Conv2DBackpropInput": {
        "pad_list": MissingArgument("r1.2", "it belongs to MindSpore's own compiler", "pad_mode and pad")
    },
    "Dropout": {"p": MissingArgument("2.x", "r1.2 names the elements that stay", "keep_prob = 1 - p")},
}


class KeywordNames:
    """Base of classes with constructors that name their arguments. Raises ConfigError for another name."""

    __slots__ = ()

    def __new__(cls, *_: Any, **given: Any) -> Self:
        if given:
            _check(cls, given)
        return object.__new__(cls)


def _check(cls: Any, given: Collection[str]) -> None:
    code = getattr(cls.__init__, "__code__", None)
    if code is None or not cls.__init__.__module__.startswith("runner.") or code.co_flags & inspect.CO_VARKEYWORDS:
        return
    names = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    for name in given:
        if name not in names:
            raise unknown_argument(cls.__name__, name, names)


def unknown_argument(owner: str, name: str, names: Collection[str]) -> ConfigError:
    """The error for a keyword argument that a class, `owner`, does not have; `names` are those that it has."""
    missing = MISSING.get(owner, {}).get(name)
    if missing is None:
        allowed = ", ".join(names) or "no arguments"
        return ConfigError(f"{owner} has no argument {name!r}", allowed=allowed, nearest=nearest(name, names))
    what = f"an argument of MindSpore {missing.release} that runner does not have"
    return ConfigError(what, argument=f"{owner}({name}=)", why=missing.why, use=missing.alternative)


# Records.

# Frozen records with shared methods: `@dataclass(frozen=True)` compiles six functions for every class.
#
# For the fifty classes of a start, that takes 80 ms. Here only the fields are collected; `dataclasses.fields`,
# `replace`, `asdict` and `is_dataclass` accept these classes.


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
class Frozen:
    """Base class of records: a subclass declares fields with defaults, as a dataclass does.

    Records are equal if their class and fields are equal, except those of `field(compare=False)`. Their construction
    is slower than that of a dataclass, so classes with thousands of objects, such as operators, are dataclasses.
    """

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]  # set by `dataclass`

    def __init_subclass__(cls) -> None:
        dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
        cls.__dataclass_fields__ = {field.name: field for field in dataclasses.fields(cls)}  # no class variables

    def __init__(self, *values: Any, **named: Any) -> None:
        fields = self.__dataclass_fields__
        given = {**dict(zip(fields, values, strict=False)), **named}
        for name in named.keys() - fields.keys():
            raise unknown_argument(type(self).__name__, name, fields)
        if len(given) < len(values) + len(named) or len(values) > len(fields):
            raise TypeError(f"{type(self).__qualname__} takes {', '.join(fields) or 'nothing'}, each once")
        vars(self).update({name: given[name] if name in given else _default(self, f) for name, f in fields.items()})
        self.__post_init__()

    def __post_init__(self) -> None:
        """Hook for a subclass to check its fields."""

    def __setattr__(self, name: str, value: Any) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        return _values(self) == _values(other) if type(self) is type(other) else NotImplemented

    def __hash__(self) -> int:
        return hash((type(self), _values(self)))

    def __repr__(self) -> str:
        pairs = (f"{name}={getattr(self, name)!r}" for name in self.__dataclass_fields__)
        return f"{type(self).__qualname__}({', '.join(pairs)})"


def _default(record: Frozen, field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    if field.default is dataclasses.MISSING:
        raise TypeError(f"{type(record).__qualname__} needs {field.name}")
    return field.default


def _values(record: Any) -> tuple[Any, ...]:
    return tuple([getattr(record, name) for name, field in record.__dataclass_fields__.items() if field.compare])


# Rules, in addition to types.

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


# Validation of a value by a type and a rule: the value in its final form, or the reason why it is invalid.

_BOOLEAN_WORDS = {"yes": True, "on": True, "true": True, "no": False, "off": False, "false": False}
_NOUNS = {int: "whole number", float: "number", bool: "true or false", str: "text"}


@dataclass
class Invalid(Exception):
    """The reason why a value is invalid; the caller adds its key and origin."""

    what: str
    allowed: str
    nearest: str | None = None
    hint: str | None = None


def validate(kind: Any, rule: Rule, value: object) -> Any:
    """The value in its final form: aliases are replaced, ints converted to float where the type is float.

    Raises Invalid, with the hint of the rule if there is no better one.
    """
    try:
        return _validate(kind, rule, value)
    except Invalid as invalid:
        invalid.hint = invalid.hint or rule.hint
        raise


def _validate(kind: Any, rule: Rule, value: object) -> Any:
    kinds = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    if value is None and (type(None) in kinds or kind is object):
        return None
    if rule.validate is not None:
        return rule.validate(value)
    kind = next(k for k in kinds if k is not type(None))
    optional = "null or " if len(kinds) > 1 else ""
    if get_origin(kind) is tuple:
        return _validate_list(get_args(kind)[0], rule, value)
    if rule.choices:
        return _validate_choice(rule, value, optional)
    valid = _TYPES.get(kind, lambda value, allowed: value)(value, optional + describe(kind, rule))
    if rule.path and (problem := path_problem(str(valid))):
        raise Invalid(problem, optional + ALLOWED)
    if rule.pattern and not re.fullmatch(rule.pattern, str(valid)):
        raise Invalid("not allowed", f"text that matches {rule.pattern}")
    if isinstance(valid, int | float) and not isinstance(valid, bool):
        _validate_range(rule, valid, optional + describe(kind, rule))
    return valid


def text_problem(text: str) -> str | None:
    """Why a text cannot be the value of a key; None if it can.

    >>> text_problem("a\\nb"), text_problem("a\\0")
    (None, 'text with a NUL character')
    """
    if "\0" in text:
        return "text with a NUL character"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "not Unicode text"
    return None


def switch(value: object) -> bool:
    """Validator of booleans, also as 1 and 0. Raises Invalid."""
    return bool(value) if value in (0, 1) and isinstance(value, int) else _validate_bool(value, "0, 1, true or false")


def existing_folder(value: str) -> str:
    """The absolute path of an existing folder with read and write permission. Raises Invalid."""
    if problem := path_problem(value):
        raise Invalid(problem, ALLOWED)
    path = os.path.abspath(value)
    if not os.path.isdir(path):
        what = "a folder is missing" if not os.path.lexists(path) else "not a folder"
        raise Invalid(what, "a folder that exists", hint=f"mkdir -p {path}" if "missing" in what else None)
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise Invalid("a folder without permission", "a folder that can be read and written")
    return path


def unknown_key(name: str, names: Collection[str], prefix: str = "", hint: str | None = None) -> Invalid:
    """The reason why a key that is not among `names` is invalid, with a hint for a key of another group.

    Without a hint, the nearest one is reported as `prefix` + name.
    """
    close = None if hint else nearest(name, names)  # the hint says where the key is
    return Invalid("unknown key", ", ".join(names), close and prefix + close, hint)


def invalid_value_error(key: str, value: object, invalid: Invalid, **rows: object) -> ConfigError:
    """The error for the value of a key; `rows` come before the value."""
    about = {"value": show(value), "allowed": invalid.allowed, "nearest": invalid.nearest, "hint": invalid.hint}
    return ConfigError(invalid.what, key=key, **rows, **about)


def describe(kind: Any, rule: Rule) -> str:
    """A description of the allowed values.

    >>> describe(int, Rule(low=1, also=(-1,)))
    '-1 or a whole number of at least 1'
    """
    noun = _NOUNS.get(kind, "value")
    bounds = _bounds(rule)
    if rule.also:
        return f"{' or '.join(map(str, rule.also))} or a {noun} {'of ' if bounds else ''}{bounds}".rstrip()
    return f"{noun}, {bounds}" if bounds else noun


def show(value: object) -> str:
    """A value in JSON syntax, at most 120 characters, so that text and numbers are distinguishable."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 120 else text[:117] + "..."


def _bounds(rule: Rule) -> str:
    if rule.low is not None and rule.high is not None:
        return f"{rule.low} to {rule.high}"
    parts = [("at least", rule.low), ("above", rule.above), ("at most", rule.high), ("below", rule.below)]
    return " and ".join(f"{word} {bound}" for word, bound in parts if bound is not None)


def _validate_int(value: object, allowed: str) -> int:
    if isinstance(value, Integral) and not isinstance(value, bool):  # including those of numpy
        if abs(int(value)) >= 1 << 63:
            raise Invalid("out of range", f"{allowed} (64 bits)")
        return int(value)
    whole = value if isinstance(value, float) and value.is_integer() else None
    written = re.fullmatch(r"[+-]?\d{1,18}", value) if isinstance(value, str) else None
    close = str(int(whole)) if whole is not None else written[0] if written else None
    raise Invalid("not a whole number", allowed, close)


def _validate_float(value: object, allowed: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not abs(value) <= sys.float_info.max:  # NaN, an infinity, or an int above the range of float
            raise Invalid("not a finite number", allowed)
        return float(value)
    written = re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", value) if isinstance(value, str) else None
    raise Invalid("not a number", allowed, written[0] if written else None)


def _validate_bool(value: object, allowed: str) -> bool:
    if isinstance(value, bool):
        return value
    meant = _BOOLEAN_WORDS.get(value.lower()) if isinstance(value, str) else None
    raise Invalid("not true or false", allowed, None if meant is None else str(meant).lower())


def _validate_str(value: object, allowed: str) -> str:
    if isinstance(value, str):
        if problem := text_problem(value):
            raise Invalid(problem, allowed)
        return value
    raise Invalid("not text", allowed, f'"{show(value)}"' if isinstance(value, int | float) else None)


_TYPES: dict[Any, Any] = {int: _validate_int, float: _validate_float, bool: _validate_bool, str: _validate_str}


def _validate_range(rule: Rule, value: float, allowed: str) -> None:
    inside = (
        (rule.low is None or value >= rule.low)
        and (rule.high is None or value <= rule.high)
        and (rule.above is None or value > rule.above)
        and (rule.below is None or value < rule.below)
    )
    if not inside and value not in rule.also:
        raise Invalid("out of range", allowed)


def _validate_choice(rule: Rule, value: object, optional: str) -> str:
    fold = str.lower if rule.fold else str
    known: dict[object, str] = {fold(choice): choice for choice in rule.choices} | dict(rule.aliases)
    hashable = isinstance(value, str | int) and not isinstance(value, bool)
    wanted = fold(value) if isinstance(value, str) else value
    if hashable and wanted in known:
        return known[wanted]
    allowed = optional + ", ".join([*rule.choices, *(str(alias) for alias in rule.aliases)])
    close = nearest(str(wanted), [name for name in known if isinstance(name, str)]) if isinstance(value, str) else None
    raise Invalid("not one of the choices", allowed, known[close] if close else None)


def _validate_list(kind: Any, rule: Rule, value: object) -> tuple[Any, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise Invalid("not a list", f"a list of {', '.join(rule.choices) or _NOUNS.get(kind, 'value') + 's'}")
    return tuple(validate(kind, rule, one) for one in value)


# Two namings of the same things, as pairs of patterns (`checkpoint.names`).


class Names(Frozen):
    """Pairs of patterns, ours and theirs; the first that matches one of our names determines theirs.

    `*` stands for any text, the first one of both for the same text, and so on; None is no name of theirs. A name that
    no pattern matches is theirs too. Rules of a scheme may match nothing.
    """

    rules: tuple[tuple[str, str | None], ...]
    is_scheme: bool = False

    def unused(self, names: Collection[str]) -> list[str]:
        """The patterns of a file that match none of our names."""
        patterns = [] if self.is_scheme else [ours for ours, _ in self.rules]
        return [ours for ours in patterns if not any(map(_expression(ours).fullmatch, names))]

    def theirs(self, name: str) -> str | None:
        """Their name for one of ours.

        >>> Names(rules=(("*.gamma", "*.weight"), ("linear.*", "fc.*"))).theirs("linear.bias")
        'fc.bias'
        """
        for ours, theirs in self.rules:
            if found := _expression(ours).fullmatch(name):
                return None if theirs is None else _filled(theirs, found.groups())
        return name


def _expression(pattern: str) -> re.Pattern[str]:
    return re.compile("(.*)".join(map(re.escape, pattern.split("*"))), re.DOTALL)


def _filled(pattern: str, texts: tuple[str, ...]) -> str:
    first, *rest = pattern.split("*")
    return first + "".join(text + after for text, after in zip(texts, rest, strict=True))


# Validation of the keys of one source, such as a JSON text or the arguments of a call.

Keys = Mapping[str, tuple[Any, Rule]]  # type and rule of each key of a group


def keys_of(owner: type[Frozen]) -> dict[str, tuple[Any, Rule]]:
    """The keys that a record declares."""
    return {name: (field.type, rule_of(owner, name)) for name, field in owner.__dataclass_fields__.items()}


def validate_keys(
    values: Mapping[str, Any], keys: Keys, prefix: str = "", **rows: object
) -> tuple[dict[str, Any], list[ConfigError]]:
    """The valid values in their final form, and an error for each invalid value and each unknown key.

    An error names `prefix` + key; `rows` add where the group is, such as its file.
    """
    valid: dict[str, Any] = {}
    errors: list[ConfigError] = []
    for name, value in values.items():
        try:
            if name not in keys:
                raise unknown_key(name, keys, prefix)
            valid[name] = validate(*keys[name], value)
        except Invalid as invalid:
            errors.append(invalid_value_error(prefix + name, value, invalid, **rows))
    return valid, errors
