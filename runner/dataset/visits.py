"""Visits: which sample of which pass a pipeline prepares, and the random numbers that belong to it.

A visit is one whole number, `pass * rows + row`: an order that goes through a source of 100 rows for the third time
visits row 7 as number 207. So an array of visits is all that a batch is made from, wherever and whenever that happens:
in another thread, in a stack of batches for a sink, in a run that was resumed. Row numbers alone are the visits of the
first pass.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from runner.host import seed

PURPOSE = 0x41554731  # keeps these numbers apart from others that derive from the seed
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
# Shifts and multipliers of SplitMix64's output function (Stafford's variant 13): every bit of the result depends on
# every bit of the counter. Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
ROUNDS = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))
LAST_SHIFT = np.uint64(31)
HALF = np.uint64(32)


@dataclass(frozen=True)
class Visits:
    """The samples of a batch: rows of the source, and for each how often the source was gone through before. [B]"""

    rows: np.ndarray
    passes: np.ndarray

    @classmethod
    def of(cls, numbers: np.ndarray, count: int) -> "Visits":
        """The visits with these numbers (whole, of at least 0) to a source of `count` rows."""
        passes, rows = np.divmod(numbers, count)
        return cls(rows, passes)

    def random(self, place: int, count: int) -> np.ndarray:
        """`count` random numbers for each sample, uint64 [count, B].

        They depend on the run's seed, the place of the transform that asks, the pass and the row, and on nothing else.
        """
        return _mixed(self._counter + _keys(seed.get_seed(), place, count))

    @cached_property
    def _counter(self) -> np.ndarray:
        """A number for each pass and row, alike for all that ask."""
        return _mixed(_mixed(self.passes.astype(np.uint64) * GOLDEN) + self.rows.astype(np.uint64) * GOLDEN)


def below(numbers: np.ndarray, limit: int) -> np.ndarray:
    """Random numbers as whole ones from 0 to `limit - 1` (at most 2**32), int64, all equally likely to 1 in 2**32."""
    return (((numbers >> HALF) * np.uint64(limit)) >> HALF).astype(np.int64)


def chance(numbers: np.ndarray, probability: float) -> np.ndarray:
    """True for the given share of all random numbers, to 1 in 2**32."""
    made: np.ndarray = (numbers >> HALF) < np.uint64(round(probability * 2**32))
    return made


@lru_cache
def _keys(run_seed: int, place: int, count: int) -> np.ndarray:
    return np.random.SeedSequence([run_seed, PURPOSE, place]).generate_state(count, np.uint64)[:, np.newaxis]


def _mixed(counter: np.ndarray) -> np.ndarray:
    for shift, multiplier in ROUNDS:
        counter = (counter ^ (counter >> shift)) * multiplier
    made: np.ndarray = counter ^ (counter >> LAST_SHIFT)
    return made
