"""A pool of forked processes that end with the process that started them, however that one ends.

Forking a process that has everything imported takes milliseconds and pickles no code. Each child leads its own process
group. When its parent dies, Linux sends it SIGTERM (`PR_SET_PDEATHSIG`), so that it saves its state; a pipe that only
the parent holds open signals the same on every system, and a child that does not end in time is killed.
"""

import ctypes
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from runner.host import files
from runner.host.process import KINDS, exit_code, stop_signals

GRACE = 20.0  # seconds for a process to save its state after its parent died
PR_SET_PDEATHSIG = 1  # of prctl(2)

Work = Callable[[], int]


def run_all(works: Iterable[tuple[int, Work]], at_once: int, ended: Callable[[int, int], bool]) -> None:
    """Call every function in its own process, at most `at_once` at a time, and return when all have ended.

    `works` are pairs of a number and a function that returns an exit code. `ended` receives the number and the return
    code (as `subprocess.Popen.returncode`) of each process and returns whether to stop the others: running ones get
    SIGTERM. The first and second SIGINT or SIGTERM are forwarded to the processes, the third kills them. Raises
    KeyboardInterrupt (or Terminated) after a signal, once all have ended. No other thread may run: a fork loses it.
    """
    with _Signals() as signals, _leash() as leash:
        pool = _Pool(signals, leash, deque(works), at_once, ended)
        try:
            pool.run()
        except BaseException:
            pool.kill(signal.SIGKILL)
            for process in pool.running:
                os.waitpid(process, 0)
            raise
    if signals.seen:
        raise KINDS[signals.seen[0]]


def show_in(path: Path) -> None:
    """Append everything that this process prints from now on to a file. Raises OSError."""
    handle = files.open_unlinked(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number in (1, 2):
        os.dup2(handle, number)
    os.close(handle)
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115  until the process ends
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115


@dataclass
class _Pool:
    signals: "_Signals"
    leash: tuple[int, int]
    waiting: deque[tuple[int, Work]]
    at_once: int
    ended: Callable[[int, int], bool]
    running: dict[int, int] = field(default_factory=dict)  # process: number of the work
    stopped: bool = False

    def run(self) -> None:
        passed = 0
        while self.running or self.waiting:
            while self.waiting and len(self.running) < self.at_once:
                self._start(*self.waiting.popleft())
            self.signals.wait()
            for number in self.signals.seen[passed:]:
                passed += 1
                self._stop(number if passed < 3 else signal.SIGKILL)
            if self._reap() and not self.stopped:
                self._stop(signal.SIGTERM)

    def kill(self, number: int) -> None:
        """Send a signal to the process group of every running process."""
        for process in self.running:
            with suppress(ProcessLookupError):
                os.killpg(process, number)

    def _reap(self) -> bool:
        """Collect the processes that have ended; whether to stop the others."""
        stop = False
        for process in list(self.running):
            found, status = os.waitpid(process, os.WNOHANG)
            if found:
                stop |= self.ended(self.running.pop(process), os.waitstatus_to_exitcode(status))
        return stop

    def _stop(self, number: int) -> None:
        self.stopped = True
        self.waiting.clear()
        self.kill(number)

    def _start(self, number: int, work: Work) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        with _block_signals():
            process = os.fork()
            if not process:
                self._child(work, parent)
            self.running[process] = number
            with suppress(OSError):  # the child does the same; either may be first
                os.setpgid(process, process)

    def _child(self, work: Work, parent: int) -> NoReturn:
        """The body of a child process; signals are blocked until its handlers are set."""
        code = 1
        try:
            os.setpgid(0, 0)
            self.signals.restore()
            _tie(parent, *self.leash)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, KINDS)
            code = work()
        except KeyboardInterrupt as stop:
            code = exit_code(stop)
        except BaseException:
            traceback.print_exc()
        finally:
            with suppress(BaseException):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)  # without the clean-up that the parent will do


class _Signals:
    """Context that records signals in `seen`; `wait` returns at a signal or when a child has ended."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self._before: dict[int, Any] = {}
        self._wakes = -1

    def wait(self) -> None:
        """Wait for a signal or the end of a child, for at most a second."""
        if not self._before:
            time.sleep(0.02)
            return
        ready, _, _ = select.select([self._wakes], [], [], 1.0)
        if ready:
            os.read(self._wakes, 4096)

    def restore(self) -> None:
        """Restore the previous handlers."""
        if self._before:
            signal.set_wakeup_fd(-1)
            for number, handler in self._before.items():
                signal.signal(number, handler)

    def _keep(self, number: int, frame: FrameType | None) -> None:
        if number != signal.SIGCHLD:
            self.seen.append(number)

    def __enter__(self) -> "_Signals":
        if threading.current_thread() is threading.main_thread():  # elsewhere Python allows no handlers
            self._wakes, self._woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
            self._before = {number: signal.signal(number, self._keep) for number in (*stop_signals(), signal.SIGCHLD)}
            signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        return self

    def __exit__(self, *reason: object) -> None:
        self.restore()
        if self._before:
            os.close(self._wakes)
            os.close(self._woken)


@contextmanager
def _block_signals() -> Iterator[None]:
    """Block signals, so that none is lost between a fork and the child's handlers."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, KINDS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _leash() -> Iterator[tuple[int, int]]:
    """A pipe that is never written to: its reading end reaches end-of-file when the parent ends."""
    ends = os.pipe2(os.O_CLOEXEC)
    try:
        yield ends
    finally:
        for end in ends:
            os.close(end)


def _tie(parent: int, leash: int, other: int) -> None:
    """End this process with its parent: by SIGTERM, and by SIGKILL after `GRACE` seconds."""
    os.close(other)
    threading.Thread(target=_follow, args=(leash,), name="runner-leash", daemon=True).start()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it died before prctl was called
        os.kill(os.getpid(), signal.SIGTERM)


def _follow(leash: int) -> None:
    os.read(leash, 1)
    if sys.platform != "linux":
        os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE)
    os.killpg(0, signal.SIGKILL)
