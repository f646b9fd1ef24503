"""Visits: the row and the pass of each sample that a pipeline prepares, and the random numbers derived from them.

A visit is one integer, `pass * rows + row`: the third pass over a source of 100 rows visits row 7 as number 207. An
array of visits therefore determines a batch completely, wherever it is prepared: in another thread, in a stack of
batches for a sink, in a resumed run. Row numbers are the visits of the first pass.

`Visits` has random numbers for a batch, as many for each sample; `Draws` those of one sample, as many as a transform
needs. Both depend on the run's seed, the transform's position, the pass and the row alone.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache
from typing import TypeVar

import numpy as np

from runner.host import seed
from runner.validation.rules import Frozen

T = TypeVar("T")

OF_VISITS = 0x41554731  # separates these numbers from others that are derived from the seed
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
# Shifts and multipliers of SplitMix64's output function (Stafford's variant 13): every bit of the result depends on
# every bit of the counter. Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
ROUNDS = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))
LAST_SHIFT = np.uint64(31)
HALF = np.uint64(32)


class Visits(Frozen):
    """The samples of a batch: their rows in the source, and the number of earlier passes over the source. Each [B]."""

    rows: np.ndarray
    passes: np.ndarray

    @classmethod
    def of(cls, numbers: np.ndarray, count: int) -> "Visits":
        """The visits with these numbers (integers of at least 0) of a source of `count` rows."""
        passes, rows = np.divmod(numbers, count)
        return cls(rows, passes)

    def random(self, position: int, count: int) -> np.ndarray:
        """`count` random numbers for each sample, uint64 [count, B].

        They depend only on the run's seed, the position of the random transform in its column, the pass and the row.
        """
        return _mix(self._counter + _keys(seed.get_data_seed(), position, count))

    @cached_property
    def _counter(self) -> np.ndarray:
        """A number for each pass and row, the same for all transforms."""
        return _mix(_mix(self.passes.astype(np.uint64) * GOLDEN) + self.rows.astype(np.uint64) * GOLDEN)


def bounded(numbers: np.ndarray, limit: int) -> np.ndarray:
    """Random integers from 0 to `limit - 1`, int64, uniform to within 2**-32; `limit` is at most 2**32."""
    return (((numbers >> HALF) * np.uint64(limit)) >> HALF).astype(np.int64)


def bernoulli(numbers: np.ndarray, probability: float) -> np.ndarray:
    """True with the given probability, exact to within 2**-32."""
    result: np.ndarray = (numbers >> HALF) < np.uint64(round(probability * 2**32))
    return result


@lru_cache
def _keys(run_seed: int, position: int, count: int) -> np.ndarray:
    return np.random.SeedSequence([run_seed, OF_VISITS, position]).generate_state(count, np.uint64)[:, np.newaxis]


def _mix(counter: np.ndarray) -> np.ndarray:
    for shift, multiplier in ROUNDS:
        counter = (counter ^ (counter >> shift)) * multiplier
    result: np.ndarray = counter ^ (counter >> LAST_SHIFT)
    return result


# One sample: a key, derived from a visit and a position, and the numbers of SplitMix64 with the key as its seed.

MASK = (1 << 64) - 1
OF_CALLS = 0x44524157  # separates the numbers of direct calls from others that are derived from the seed
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
    words = np.random.SeedSequence([seed.get_data_seed(), OF_CALLS, seed.next_call()])
    return Draws(int(words.generate_state(1, np.uint64)[0]))
