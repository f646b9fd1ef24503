"""Exchanges with other ranks, heard by a clock: in every step and in both modes, since it costs next to nothing."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from runner.communication.world import World, enter, world
from runner.profiling.clock import Clock


@contextmanager
def heard(clock: Clock) -> Iterator[None]:
    """Inside, a clock hears the sums over all ranks."""
    usual = world()
    enter(HeardWorld(usual, clock))
    try:
        yield
    finally:
        enter(usual)


class HeardWorld(World):
    """A world whose sums a clock hears."""

    def __init__(self, usual: World, clock: Clock) -> None:
        self.usual, self.clock = usual, clock
        self.rank, self.size = usual.rank, usual.size
        self.local_rank, self.local_size = usual.local_rank, usual.local_size

    def begin(self, arrays: Sequence[np.ndarray]) -> None:
        self.usual.begin(arrays)

    def summed(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """As ever; waiting for the others is part of the time."""
        with self.clock.exchanging():
            return self.usual.summed(arrays)

    def shared(self, value: Any, by: int = 0) -> Any:
        return self.usual.shared(value, by)

    def shared_arrays(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        return self.usual.shared_arrays(arrays)

    def gathered(self, number: int) -> list[int]:
        return self.usual.gathered(number)

    def met(self, seconds: float | None = None) -> bool:
        return self.usual.met(seconds)

    def abort(self, exit_code: int) -> None:
        self.usual.abort(exit_code)
