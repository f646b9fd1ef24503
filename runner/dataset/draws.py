"""The random numbers of one sample: as many as a transform needs, from one key.

A key is derived from seed, position, pass and row (`runner/dataset/visits.py`), so a sample's numbers depend neither on
threads nor on batches, nor on where a run was resumed. They are those of SplitMix64 with the key as its seed.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import numpy as np

from runner.dataset.visits import GOLDEN, LAST_SHIFT, ROUNDS, Visits
from runner.host import seed

T = TypeVar("T")

MASK = (1 << 64) - 1
PURPOSE = 0x44524157  # separates the numbers of direct calls from others that are derived from the seed
_GOLDEN, _LAST_SHIFT = int(GOLDEN), int(LAST_SHIFT)
_ROUNDS = [(int(shift), int(multiplier)) for shift, multiplier in ROUNDS]
_thread = threading.local()


class Draws:
    """A sequence of random numbers; not thread-safe, as it belongs to one sample."""

    def __init__(self, key: int) -> None:
        self._state = key & MASK

    @classmethod
    def of_samples(cls, visits: Visits, position: int) -> list["Draws"]:
        """One sequence for each of these visits, for the transform at this position."""
        return [cls(key) for key in visits.random(position, 1)[0].tolist()]

    def number(self) -> int:
        """An integer of 64 random bits."""
        self._state = mixed = (self._state + _GOLDEN) & MASK
        for shift, multiplier in _ROUNDS:
            mixed = ((mixed ^ (mixed >> shift)) * multiplier) & MASK
        return mixed ^ (mixed >> _LAST_SHIFT)

    def uniform(self, low: float = 0.0, high: float = 1.0) -> float:
        """A float from `low` to `high`, with 53 random bits."""
        return low + (high - low) * ((self.number() >> 11) * 2.0**-53)

    def integer(self, low: int, high: int) -> int:
        """An integer from `low` to `high`, both included."""
        return low + ((self.number() * (high - low + 1)) >> 64)

    def chance(self, probability: float) -> bool:
        """True with this probability; always for 1, never for 0."""
        return self.uniform() < probability

    def choice(self, values: Sequence[T]) -> T:
        """One of the values, each equally likely."""
        return values[self.integer(0, len(values) - 1)]

    def order(self, values: Sequence[T]) -> list[T]:
        """The values in a random order, all orders equally likely."""
        mixed = list(values)
        for last in range(len(mixed) - 1, 0, -1):
            other = self.integer(0, last)
            mixed[last], mixed[other] = mixed[other], mixed[last]
        return mixed

    def generator(self) -> np.random.Generator:
        """A generator of numpy, for whole arrays and for other distributions."""
        return np.random.Generator(np.random.Philox(key=[self.number(), self.number()]))

    def visit(self) -> Visits:
        """One visit of its own, for transforms of batches."""
        return Visits(np.array([self.number() >> 1], np.int64), np.zeros(1, np.int64))


@contextmanager
def draws_for_calls(draws: Draws) -> Iterator[None]:
    """Random transforms that are called directly inside of this context, in this thread, draw from `draws`.

    So a function of the user in a pipeline may call random transforms: their numbers are those of the sample.
    """
    before = getattr(_thread, "draws", None)
    _thread.draws = draws
    try:
        yield
    finally:
        _thread.draws = before


def draws_of_call() -> Draws:
    """The numbers for a transform that is called directly, on one sample.

    Those of the sample in a pipeline; elsewhere new ones for each call, which depend on the seed and on the number of
    such calls since it was set.
    """
    draws: Draws | None = getattr(_thread, "draws", None)
    if draws is not None:
        return draws
    words = np.random.SeedSequence([seed.get_data_seed(), PURPOSE, seed.next_call()])
    return Draws(int(words.generate_state(1, np.uint64)[0]))
