"""The one reader of JSON, and the one checker of what was read.

Of two kinds: `parse_config`, `config_bytes` and `decoded` read what people write, with duplicate keys refused and lines
and columns in errors (ConfigError); `read`, `read_object`, `read_optional` and `parse_data` read what programs wrote
(DataError). Such content may be damaged, edited, or come from elsewhere, so all of it has the limits that are stated
here: callers need not expect an infinity, an integer of 400 digits, or text that cannot be written again. Then come
groups of keys (`flat`, `set_dotted`), and the shapes of values: `fits`, and `StoredValues`, which raises.
"""

import json
import math
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeGuard

from runner.errors import ConfigError, DataError, RunnerError, StorageError
from runner.host import files

# What people write: config files, settings of dumps and profiles.

MAX_BYTES = 1 << 20
MAX_NODES = 10_000
MAX_DEPTH = 64


def config_bytes(path: Path) -> bytes:
    """A whole file of at most MAX_BYTES. Raises ConfigError without the file's name."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # opening a pipe must not block
        with os.fdopen(handle, "rb") as file:
            state = os.fstat(file.fileno())
            if not stat.S_ISREG(state.st_mode):
                raise ConfigError("not an ordinary file")
            data = file.read(MAX_BYTES + 1)
    except OSError as reason:
        raise ConfigError("cannot read a config file", reason=reason.strerror or reason) from None
    if len(data) > MAX_BYTES:
        raise ConfigError("the file is too large", value=f"{state.st_size} bytes", allowed=f"{MAX_BYTES} bytes")
    return data


def decoded(data: bytes) -> str:
    """Decoded UTF-8. Raises ConfigError with the position of the first invalid byte."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError("not UTF-8 text", at=f"byte {error.start}") from None


def parse_config(source: str, name: str) -> Any:
    """The values of a JSON text from the file `name`. Raises ConfigError, with line and column if they are known."""

    def invalid(wrong: ValueError) -> RunnerError:
        if isinstance(wrong, json.JSONDecodeError):
            return syntax_error("JSON", f"{name}:{wrong.lineno}:{wrong.colno}", wrong.msg)
        return ConfigError("the file cannot be read", reason=str(wrong).splitlines()[0])  # thousands of digits

    values = _decode(_OF_PEOPLE, source, invalid, too_deep)
    measure(values)
    return values


def measure(values: object) -> None:
    """Check the limits of nodes and depth, and that every number is finite. Raises ConfigError."""
    for count, (value, depth) in enumerate(_nodes(values), 1):
        if depth > MAX_DEPTH:
            raise too_deep()
        if count > MAX_NODES:
            raise ConfigError("too many values", allowed=f"{MAX_NODES} in one file")
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError("not a finite number", value=value)


def syntax_error(language: str, location: str, reason: str) -> ConfigError:
    """The error for a syntax error; `location` is file, line and column."""
    return ConfigError(f"not {language}", reason=reason).add(**{"from": location})


def too_deep() -> ConfigError:
    """The error for more levels than MAX_DEPTH."""
    return ConfigError("nested too deeply", allowed=f"{MAX_DEPTH} levels")


def _no_constant(name: str) -> Any:
    raise ConfigError("not a finite number", value=name)


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique: dict[str, Any] = {}
    for name, value in pairs:
        if name in unique:
            raise ConfigError("duplicate key", key=name)
        unique[name] = value
    return unique


_OF_PEOPLE = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_no_constant)

# What programs wrote: files of a run, rows of a journal, manifests, golden files.

MAX_DATA_BYTES = 16 << 20  # of a file, unless its reader has another limit
MAX_DATA_DEPTH = 100  # levels of groups and lists
MAX_DIGITS = 20  # of an integer of 64 bits, with its sign


def read(path: Path, limit: int = MAX_DATA_BYTES) -> Any:
    """The values in a file of at most `limit` bytes.

    Raises DataError when it is missing, not a regular file, too long or as `parse_data`; StorageError when the system
    cannot read it.
    """
    content = files.read_bytes(path, limit)
    try:
        return parse_data(content)
    except DataError as error:
        raise DataError("not a JSON file", file=path, **error.rows) from None


def read_object(path: Path, limit: int = MAX_DATA_BYTES) -> dict[str, Any]:
    """The group of keys in a file. Raises as `read`, also DataError for any other value."""
    values = read(path, limit)
    if not isinstance(values, dict):
        raise DataError("not a group of keys", file=path, found=type(values).__name__)
    return values


def read_optional(path: Path, limit: int = MAX_DATA_BYTES) -> dict[str, Any]:
    """As `read_object`; {} when there is no such file or it is damaged."""
    try:
        return read_object(path, limit)
    except (DataError, StorageError):
        return {}


