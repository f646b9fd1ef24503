"""Exit codes of scripts: an exception of runner that a script does not catch ends it with the code of the contract."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Any

from runner.errors import RunnerError
from runner.host.signals import Terminated, exit_code


@contextmanager
def exit_codes() -> Iterator[None]:
    """Errors and signals that leave this context, and then the script, determine its exit code.

    Python's own traceback of an error remains; after a signal there is one line, with the notes of the exception.
    Nothing is changed in an interactive interpreter, whose session would end.
    """
    before = sys.excepthook
    is_set = isinstance(before, partial) and before.func is _end  # an exception that the script caught has left it
    if not is_set and not hasattr(sys, "ps1") and not sys.flags.interactive:
        sys.excepthook = partial(_end, before)
    yield
    sys.excepthook = before


def _end(before: Any, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if isinstance(error, KeyboardInterrupt):
        what = "Terminated" if isinstance(error, Terminated) else "Interrupted"
        print("; ".join([what, *getattr(error, "__notes__", ())]), file=sys.stderr)  # noqa: T201  the end of a script
    else:
        before(kind, error, trace)
    if isinstance(error, KeyboardInterrupt | RunnerError):
        raise SystemExit(exit_code(error))
