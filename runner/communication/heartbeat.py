"""A sign of life of each rank to the others, so that none waits for one that is gone.

A rank that is killed, stopped, or behind a cut link sends nothing, and MPI waits for it without a limit. A thread sends
a byte to each other rank several times within that limit, and notes when theirs arrived; steps and evaluations may take
as long as they take, since the thread runs beside them.
"""

import atexit
import threading
import time
from contextlib import suppress
from typing import Any

import numpy as np

BEATS = 10  # within the limit
LONGEST_PAUSE = 1.0  # seconds between two signs of life


class Heartbeat:
    """The signs of life of the ranks of an MPI communicator, which nothing else uses; `close` ends its thread.

    `limit` is how many seconds of silence are too many, `failure` what calls raise on a broken connection.
    """

    def __init__(self, ranks: Any, limit: float, failure: type[Exception]) -> None:
        self._ranks, self._limit, self._failure = ranks, limit, failure
        self._others = [rank for rank in range(ranks.Get_size()) if rank != ranks.Get_rank()]
        self._last_sign: dict[int, float] = {}
        self._received = {rank: np.zeros(1, np.uint8) for rank in self._others}
        self._woken, self._has_ended = threading.Event(), False
        self.allow(limit)
        self._thread = threading.Thread(target=self._run, name="runner-heartbeat", daemon=True)
        self._thread.start()
        atexit.register(self.close)  # before MPI ends

    def allow(self, limit: float) -> None:
        """From now on, so many seconds of silence are too many."""
        self._limit = limit
        self._last_sign |= dict.fromkeys(self._others, time.monotonic())
        self._woken.set()

    def silent(self) -> dict[int, float]:
        """The seconds since the last sign of life of each rank that has been silent for too long."""
        now = time.monotonic()
        return {rank: now - at for rank, at in self._last_sign.items() if now - at > self._limit}

    def close(self) -> None:
        """End the thread: other ranks that still wait for this one learn it from the end of its process."""
        self._has_ended = True
        self._woken.set()
        self._thread.join()

    def _run(self) -> None:
        with suppress(self._failure):  # the ranks fall silent to each other
            self._beat()

    def _beat(self) -> None:
        beat = np.zeros(1, np.uint8)
        sent = {rank: self._ranks.Isend(beat, dest=rank) for rank in self._others}
        expected = {rank: self._ranks.Irecv(self._received[rank], source=rank) for rank in self._others}
        while not self._has_ended:
            self._woken.wait(min(self._limit / BEATS, LONGEST_PAUSE))
            self._woken.clear()
            for rank in self._others:
                while expected[rank].Test():
                    self._last_sign[rank] = time.monotonic()
                    expected[rank] = self._ranks.Irecv(self._received[rank], source=rank)
                if sent[rank].Test():  # else the other one does not receive: no further ones pile up
                    sent[rank] = self._ranks.Isend(beat, dest=rank)
        for request in expected.values():
            request.Cancel()
