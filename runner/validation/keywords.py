"""Names of keyword arguments: the error for one that a constructor does not take.

Public classes derive from `KeywordNames`. It checks names only, before the constructor runs, and only for the
constructors of runner, so those of users' classes raise what Python raises.
"""

import inspect
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, Self

from runner.errors import ConfigError, nearest


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
