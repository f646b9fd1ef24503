"""The source lines of a network that led to an operator."""

import linecache
import os
import sys
from types import FrameType
from typing import NamedTuple

from runner.errors import LIBRARY, PACKAGE, SITE_PACKAGES

# A run follows from its config: what called it, a command or `runner.run`, is not a line of the network.
_LAUNCHERS = PACKAGE + "cli.py", os.path.join(PACKAGE, "experiment", "launch.py")


class SourceLine(NamedTuple):
    """A line of Python source."""

    file: str
    number: int

    @property
    def text(self) -> str:
        """The line itself, without indentation."""
        return linecache.getline(self.file, self.number).strip()

    def __str__(self) -> str:
        return f"{self.file}:{self.number}  {self.text}"


Source = tuple[SourceLine, ...]


def is_users(file: str) -> bool:
    """Whether a source file is the user's: neither of this package nor of Python's own library.

    Installed packages count: their networks are lines of the network too.
    """
    if file.startswith(LIBRARY):  # of threads and processes, which run functions from there
        return SITE_PACKAGES in file
    return not file.startswith((PACKAGE, "<frozen"))


def current_source() -> Source:
    """The `construct` lines being executed, innermost first.

    Where none of them is the user's, as in a network of containers, the last line is the one that built the innermost
    cell, or else the one that called the network. Outside of cells it is the caller's line alone.
    """
    start: FrameType | None = sys._getframe(1)
    lines: list[SourceLine] = []
    frame = start
    while frame is not None:
        if frame.f_code.co_name == "construct":
            lines.append(_line(frame))
        frame = frame.f_back
    if not any(is_users(line.file) for line in lines):
        line = _line_of_building(start) or users_line(start)
        return (*lines, line) if line else tuple(lines)
    return tuple(lines)


def users_line(frame: FrameType | None) -> SourceLine | None:
    """The line of the user's code that is executed in a frame or calls it; None when a run of a config does."""
    while frame is not None and frame.f_code.co_filename not in _LAUNCHERS:
        if is_users(frame.f_code.co_filename):
            return _line(frame)
        frame = frame.f_back
    return None


def _line_of_building(frame: FrameType | None) -> SourceLine | None:
    """The line of the user's code that built the innermost cell being executed of those that such a line built."""
    while frame is not None:
        if frame.f_code.co_name == "construct":
            built: SourceLine | None = getattr(frame.f_locals.get("self"), "_built", None)
            if built is not None:
                return built
        frame = frame.f_back
    return None


def _line(frame: FrameType) -> SourceLine:
    return SourceLine(frame.f_code.co_filename, frame.f_lineno)


def user_line(source: Source) -> SourceLine | None:
    """The innermost line of the user's code; without one, the innermost line."""
    return next((line for line in source if is_users(line.file)), source[0] if source else None)
