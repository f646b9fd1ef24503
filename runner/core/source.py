"""The source lines of a network that led to an operator."""

import linecache
import sys
from pathlib import Path
from types import FrameType
from typing import NamedTuple

PACKAGE = str(Path(__file__).resolve().parent.parent)


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


def current_source() -> Source:
    """The `construct` lines being executed, innermost first; outside of cells, the caller's line."""
    frame: FrameType | None = sys._getframe(1)
    lines: list[SourceLine] = []
    outside: SourceLine | None = None
    while frame is not None:
        code = frame.f_code
        if code.co_name == "construct":
            lines.append(SourceLine(code.co_filename, frame.f_lineno))
        elif outside is None and not code.co_filename.startswith(PACKAGE):
            outside = SourceLine(code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return tuple(lines) or ((outside,) if outside else ())


def user_line(source: Source) -> SourceLine | None:
    """The innermost line outside of runner's own layers."""
    return next((line for line in source if not line.file.startswith(PACKAGE)), source[0] if source else None)
