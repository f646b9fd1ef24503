"""Limits of the interpolations of a config, checked before OmegaConf resolves any of them.

OmegaConf keeps no results: thirty lines that each name the line before twice are 2^30 values. The number of values that
it would visit is computed here, each key once.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from runner.errors import ConfigError

MAX_VALUES = 5000  # the values that all interpolations of a config stand for
TEXT_UNIT = 20  # so many characters count as one value: that is what parsing them takes
MAX_CHAIN = 40  # interpolations that name each other; OmegaConf's own recursion ends at about 70

Path = tuple[str, ...]

_REFERENCE = re.compile(
    r"\$\{\s*(?:(?:oc\.select|oc\.dict\.keys|oc\.dict\.values)\s*:\s*)?(\.*)([\w$-][^\s,:{}]*)(?=\s*[,}])"
)
_OF_HYDRA = re.compile(r"\$\{\s*hydra\s*:\s*([^\s,{}]*)")
_ONLY = re.compile(r"\s*\$\{\s*\.*[\w$-][^\s,:{}]*\s*\}\s*")


def check_limits(values: dict[str, Any]) -> None:
    """Check the interpolations in composed values that are not resolved. Raises ConfigError with the limit."""
    walk, total = _Walk(values), 0
    for path, text in _texts(values, ()):
        total += walk.cost(path, text, 0).values
        if total > MAX_VALUES:
            allowed = f"{MAX_VALUES} values; {TEXT_UNIT} characters count as one"
            raise ConfigError("the interpolations stand for too many values", key=".".join(path), allowed=allowed)


class _Cost(NamedTuple):
    values: int  # that OmegaConf visits
    chain: int = 0  # the most interpolations that name each other


class _Walk:
    """Counts values, with the result for each interpolated text stored."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values
        self._costs: dict[Path, _Cost] = {}

    def cost(self, path: Path, text: str, depth: int) -> _Cost:
        """What resolving the text at `path` takes, `depth` interpolations away from the first one.

        Raises ConfigError for a long chain.
        """
        if path not in self._costs and depth <= MAX_CHAIN:
            nodes = [self._node(target, depth) for target in _targets(path, text)]
            found = [self._size(*node, depth + 1) for node in nodes if node]
            count = 1 + len(text) // TEXT_UNIT + sum(one.values for one in found)
            self._costs[path] = _Cost(min(count, MAX_VALUES + 1), 1 + max((one.chain for one in found), default=0))
        cost = self._costs.get(path)
        if cost is None or cost.chain > MAX_CHAIN:
            allowed = f"chains of {MAX_CHAIN}"
            raise ConfigError("a cycle or a long chain of interpolations", key=".".join(path), allowed=allowed)
        return cost

    def _size(self, path: Path, value: Any, depth: int) -> _Cost:
        if _is_interpolated(value):
            return self.cost(path, value, depth)
        if not isinstance(value, dict | list):
            return _Cost(1 + len(value) // TEXT_UNIT if isinstance(value, str) else 1)
        count, chain = 1, 0
        for name, child in _children(value):
            found = self._size((*path, name), child, depth)
            count, chain = count + found.values, max(chain, found.chain)
            if count > MAX_VALUES:
                break
        return _Cost(count, chain)

    def _node(self, path: Path, depth: int) -> tuple[Path, Any] | None:
        """The path and value that a reference means, through groups that are interpolations themselves."""
        value: Any = self._values
        for place, name in enumerate(path):
            value = dict(_children(value)).get(name) if isinstance(value, dict | list) else None
            rest = path[place + 1 :]
            if rest and _is_interpolated(value):
                here = path[: place + 1]
                if depth >= MAX_CHAIN or not _ONLY.fullmatch(value):
                    return here, value
                return self._node((*next(_targets(here, value)), *rest), depth + 1)
        return None if value is None else (path, value)


def _texts(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    """The interpolated texts in a value, with their paths."""
    if _is_interpolated(value):
        yield path, value
    for name, child in _children(value):
        yield from _texts(child, (*path, name))


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return ((str(name), child) for name, child in pairs)


def _is_interpolated(value: Any) -> bool:
    return isinstance(value, str) and "${" in value


def _targets(path: Path, text: str) -> Iterator[Path]:
    """The keys that a text at `path` refers to."""
    for found in _OF_HYDRA.finditer(text):
        yield ("hydra", *_names(found[1]))
    for found in _REFERENCE.finditer(text):
        dots, names = len(found[1]), _names(found[2])
        yield (*path[: max(0, len(path) - dots)], *names) if dots else names


def _names(reference: str) -> Path:
    return tuple(name for name in re.split(r"[.\[\]]+", reference) if name)
