"""Standard output and error that a program can lose: a closed pipe, a full disk, a terminal that is gone.

A run of hours should not end when its lines can no longer be read, so a stream discards everything from the first
write that fails, and keeps the reason.
"""

import csv
import errno
import io
import logging
import os
import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cache
from typing import Any, Self, TextIO

NAMES = ("stdout", "stderr")


class ConsoleStream:
    """A text stream whose `problem` is the error of the first write that failed; later writes are discarded."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream: Any = stream
        self.problem = None if stream else OSError(errno.EBADF, "closed")

    def write(self, text: str) -> int:
        """Write text, or discard it, and return its length in characters."""
        self._call("write", text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Write what is buffered."""
        self._call("flush")

    def isatty(self) -> bool:
        """Whether a person reads the stream."""
        return self.problem is None and bool(self._stream.isatty())

    def _call(self, method: str, *arguments: str) -> None:
        """Call a method of the stream, if it has no problem yet."""
        if self.problem is None:
            try:
                getattr(self._stream, method)(*arguments)
            except OSError as error:
                self.problem = error
                self._discard_buffer()

    def _discard_buffer(self) -> None:
        """Empty the stream's buffer into the null device: Python would write it again, and fail, when it exits."""
        with suppress(OSError, ValueError):
            descriptor = self._stream.fileno()
            before, null = os.dup(descriptor), os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, descriptor)
            self._stream.flush()
            os.dup2(before, descriptor)
            os.close(before)
            os.close(null)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Console:
    """Context in which standard output and error are `ConsoleStream`s; an inner context uses those of the outer one."""

    def __enter__(self) -> Self:
        self._before = {name: getattr(sys, name) for name in NAMES}
        self.streams: dict[str, ConsoleStream] = {}
        for name, stream in self._before.items():
            self.streams[name] = stream if isinstance(stream, ConsoleStream) else ConsoleStream(stream)
            setattr(sys, name, self.streams[name])
        return self

    def problems(self) -> dict[str, str]:
        """Why a stream is not complete, by its name: `{"stdout": "No space left on device"}`."""
        for stream in self.streams.values():
            stream.flush()
        found = {name: stream.problem for name, stream in self.streams.items()}
        return {name: str(problem.strerror or problem) for name, problem in found.items() if problem is not None}

    def __exit__(self, *error: object) -> None:
        self.problems()
        for name, stream in self._before.items():
            setattr(sys, name, stream)


def open_standard_descriptors() -> None:
    """Connect standard descriptors that are closed with the null device, so that no file that is opened gets them.

    Otherwise what a library prints would be written into that file.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # returns the lowest that is free, which is this one


# Texts of users and files in output that interprets characters: terminals, spreadsheets.

# Control characters, line and paragraph separators, and those that change the direction of what follows.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_FORMULA = re.compile("[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")


def visible(text: str) -> str:
    """The text in one line, with escapes instead of characters that a terminal would interpret.

    >>> print(visible("a\\x1b[2Jb\\nc"))
    a\\x1b[2Jb\\nc
    """
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


def as_unicode(text: str) -> str:
    """The text with escapes instead of lone surrogates, which names of files have in place of bytes that are not UTF-8.

    >>> as_unicode("a\\udcff")
    'a\\\\udcff'
    """
    return text.encode(errors="backslashreplace").decode()


def spreadsheet_cell(value: object) -> object:
    """A value for a CSV file: texts that a spreadsheet would take for a formula begin with an apostrophe, and have
    escapes instead of characters that a terminal would interpret.

    >>> spreadsheet_cell("=1+1"), spreadsheet_cell("-1e-3"), spreadsheet_cell(-0.5), spreadsheet_cell("a=b")
    ("'=1+1", '-1e-3', -0.5, 'a=b')
    """
    if not isinstance(value, str):
        return value
    return f"'{visible(value)}" if _FORMULA.match(value) and not _is_number(value) else visible(value)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.isprintable()


# Comma-separated values as text.


def csv_text(rows: Iterable[Sequence[object]], line_end: str = "\n") -> str:
    """A line for each row, of which the first are the columns; fields with commas or quotes are quoted.

    >>> csv_text([("name", "shape"), ("a", "1,2")])
    'name,shape\\na,"1,2"\\n'
    """
    text = io.StringIO()
    csv.writer(text, lineterminator=line_end).writerows(rows)
    return text.getvalue()


# The log of the package, for warnings and remarks to the user.

LOG = logging.getLogger("runner")


@cache
def note_once(text: str) -> None:
    """Report that something which a script of MindSpore requests has no effect here, once in a process."""
    LOG.warning(text)


# The time of day in records that a run writes.


def now() -> str:
    """The local time with its offset, to the second, such as `2026-11-22T18:09:54+00:00`."""
    return datetime.now().astimezone().isoformat(timespec="seconds")
