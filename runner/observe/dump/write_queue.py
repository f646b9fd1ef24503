"""Work for one thread in the background, with a bound on the memory that waits for it."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from runner.errors import InternalError
from runner.observe.dump.writer import Piece, write_pieces

ITEM_BYTES = 1024  # what an item takes besides its elements: without it, any number of scalars could wait


class WriteQueue:
    """Does what it is given in order, one after the other, while the caller goes on.

    `limit` is in bytes; `peak` tells the most that was ever held, what is being written included. Whoever gives more
    waits until there is room; what is larger than the limit is done by the caller's own thread, when nothing is left.

    The first error ends all: what waits is dropped, and every later call raises that error. The thread is a daemon, so
    a process that does not get as far as `close` ends without it.
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
        """Write a whole file of bytes and arrays, which must not change any more."""
        size = sum(len(piece) if isinstance(piece, bytes) else piece.nbytes for piece in pieces)
        self.submit(partial(write_pieces, path, pieces), size)

    def submit(self, work: Callable[[], object], nbytes: int) -> None:
        """Call a function, which holds so many bytes."""
        nbytes += ITEM_BYTES
        is_large = nbytes > self.limit
        room = 0 if is_large else self.limit - nbytes
        with self._changed:
            self._changed.wait_for(lambda: self._error or self._held <= room)
            self.check()
            if self._is_closed:
                raise InternalError("a queue got work after its end")
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

    def check(self) -> None:
        """Raise the error that has ended the work, if there was one."""
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Return when everything is done. Raises the error that has ended the work, also when it is called again."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join()
        self.check()

    def _run(self) -> None:
        # There is room for more when the work is let go of: when the function that holds it has returned.
        while nbytes := self._do_next():
            with self._changed:
                self._held -= nbytes
                self._changed.notify_all()

    def _do_next(self) -> int:
        """What it held; 0 when nothing will come any more."""
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
