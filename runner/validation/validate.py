"""Validation of a value by a type and a rule: the value in its final form, or the reason why it is invalid."""

import json
import math
import os
import re
import sys
import types
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Union, get_args, get_origin

from runner.errors import ConfigError, nearest
from runner.validation.paths import ALLOWED, path_problem
from runner.validation.rules import Rule

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
