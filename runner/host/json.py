"""Reader of the JSON files of a config, with fixed limits and the location of errors; `json_data` reads other JSON."""

import json
import math
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from runner.errors import ConfigError, DataError, StorageError
from runner.host import files

MAX_BYTES = 1 << 20
MAX_NODES = 10_000
MAX_DEPTH = 64


def content(path: Path) -> bytes:
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


def text(data: bytes) -> str:
    """Decoded UTF-8. Raises ConfigError with the position of the first invalid byte."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError("not UTF-8 text", at=f"byte {error.start}") from None


def parse(source: str, name: str) -> Any:
    """The values of a JSON text from the file `name`. Raises ConfigError, with line and column if they are known."""
    try:
        values = json.loads(source, object_pairs_hook=_pairs, parse_constant=_no_constant)
    except json.JSONDecodeError as wrong:
        raise syntax_error("JSON", f"{name}:{wrong.lineno}:{wrong.colno}", wrong.msg) from None
    except RecursionError:
        raise too_deep() from None
    except ConfigError:
        raise
    except ValueError as wrong:  # a number of thousands of digits
        raise ConfigError("the file cannot be read", reason=str(wrong).splitlines()[0]) from None
    measure(values)
    return values


def measure(values: object) -> None:
    """Check the limits of nodes and depth, and that every number is finite. Raises ConfigError."""
    count, todo = 0, [(values, 1)]
    while todo:
        value, depth = todo.pop()
        count += 1
        if depth > MAX_DEPTH:
            raise too_deep()
        if count > MAX_NODES:
            raise ConfigError("too many values", allowed=f"{MAX_NODES} in one file")
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError("not a finite number", value=value)
        if isinstance(value, dict):
            todo += [(one, depth + 1) for pair in value.items() for one in pair]
        elif isinstance(value, list):
            todo += [(one, depth + 1) for one in value]


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


# Reader of JSON that a program wrote: files of a run, rows of a journal, manifests, golden files.
#
# Such content may be damaged, edited, or come from elsewhere, so all of it is read with the limits that are stated
# here: callers need not expect an infinity, an integer of 400 digits, or text that cannot be written again. Config
# files, whose errors have lines and columns, have their own reader: `json_file`.

MAX_DATA_BYTES = 16 << 20  # of a file, unless its reader has another limit
MAX_DATA_DEPTH = 100  # levels of groups and lists
MAX_DIGITS = 20  # of an integer of 64 bits, with its sign


def parse_data(content: bytes) -> Any:
    """The values of a JSON text in UTF-8: finite numbers, integers of 64 bits, text without lone surrogates.

    Raises DataError (a ValueError), without the file, for anything else and for more than MAX_DEPTH levels.
    """
    try:
        text = content.decode("utf-8-sig")
        values = _DECODER.decode(text)
    except DataError:
        raise
    except RecursionError:
        _refuse("it is nested too deeply")
    except ValueError as reason:
        _refuse(str(reason).splitlines()[0])
    if "\\u" in text or text.count("[") + text.count("{") > MAX_DATA_DEPTH:
        _check(values)
    return values


def read(path: Path, limit: int = MAX_DATA_BYTES) -> Any:
    """The values in a file of at most `limit` bytes.

    Raises DataError when it is missing, not a regular file, too long or as `parse`; StorageError when the system cannot
    read it.
    """
    content = files.read_bytes(path, limit)
    try:
        return parse_data(content)
    except DataError as error:
        raise DataError("not a JSON file", file=path, **error.rows) from None


def without_lists(values: Mapping[str, Any]) -> dict[str, Any]:
    """The keys whose values are not lists: arrays have no place on a console, on a curve or in a table.

    >>> without_lists({"accuracy": 0.5, "confusion_matrix": [[1, 0], [1, 0]]})
    {'accuracy': 0.5}
    """
    return {name: value for name, value in values.items() if not isinstance(value, list)}


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


def _integer(digits: str) -> int:
    value = int(digits) if len(digits) <= MAX_DIGITS else 1 << 63
    return value if -(1 << 63) <= value < 1 << 63 else _refuse(f"an integer of {len(digits)} digits, above 64 bits")


def _float(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse("a number above the range of Float64")


def _constant(name: str) -> NoReturn:
    _refuse(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_int=_integer, parse_float=_float, parse_constant=_constant)


def _check(values: object) -> None:
    """Check depth and text of nested values, without recursion."""
    level = [values]
    for _ in range(MAX_DATA_DEPTH):
        for value in level:
            if isinstance(value, str) and not _is_unicode(value):
                _refuse("text with a lone surrogate")
        level = [inner for value in level for inner in _inside(value)]
        if not level:
            return
    _refuse("it is nested too deeply")


def _inside(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        yield from value
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refuse(reason: str) -> NoReturn:
    raise DataError("not JSON", reason=reason)


# Values of a stored preprocessing, checked: the file may be damaged or edited.

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
