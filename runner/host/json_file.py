"""Reader of JSON files from users, with fixed limits and the location of errors."""

import json
import math
import os
import stat
from pathlib import Path
from typing import Any

from runner.errors import ConfigError

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


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file of a run; {} when the file is missing or damaged."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


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
