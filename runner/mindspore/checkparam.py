"""`runner._checkparam`: argument checks of MindSpore that layers and optimizers in scripts import."""

import math
import operator
import re
from collections.abc import Callable, Collection
from typing import Any

from runner.errors import ConfigError

__all__ = ["Rel", "Validator"]


class Rel:
    """Relations of `Validator`, by the names of MindSpore."""

    EQ, NE, LT, LE, GT, GE, IN, NOT_IN = "==", "!=", "<", "<=", ">", ">=", "in", "not in"
    INC_NEITHER, INC_LEFT, INC_RIGHT, INC_BOTH = "()", "[)", "(]", "[]"


_RELATIONS: dict[str, Callable[[Any, Any], bool]] = {
    Rel.EQ: operator.eq,
    Rel.NE: operator.ne,
    Rel.LT: operator.lt,
    Rel.LE: operator.le,
    Rel.GT: operator.gt,
    Rel.GE: operator.ge,
    Rel.IN: lambda value, others: value in others,
    Rel.NOT_IN: lambda value, others: value not in others,
}


def _holds(value: Any, relation: str, other: Any) -> bool:
    return bool(_RELATIONS[relation](value, other))


def _wrong(what: str, name: str | None, owner: str | None, value: object, allowed: object) -> ConfigError:
    return ConfigError(what, argument=name, of=owner, value=repr(value), allowed=allowed)


class Validator:
    """Each check returns the value. Raises ConfigError, which is both the ValueError and the TypeError of MindSpore."""

    @staticmethod
    def check(
        arg_name: str,
        arg_value: Any,
        value_name: str,
        value: Any,
        rel: str = Rel.EQ,
        prim_name: str | None = None,
        excp_cls: type[Exception] = ValueError,
    ) -> Any:
        """A relation between two values."""
        if not _holds(arg_value, rel, value):
            raise _wrong("out of range", arg_name, prim_name, arg_value, f"{rel} {value_name} ({value})")
        return arg_value

    @staticmethod
    def check_bool(arg_value: Any, arg_name: str | None = None) -> bool:
        """True or False."""
        if not isinstance(arg_value, bool):
            raise _wrong("not true or false", arg_name, None, arg_value, "True or False")
        return arg_value

    @staticmethod
    def check_is_int(arg_value: Any, arg_name: str | None = None, prim_name: str | None = None) -> int:
        """A whole number."""
        if isinstance(arg_value, bool) or not isinstance(arg_value, int):
            raise _wrong("not a whole number", arg_name, prim_name, arg_value, "a whole number")
        return arg_value

    @staticmethod
    def check_int(
        arg_value: Any, value: Any, rel: str, arg_name: str | None = None, prim_name: str | None = None
    ) -> int:
        """A whole number with a relation."""
        found = Validator.check_is_int(arg_value, arg_name, prim_name)
        if not _holds(found, rel, value):
            raise _wrong("out of range", arg_name, prim_name, found, f"{rel} {value}")
        return found

    @staticmethod
    def check_int_range(
        arg_value: Any, lower_limit: int, upper_limit: int, rel: str, arg_name: Any = None, prim_name: Any = None
    ) -> int:
        """A whole number in an interval; `rel` says which limits it includes."""
        found = Validator.check_is_int(arg_value, arg_name, prim_name)
        _in_interval(found, lower_limit, upper_limit, rel, arg_name, prim_name)
        return found

    @staticmethod
    def check_positive_int(arg_value: Any, arg_name: str | None = None, prim_name: str | None = None) -> int:
        """At least 1."""
        return Validator.check_int(arg_value, 0, Rel.GT, arg_name, prim_name)

    @staticmethod
    def check_non_negative_int(arg_value: Any, arg_name: str | None = None, prim_name: str | None = None) -> int:
        """At least 0."""
        return Validator.check_int(arg_value, 0, Rel.GE, arg_name, prim_name)

    @staticmethod
    def check_is_float(arg_value: Any, arg_name: str | None = None, prim_name: str | None = None) -> float:
        """A finite float."""
        if not isinstance(arg_value, float) or not math.isfinite(arg_value):
            raise _wrong("not a finite float", arg_name, prim_name, arg_value, "a float")
        return arg_value

    @staticmethod
    def check_positive_float(arg_value: Any, arg_name: str | None = None, prim_name: str | None = None) -> float:
        """A float above 0."""
        return _related(Validator.check_is_float(arg_value, arg_name, prim_name), Rel.GT, arg_name, prim_name)

    @staticmethod
    def check_non_negative_float(arg_value: Any, arg_name: str | None = None, prim_name: str | None = None) -> float:
        """A float of at least 0."""
        return _related(Validator.check_is_float(arg_value, arg_name, prim_name), Rel.GE, arg_name, prim_name)

    @staticmethod
    def check_float_range(
        arg_value: Any, lower_limit: float, upper_limit: float, rel: str, arg_name: Any = None, prim_name: Any = None
    ) -> float:
        """A float in an interval; `rel` says which limits it includes."""
        found = Validator.check_is_float(arg_value, arg_name, prim_name)
        _in_interval(found, lower_limit, upper_limit, rel, arg_name, prim_name)
        return found

    @staticmethod
    def check_string(
        arg_value: Any, valid_values: Collection[str], arg_name: str | None = None, prim_name: str | None = None
    ) -> str:
        """One of some texts."""
        if not isinstance(arg_value, str) or arg_value not in valid_values:
            raise _wrong("not one of the choices", arg_name, prim_name, arg_value, ", ".join(valid_values))
        return arg_value

    @staticmethod
    def check_str_by_regular(
        target: str, reg: str | None = None, flag: int = re.ASCII, prim_name: str | None = None
    ) -> str:
        """A text that matches a regular expression, by default one without special characters."""
        pattern = reg or r"^\w+[0-9a-zA-Z\_\.]*$"
        if re.match(pattern, target, flag) is None:
            raise _wrong("not allowed", None, prim_name, target, f"text that matches {pattern}")
        return target

    @staticmethod
    def check_value_type(
        arg_name: str, arg_value: Any, valid_types: type | Collection[type], prim_name: str | None = None
    ) -> Any:
        """A value of one of these types; True and False are no numbers."""
        kinds = (valid_types,) if isinstance(valid_types, type) else tuple(valid_types)
        if (isinstance(arg_value, bool) and bool not in kinds) or not isinstance(arg_value, kinds):
            raise _wrong("of another type", arg_name, prim_name, arg_value, ", ".join(k.__name__ for k in kinds))
        return arg_value


def _related(value: float, relation: str, name: str | None, owner: str | None) -> float:
    if not _holds(value, relation, 0):
        raise _wrong("out of range", name, owner, value, f"{relation} 0")
    return value


def _in_interval(value: Any, low: Any, high: Any, interval: str, name: str | None, owner: str | None) -> None:
    inside = _holds(value, ">=" if interval[0] == "[" else ">", low)
    if not inside or not _holds(value, "<=" if interval[1] == "]" else "<", high):
        raise _wrong("out of range", name, owner, value, f"{interval[0]}{low}, {high}{interval[1]}")
