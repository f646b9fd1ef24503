"""Errors on standard error, and as annotations of GitHub Actions, which shows them at the line of a file.

Format (GitHub's workflow commands): `::error file=F,line=L,title=T::message`; `%`, line ends and, in properties, `:`
and `,` are escaped.
"""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from runner.host.console import visible
from runner.host.files import real_path

_LOCATION = re.compile(r"(?P<file>[^\s:()]+\.\w+)(?::(?P<line>\d+)(?::(?P<column>\d+))?|\((?P<in>\d+)\))?")


def print_failure(block: str) -> None:
    """Print an error block on standard error, and its annotations in a job of GitHub Actions."""
    sys.stdout.flush()
    lines = [visible(line) for line in block.split("\n")]
    if os.environ.get("GITHUB_ACTIONS") == "true":
        lines += annotations(block)
    print("\n".join(lines), file=sys.stderr)  # noqa: T201  the output of a command that has failed


def annotations(block: str) -> Iterator[str]:
    """One annotation for each error of a block as runner prints it: a sentence, followed by indented rows."""
    for error in re.split(r"\n(?=\S)", block.strip()):
        sentence = error.partition("\n")[0]
        location = _location(error)
        properties = ",".join(f"{name}={_property(value)}" for name, value in [*location.items(), ("title", sentence)])
        yield f"::error {properties}::{_message(error)}"


def _location(error: str) -> dict[str, str]:
    """File and line from the first row that names an existing file, relative to the checkout if inside of it."""
    for row in error.splitlines()[1:]:
        for found in _LOCATION.finditer(row):
            path = Path(found["file"])
            if path.is_file():
                values = {"file": _relative(path), "line": found["line"] or found["in"], "col": found["column"]}
                return {name: value for name, value in values.items() if value}
    return {}


def _relative(path: Path) -> str:
    root = real_path(Path(os.environ.get("GITHUB_WORKSPACE") or "."))
    absolute = real_path(path)
    return str(absolute.relative_to(root)) if absolute.is_relative_to(root) else str(path)


def _message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")
