"""Standard output and error that a program can lose: a closed pipe, a full disk, a terminal that is gone.

A run of hours should not end when its lines can no longer be read, so a stream discards everything from the first
write that fails, and keeps the reason.
"""

import errno
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
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