def parse_data(content: bytes) -> Any:
    """The values of a JSON text in UTF-8: finite numbers, integers of 64 bits, text without lone surrogates.

    Raises DataError (a ValueError), without the file, for anything else and for more than MAX_DATA_DEPTH levels.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as wrong:
        raise _not_json(str(wrong)) from None
    values = _decode(_OF_PROGRAMS, text, lambda wrong: _not_json(str(wrong).splitlines()[0]), _data_too_deep)
    if "\\u" in text or text.count("[") + text.count("{") > MAX_DATA_DEPTH:
        for value, depth in _nodes(values):
            if depth > MAX_DATA_DEPTH:
                raise _data_too_deep()
            if isinstance(value, str) and not _is_unicode(value):
                raise _not_json("text with a lone surrogate")
    return values


def _integer(digits: str) -> int:
    value = int(digits) if len(digits) <= MAX_DIGITS else 1 << 63
    return value if -(1 << 63) <= value < 1 << 63 else _refuse(f"an integer of {len(digits)} digits, above 64 bits")


def _float(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse("a number above the range of Float64")


def _constant(name: str) -> NoReturn:
    _refuse(f"{name} is not JSON")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refuse(reason: str) -> NoReturn:
    raise _not_json(reason)


def _not_json(reason: str) -> DataError:
    return DataError("not JSON", reason=reason)


def _data_too_deep() -> DataError:
    return _not_json("it is nested too deeply")


_OF_PROGRAMS = json.JSONDecoder(parse_int=_integer, parse_float=_float, parse_constant=_constant)

# Of both kinds.


def _decode(
    decoder: json.JSONDecoder,
    text: str,
    invalid: Callable[[ValueError], RunnerError],
    deep: Callable[[], RunnerError],
) -> Any:
    """The values of a text. Raises what `invalid` and `deep` make of Python's errors."""
    try:
        return decoder.decode(text)
    except RunnerError:
        raise
    except RecursionError:
        raise deep() from None
    except ValueError as wrong:
        raise invalid(wrong) from None


def _nodes(values: object) -> Iterator[tuple[object, int]]:
    """Nested values and keys with their levels, from 1 on, without recursion."""
    todo = [(values, 1)]
    while todo:
        value, depth = todo.pop()
        yield value, depth
        if isinstance(value, dict):
            todo += [(one, depth + 1) for pair in value.items() for one in pair]
        elif isinstance(value, list):
            todo += [(one, depth + 1) for one in value]


# Groups of keys.


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested keys as dotted keys.

    >>> flat({"a": {"b": 1}, "c": 2})
    {'a.b': 1, 'c': 2}
    """
    leaves: dict[str, Any] = {}
    for name, value in values.items():
        leaves |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return leaves


def set_dotted(values: dict[str, Any], key: str, value: object) -> None:
    """Set a dotted key of nested keys. Raises ConfigError when a part of it is not a group."""
    *groups, name = key.split(".")
    for group in groups:
        values = values.setdefault(group, {})
        if not isinstance(values, dict):
            raise ConfigError("unknown key", key=key)
    values[name] = value


def delete_dotted(values: dict[str, Any], key: str) -> None:
    """Remove a dotted key of nested keys. Raises ConfigError when there is none."""
    *groups, name = key.split(".")
    for group in groups:
        values = values.get(group, {})
        if not isinstance(values, dict):
            raise ConfigError("unknown key", key=key)
    if values.pop(name, values) is values:
        raise ConfigError("unknown key", key=key)


def without_lists(values: Mapping[str, Any]) -> dict[str, Any]:
    """The keys whose values are not lists: arrays have no place on a console, on a curve or in a table.

    >>> without_lists({"accuracy": 0.5, "confusion_matrix": [[1, 0], [1, 0]]})
    {'accuracy': 0.5}
    """
    return {name: value for name, value in values.items() if not isinstance(value, list)}


# The shapes of values that were read.

MAX_ENTRIES = 100_000


def fits(value: object, shape: Any) -> TypeGuard[Any]:
    """Whether a value has a shape.

    A shape is a type (`float` is a finite number, `int` no truth value, `object` anything), None, a list with the shape
    of all items, a group with the shapes of keys that it must have, or a tuple of shapes of which one is enough.

    >>> fits({"words": ["a"], "script": None, "more": 1}, {"words": [str], "script": (str, None)})
    True
    >>> fits([1, 2.5], [float]), fits(True, int), fits({}, {"words": [str]})
    (True, False, False)
    """
    if isinstance(shape, tuple):
        return any(fits(value, one) for one in shape)
    if isinstance(shape, list):
        return isinstance(value, list) and all(fits(one, shape[0]) for one in value)
    if isinstance(shape, dict):
        return isinstance(value, dict) and all(name in value and fits(value[name], one) for name, one in shape.items())
    if shape is float:
        return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]
    return value is None if shape is None else shape is object or type(value) is shape


class StoredValues:
    """The values of a stored preprocessing, which may be damaged or edited, by name.

    All methods raise DataError with the name for a value of another form.
    """

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
        self.require(fits(value, int) and least <= value <= most, name, f"a whole number from {least} to {most}")
        return int(value or 0)

    def number(self, name: str) -> float:
        """A finite number."""
        value = self.values.get(name)
        self.require(fits(value, float), name, "a number")
        return float(value or 0.0)

    def numbers(self, name: str, count: int) -> tuple[float, ...]:
        """`count` finite numbers."""
        value = self._list(name)
        self.require(len(value) == count and fits(value, [float]), name, f"{count} numbers")
        return tuple(map(float, value))

    def shape(self, name: str) -> tuple[int, ...]:
        """Whole numbers of at least 1."""
        value = self._list(name)
        self.require(fits(value, [int]) and all(one >= 1 for one in value), name, "whole numbers of at least 1")
        return tuple(value)

    def flag(self, name: str) -> bool:
        """True or False."""
        value = self.values.get(name)
        self.require(fits(value, bool), name, "true or false")
        return bool(value)

    def text(self, name: str) -> str:
        """Text."""
        value = self.values.get(name)
        self.require(fits(value, str), name, "text")
        return str(value)

    def names(self, name: str) -> tuple[str, ...]:
        """Different texts."""
        value = self._list(name)
        are_names = fits(value, [str]) and len(set(value)) == len(value)
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
        self.require(bool(value) and fits(value, [dict]), name, "a list of objects")
        return [StoredValues(one) for one in value]

    def _list(self, name: str) -> list[Any]:
        value = self.values.get(name)
        self.require(isinstance(value, list) and len(value) <= MAX_ENTRIES, name, "a list")
        return list(value or [])
