"""Errors as GitHub shows them: beside the line of a file, in the list of what went wrong.

The form is that of GitHub's workflow commands: `::error file=F,line=L,title=T::message`, where `%`, line ends and, in
properties, `:` and `,` are escaped.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

_PLACE = re.compile(r"(?P<file>[^\s:()]+\.\w+)(?::(?P<line>\d+)(?::(?P<column>\d+))?|\((?P<in>\d+)\))?")


def annotations(block: str) -> Iterator[str]:
    """One line for each error of a block as runner prints it: a sentence, and indented rows."""
    for error in re.split(r"\n(?=\S)", block.strip()):
        sentence = error.partition("\n")[0]
        place = _place(error)
        properties = ",".join(f"{name}={_property(value)}" for name, value in [*place.items(), ("title", sentence)])
        yield f"::error {properties}::{_message(error)}"


def _place(error: str) -> dict[str, str]:
    """File and line of the first row that names a file that exists, relative to the checkout where it is inside."""
    for row in error.splitlines()[1:]:
        for found in _PLACE.finditer(row):
            path = Path(found["file"])
            if path.is_file():
                line = found["line"] or found["in"]
                place = {"file": _relative(path)}
                return place | ({"line": line} if line else {}) | ({"col": found["column"]} if found["column"] else {})
    return {}


def _relative(path: Path) -> str:
    root = Path(os.environ.get("GITHUB_WORKSPACE") or ".").resolve()
    whole = path.resolve()
    return str(whole.relative_to(root)) if whole.is_relative_to(root) else str(path)


def _message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")
