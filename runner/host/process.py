"""Processes: an identity by which one is recognised later, the number that mpirun gave it, signals, exit codes.

An identity is machine, process id and start time: an id alone may be that of another process, later or on another
machine. The first SIGINT or SIGTERM lets the step end and be saved (`Interruption`), the second ends the run at once.
"""

import os
import platform
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from runner.errors import BusyError, RunnerError
from runner.host.console import LOG

START_FIELD = 19  # of /proc/PID/stat, counted from the state, which follows the name in parentheses
ZOMBIE = "Z"  # it has ended, and its parent has not noticed


def own_identity() -> dict[str, Any]:
    """`pid`, `host` and `process_start` (clock ticks since the machine started) of this process."""
    return {"pid": os.getpid(), "host": platform.node(), "process_start": _state(os.getpid())[1]}


def is_of_this_machine(identity: Mapping[str, Any]) -> bool:
    """Whether the process is or was one of this machine, as far as that is known."""
    host = identity.get("host")
    return not isinstance(host, str) or host == platform.node()


def may_be_alive(identity: Mapping[str, Any]) -> bool:
    """Whether the process may still exist. False is certain; on another machine it cannot be examined.

    Missing entries, as in files of older versions, are not compared.
    """
    pid, start = identity.get("pid"), identity.get("process_start")
    if not isinstance(pid, int) or isinstance(pid, bool) or not 0 < pid < 1 << 31:
        return False
    if not is_of_this_machine(identity):
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    state, found = _state(pid)
    return state != ZOMBIE and (start is None or found in (None, start))


def _state(pid: int) -> tuple[str, int | None]:
    """State and start of a process; "" and None where the system does not provide them."""
    with suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return fields[0], int(fields[START_FIELD])
    return "", None


# Rank and size as mpirun sets them in the environment; MPI is loaded only when there are several processes.

# Environment variables with rank and size: MPICH, Intel MPI and Slurm (the first pair), Open MPI.
LAUNCHERS = ("PMI_RANK", "PMI_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")


def launched() -> tuple[int, int]:
    """Rank and size from the launcher of this process; (0, 1) without one."""
    for rank, size in LAUNCHERS:
        found = os.environ.get(rank, ""), os.environ.get(size, "")
        if found[0].isdigit() and found[1].isdigit():
            return int(found[0]), int(found[1])
    return 0, 1


# One run at a time.


@cache
def _lock_of(pid: int) -> Any:
    return threading.RLock()  # by process number: a forked process has none of the threads that hold one


@contextmanager
def only_run() -> Iterator[None]:
    """Inside, this thread executes a run, and no other one of the process does: seeds and settings are the process's.

    Raises BusyError.
    """
    lock = _lock_of(os.getpid())
    if not lock.acquire(blocking=False):
        rows = {"process": os.getpid(), "thread": threading.current_thread().name}
        hint = "one run after the other, or each in a process of its own"
        raise BusyError("another thread of this process executes a run", **rows, hint=hint)
    try:
        yield
    finally:
        lock.release()


# SIGINT and SIGTERM.
#
# A process that was started with SIGINT ignored, as shells start background jobs, keeps ignoring it: Ctrl-C is meant
# for the job in the foreground. SIGTERM is addressed to this process and always ends it. In a job of submitit, so does
# the signal that the cluster sends before the time limit (`Preempted`).


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived; as Ctrl-C, but with a different exit code."""


def exit_code(error: BaseException) -> int:
    """The exit code of a process that ends with this exception."""
    if isinstance(error, KeyboardInterrupt):
        return 143 if isinstance(error, Terminated) else 130
    return int(getattr(error, "exit_code", 1))


def stop_text(stop: KeyboardInterrupt) -> str:
    """What a process that a signal ends prints: one line, with the notes of the exception."""
    what = "Terminated" if isinstance(stop, Terminated) else "Interrupted"
    return "; ".join([what, *dict.fromkeys(getattr(stop, "__notes__", ()))])


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
    is_set = signal.getsignal(signal.SIGINT) is not signal.SIG_DFL  # by Python, or by the program that calls
    return handled([number for number in stop_signals() if number != signal.SIGINT or not is_set], _raise)


@contextmanager
def killed_by_signals() -> Iterator[None]:
    """Inside, until `stopped_by_signals`, SIGINT kills a process of mpirun, as SIGTERM does: mpirun ends the others.

    They would wait for one that only exits, and it cannot reach them before it has loaded MPI.
    """
    is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with handled([signal.SIGINT] if is_usual and launched()[1] > 1 else [], signal.SIG_DFL):
        yield


def die_of(stop: KeyboardInterrupt) -> None:
    """End this process by the signal of an exception: mpirun ends the other processes when one is killed."""
    number = next(number for number, kind in KINDS.items() if type(stop) is kind)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


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


# Exit codes of scripts: an exception of runner that a script does not catch ends it with the code of the contract.


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
        print(stop_text(error), file=sys.stderr)  # noqa: T201  the end of a script
    else:
        before(kind, error, trace)
    if isinstance(error, KeyboardInterrupt | RunnerError):
        raise SystemExit(exit_code(error))
