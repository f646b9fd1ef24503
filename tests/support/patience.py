"""Waiting in tests: for an event and not for a time, so that a slow or busy machine changes no result."""

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import thread as pool

PATIENCE = 600.0  # seconds: ends only what would never end; nothing that works comes near it, on any machine


def wait_until(condition: Callable[[], object], alive: Callable[[], object] = lambda: True) -> None:
    """Return when the condition holds. Raises AssertionError when it never does, or when `alive` no longer holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert alive(), "it has ended"
        assert time.monotonic() < deadline, f"waited {PATIENCE:g} seconds in vain"
        time.sleep(0.001)


@contextlib.contextmanager
def not_for_ever(what: object) -> Iterator[None]:
    """Inside, what waits for ever fails."""

    def stop(number: int, frame: object) -> None:
        raise AssertionError(f"hangs: {what!r}")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(int(PATIENCE))
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def is_blocked(thread: threading.Thread) -> bool:
    """Whether a thread waits for another one: for a condition, an event, its end, or for work in a pool."""
    frame = sys._current_frames().get(thread.ident or 0)
    waits = ("wait", "join", "_wait_for_tstate_lock"), ("_worker",)
    places = zip((threading.__file__, pool.__file__), waits, strict=True)
    return frame is not None and any(
        frame.f_code.co_filename == file and frame.f_code.co_name in names for file, names in places
    )


class SlowDisk:
    """For `files.before_operation`: a disk that is slower than the thread that made it, which gives it files.

    Other threads wait at each operation until that thread waits for them.
    """

    def __init__(self) -> None:
        self._giver = threading.current_thread()

    def __call__(self, operation: str, path: object) -> None:
        if threading.current_thread() is not self._giver:
            wait_until(lambda: is_blocked(self._giver))
