"""The ranks of a data-parallel run and their collectives.

A process that has not joined others is a world of size 1, whose collectives return their operands.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np


class World:
    """A world of one process: rank 0 of 1. `local_rank` and `local_size` count the ranks on this machine.

    All ranks must call the same collectives in the same order.
    """

    rank, size, local_rank, local_size = 0, 1, 0, 1
    id = ""  # of a world of several ranks: the same on each
    # While a run starts: the seconds that an exchange waits for the other ranks. None: without a limit.
    limit: float | None = None
    ended = False  # whether all ranks know that the run has failed before its training
    exchanging: Callable[[], AbstractContextManager[object]] = nullcontext  # around `summed`; used by profiles

    def begin(self, arrays: Sequence[np.ndarray]) -> None:
        """Start the sum of these arrays, which `summed` will finish: communication overlaps with computation."""

    def summed(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The sums over all ranks, added in the order of ranks: the same bits on every rank and in every run.

        The arrays have one element type, and the same shapes on all ranks.
        """
        return list(arrays)

    def shared(self, value: Any, by: int = 0) -> Any:
        """Broadcast: a JSON value of the rank `by`, on all ranks. Raises TrainingError after `limit`."""
        return value

    def shared_arrays(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Broadcast: the arrays of the first rank, on all ranks; types and shapes must be equal on all of them.

        Raises TrainingError after `limit`.
        """
        return list(arrays)

    def gathered(self, number: int) -> list[int]:
        """All-gather: one number of each rank, in the order of ranks."""
        return [number]

    def all_gathered(self, value: Any) -> list[Any]:
        """All-gather: a JSON value of each rank, in the order of ranks. Raises TrainingError after `limit`."""
        return [value]

    def met(self, seconds: float | None = None) -> bool:
        """Barrier at the end of a run: whether all ranks reached it within `seconds` (None: without a limit)."""
        return True

    def abort(self, exit_code: int) -> None:
        """Terminate all ranks immediately."""


_present = [World()]


def world() -> World:
    """The world of this process."""
    return _present[0]


def enter(joined: World) -> World:
    """Replace the world of this process."""
    _present[0] = joined
    return joined


def process_number(card: int | None) -> int:
    """The number of this process in names of files: its rank, or that of its card, or 0 without cards.

    On several machines cards have equal numbers, and ranks have not.
    """
    return world().rank if world().size > 1 else card or 0


class IsolatedRankError(Exception):
    """An isolated rank reached a collective, which the other ranks do not call."""


class _IsolatedWorld(World):
    """A rank of several, without collectives."""

    def __init__(self, among: World) -> None:
        self.rank, self.size = among.rank, among.size
        self.local_rank, self.local_size, self.id = among.local_rank, among.local_size, among.id

    def summed(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        raise IsolatedRankError


@contextmanager
def isolated() -> Iterator[None]:
    """Inside, this process does not communicate: a collective raises IsolatedRankError.

    A world of size 1 stays as it is.
    """
    among = world()
    if among.size > 1:
        enter(_IsolatedWorld(among))
    try:
        yield
    finally:
        enter(among)
