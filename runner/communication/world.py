"""The ranks of a data-parallel run: who they are, and what they exchange.

A process that has not joined others is a world of one, and every exchange in it gives back what went in.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np


class World:
    """One process by itself: rank 0 of 1. `local_rank` and `local_size` count the ranks on this machine.

    All ranks must make the same exchanges in the same order.
    """

    rank, size, local_rank, local_size = 0, 1, 0, 1
    exchanging: Callable[[], AbstractContextManager[object]] = nullcontext  # around `summed`; a profile puts its clock

    def begin(self, arrays: Sequence[np.ndarray]) -> None:
        """These arrays will be summed next but something: what is on the way early costs no time later."""

    def summed(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The sums over all ranks, added in the order of ranks: the same bits on every rank and in every run.

        The arrays have one element type, and the same shapes on all ranks.
        """
        return list(arrays)

    def shared(self, value: Any, by: int = 0) -> Any:
        """What one rank gives, on all ranks; a value of JSON."""
        return value

    def shared_arrays(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The arrays of the first rank, on all ranks; types and shapes are the same everywhere."""
        return list(arrays)

    def gathered(self, number: int) -> list[int]:
        """The numbers of all ranks, in the order of ranks."""
        return [number]

    def met(self, seconds: float | None = None) -> bool:
        """Whether all ranks have come to their end within so many seconds (None: wait for them)."""
        return True

    def abort(self, exit_code: int) -> None:
        """End all ranks at once."""


_present = [World()]


def world() -> World:
    """The world that this process is in."""
    return _present[0]


def enter(joined: World) -> World:
    """This process is in another world from now on."""
    _present[0] = joined
    return joined


class OutOfReach(Exception):
    """What one rank makes by itself comes to an exchange with the others, who do not make it."""


class _Apart(World):
    """A rank among others that does not meet them."""

    def __init__(self, among: World) -> None:
        self.rank, self.size = among.rank, among.size
        self.local_rank, self.local_size = among.local_rank, among.local_size

    def summed(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        raise OutOfReach


@contextmanager
def apart() -> Iterator[None]:
    """Inside, this process exchanges nothing with others: what needs their sums raises OutOfReach.

    A process by itself needs nobody.
    """
    among = world()
    if among.size > 1:
        enter(_Apart(among))
    try:
        yield
    finally:
        enter(among)
