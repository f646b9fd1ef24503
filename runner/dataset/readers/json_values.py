"""Values of a stored preprocessing, checked: the file may be damaged or edited."""

import math
from collections.abc import Mapping
from typing import Any

from runner.errors import DataError

MAX_ENTRIES = 100_000


class StoredValues:
    """The values of a JSON object by name. All methods raise DataError with the name for a value of another form."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values

    def require(self, holds: bool, name: str, expected: str) -> None:
        """Raise DataError unless the value is as expected."""
        if not holds:
            found = repr(self.values.get(name))[:100]
            repair = "train again, or restore the file from a backup"
            raise DataError("not a stored preprocessing", value_of=name, expected=expected, found=found, repair=repair)

    def whole(self, name: str, least: int, most: int) -> int:
        """An integer from `least` to `most`."""
        value = self.values.get(name)
        self.require(type(value) is int and least <= value <= most, name, f"a whole number from {least} to {most}")
        return int(value or 0)

    def number(self, name: str) -> float:
        """A finite number."""
        value = self.values.get(name)
        self.require(_is_number(value), name, "a number")
        return float(value or 0.0)

    def numbers(self, name: str, count: int) -> tuple[float, ...]:
        """`count` finite numbers."""
        value = self._list(name)
        self.require(len(value) == count and all(map(_is_number, value)), name, f"{count} numbers")
        return tuple(map(float, value))

    def shape(self, name: str) -> tuple[int, ...]:
        """Whole numbers of at least 1."""
        value = self._list(name)
        self.require(all(type(one) is int and one >= 1 for one in value), name, "whole numbers of at least 1")
        return tuple(value)

    def flag(self, name: str) -> bool:
        """True or False."""
        value = self.values.get(name)
        self.require(type(value) is bool, name, "true or false")
        return bool(value)

    def text(self, name: str) -> str:
        """Text."""
        value = self.values.get(name)
        self.require(isinstance(value, str), name, "text")
        return str(value)

    def names(self, name: str) -> tuple[str, ...]:
        """Different texts."""
        value = self._list(name)
        are_names = all(isinstance(one, str) for one in value) and len(set(value)) == len(value)
        self.require(are_names, name, "different texts")
        return tuple(value)

    def optional_names(self, name: str) -> tuple[str, ...] | None:
        """Different texts, at least one; or None."""
        if self.values.get(name) is None:
            return None
        found = self.names(name)
        self.require(bool(found), name, "at least one text")
        return found

    def groups(self, name: str) -> list["StoredValues"]:
        """JSON objects, at least one."""
        value = self._list(name)
        self.require(bool(value) and all(isinstance(one, dict) for one in value), name, "a list of objects")
        return [StoredValues(one) for one in value]

    def _list(self, name: str) -> list[Any]:
        value = self.values.get(name)
        self.require(isinstance(value, list) and len(value) <= MAX_ENTRIES, name, "a list")
        return list(value or [])


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
