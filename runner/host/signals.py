"""SIGINT and SIGTERM while training: the first lets the step end and be saved, the second ends the run at once.

A process that was started with SIGINT ignored, as shells start background jobs, keeps ignoring it: Ctrl-C is meant for
the job in the foreground. SIGTERM is addressed to this process and always ends it. In a job of submitit, so does the
signal that the cluster sends before the time limit (`Preempted`).
"""

import os
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Any, Self

from runner.host.log import LOG


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived; as Ctrl-C, but with a different exit code."""


def exit_code(error: BaseException) -> int:
    """The exit code of a process that ends with this exception."""
    if isinstance(error, KeyboardInterrupt):
        return 143 if isinstance(error, Terminated) else 130
    return int(getattr(error, "exit_code", 1))


class Preempted(Terminated):
    """The cluster is about to end this job: its time limit is near, or others need the machine."""


PREEMPTION: int = getattr(signal, f"SIG{os.environ.get('SUBMITIT_PREEMPT_SIGNAL', 'USR2')}", signal.SIGUSR2)
KINDS: dict[int, type[KeyboardInterrupt]] = {
    signal.SIGINT: KeyboardInterrupt,
    signal.SIGTERM: Terminated,
    PREEMPTION: Preempted,
}


def stop_signals() -> tuple[int, ...]:
    """The signals that end a run in this process."""
    preempted = (PREEMPTION,) if os.environ.get("SUBMITIT_EXECUTOR") else ()
    interrupted = () if signal.getsignal(signal.SIGINT) is signal.SIG_IGN else (signal.SIGINT,)
    return *interrupted, signal.SIGTERM, *preempted


def stopped_by_signals() -> AbstractContextManager[None]:
    """Inside, SIGTERM and the like raise an exception, as Ctrl-C does, so that the status is written."""
    return handled([number for number in stop_signals() if number != signal.SIGINT], _raise)


def _raise(number: int, frame: FrameType | None) -> None:
    raise KINDS[number]


@contextmanager
def handled(numbers: Iterable[int], handler: Any) -> Iterator[None]:
    """Context in which signals have this handler; in the main thread only, since Python allows none elsewhere."""
    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ignored() -> AbstractContextManager[None]:
    """Context in which the signals have no effect."""
    return handled(KINDS, signal.SIG_IGN)


class Interruption:
    """Context in which `requested` is the exception of the first signal, or None before it. The second is raised."""

    def __init__(self) -> None:
        self.requested: type[KeyboardInterrupt] | None = None
        self._context = handled(stop_signals(), self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested is not None:
            raise KINDS[number]
        self.requested = KINDS[number]
        LOG.warning("saving the state after this step; a second signal ends the run at once")

    @contextmanager
    def raised_at_once(self) -> Iterator[None]:
        """Context in which the first signal is raised too, also one that was received before it."""
        if self.requested is not None:
            raise self.requested
        with handled(stop_signals(), _raise):
            yield

    def __enter__(self) -> Self:
        self._context.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._context.__exit__(*error)
