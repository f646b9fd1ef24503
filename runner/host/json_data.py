"""Reader of JSON that a program wrote: files of a run, rows of a journal, manifests, golden files.

Such content may be damaged, edited, or come from elsewhere, so all of it is read with the limits that are stated here:
callers need not expect an infinity, an integer of 400 digits, or text that cannot be written again. Config files, whose
errors have lines and columns, have their own reader: `json_file`.
"""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from runner.errors import DataError, StorageError
from runner.host import files

MAX_BYTES = 16 << 20  # of a file, unless its reader has another limit
MAX_DEPTH = 100  # levels of groups and lists
MAX_DIGITS = 20  # of an integer of 64 bits, with its sign


def parse(content: bytes) -> Any:
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
    if "\\u" in text or text.count("[") + text.count("{") > MAX_DEPTH:
        _check(values)
    return values


def read(path: Path, limit: int = MAX_BYTES) -> Any:
    """The values in a file of at most `limit` bytes.

    Raises DataError when it is missing, not a regular file, too long or as `parse`; StorageError when the system cannot
    read it.
    """
    content = files.read_bytes(path, limit)
    try:
        return parse(content)
    except DataError as error:
        raise DataError("not a JSON file", file=path, **error.rows) from None


def without_lists(values: Mapping[str, Any]) -> dict[str, Any]:
    """The keys whose values are not lists: arrays have no place on a console, on a curve or in a table.

    >>> without_lists({"accuracy": 0.5, "confusion_matrix": [[1, 0], [1, 0]]})
    {'accuracy': 0.5}
    """
    return {name: value for name, value in values.items() if not isinstance(value, list)}


def read_object(path: Path, limit: int = MAX_BYTES) -> dict[str, Any]:
    """The group of keys in a file. Raises as `read`, also DataError for any other value."""
    values = read(path, limit)
    if not isinstance(values, dict):
        raise DataError("not a group of keys", file=path, found=type(values).__name__)
    return values


def read_optional(path: Path, limit: int = MAX_BYTES) -> dict[str, Any]:
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
    for _ in range(MAX_DEPTH):
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
