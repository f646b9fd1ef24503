"""Visits: the row and the pass of each sample that a pipeline prepares, and the random numbers derived from them.

A visit is one integer, `pass * rows + row`: the third pass over a source of 100 rows visits row 7 as number 207. An
array of visits therefore determines a batch completely, wherever it is prepared: in another thread, in a stack of
batches for a sink, in a resumed run. Row numbers are the visits of the first pass.
"""

from functools import cached_property, lru_cache

import numpy as np

from runner.host import seed
from runner.validation.rules import Frozen

PURPOSE = 0x41554731  # separates these numbers from others that are derived from the seed
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
    return np.random.SeedSequence([run_seed, PURPOSE, position]).generate_state(count, np.uint64)[:, np.newaxis]


def _mix(counter: np.ndarray) -> np.ndarray:
    for shift, multiplier in ROUNDS:
        counter = (counter ^ (counter >> shift)) * multiplier
    result: np.ndarray = counter ^ (counter >> LAST_SHIFT)
    return result
