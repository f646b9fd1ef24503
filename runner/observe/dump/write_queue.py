"""A queue for one background thread, with a limit on the memory of queued work."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from runner.errors import InternalError
from runner.observe.dump.writer import Piece, write_pieces

ITEM_BYTES = 1024  # overhead of an item: without it, any number of scalars could be queued


class WriteQueue:
    """Executes work in order in a background thread.

    `limit` and `peak` are in bytes; `peak` is the maximum held so far, including the item in progress. Callers block
    until there is room for their work; an item larger than the limit is executed by the caller once the queue is empty.

    After the first error queued work is dropped, and every later call raises that error. The thread is a daemon, so
    that a process which ends without `close` does not wait for it.
    """

    def __init__(self, limit: int) -> None:
        self.limit, self.peak = limit, 0
        self._held = 0
        self._waiting: deque[tuple[Callable[[], object], int]] = deque()
        self._error: Exception | None = None
        self._is_closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="dump", daemon=True)
        self._thread.start()

    def put(self, path: Path, pieces: Sequence[Piece]) -> None:
        """Write a file of bytes and arrays, which must not change afterwards."""
        size = sum(len(piece) if isinstance(piece, bytes) else piece.nbytes for piece in pieces)
        self.submit(partial(write_pieces, path, pieces), size)

    def submit(self, work: Callable[[], object], nbytes: int) -> None:
        """Queue a function call that holds `nbytes` of memory until it returns."""
        nbytes += ITEM_BYTES
        is_large = nbytes > self.limit
        room = 0 if is_large else self.limit - nbytes
        with self._changed:
            self._changed.wait_for(lambda: self._error or self._held <= room)
            self.check()
            if self._is_closed:
                raise InternalError("a write queue received work after close()")
            if not is_large:
                self._held += nbytes
                self.peak = max(self.peak, self._held)
                self._waiting.append((work, nbytes))
                self._changed.notify_all()
                return
        try:
            work()
        except Exception as error:
            self._fail(error)
            raise

    def drain(self) -> None:
        """Wait until all work is done. Raises the error of earlier work."""
        with self._changed:
            self._changed.wait_for(lambda: self._error or self._held == 0)
        self.check()

    def check(self) -> None:
        """Raise the error of earlier work, if any."""
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Wait until all work is done. Raises the error of earlier work, on every call."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join()
        self.check()

    def _run(self) -> None:
        # Memory is free once the reference to the work is gone, when `_run_next` has returned.
        while nbytes := self._run_next():
            with self._changed:
                self._held -= nbytes
                self._changed.notify_all()

    def _run_next(self) -> int:
        """Execute the next item. Returns the bytes that it held; 0 if the queue is closed and empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closed)
            if not self._waiting:
                return 0
            work, nbytes = self._waiting.popleft()
        try:
            work()
        except Exception as error:
            self._fail(error)
        return nbytes

    def _fail(self, error: Exception) -> None:
        with self._changed:
            self._error = self._error or error
            self._held -= sum(nbytes for _, nbytes in self._waiting)
            self._waiting.clear()
            self._changed.notify_all()
