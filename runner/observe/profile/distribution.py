"""The distribution of a time over the steps of a training, and what two of them say of each other."""

from collections.abc import Iterable
from typing import NamedTuple

# The share by which the time of an operator differs from run to run, in which it is in another place of the memory and
# beside other processes. Medians of equal operators of LeNet-5 differed by up to 0.2 in eight runs.
BETWEEN_RUNS = 0.25


class Distribution(NamedTuple):
    """Nanoseconds of a step, in so many `samples`: their `value`, and the quartiles `low` and `high`.

    A sample is a step, or a call of the device for several steps. The value is the median unless `is_mean`.
    """

    samples: int
    value: float
    low: float
    high: float
    is_mean: bool = False

    def exceeds(self, other: "Distribution") -> bool:
        """Whether the time is longer by more than the spread, so that the quartiles do not overlap, and by more than
        runs differ: of the longer time the lower quartile counts, since a few disturbed steps raise the median.
        """
        return self.low > other.high and (1 - BETWEEN_RUNS) * self.low > other.value


NOTHING = Distribution(0, 0.0, 0.0, 0.0)


def distribution(samples: Iterable[tuple[float, int]]) -> Distribution:
    """The distribution of samples: the time of a step, and the number of steps that had this time in the mean."""
    ordered = sorted(samples)
    if not ordered:
        return NOTHING
    low, median, high = (_quantile(ordered, quarters) for quarters in (1, 2, 3))
    return Distribution(len(ordered), median, low, high)


def of_steps(times: Iterable[float]) -> Distribution:
    """The distribution of times of single steps."""
    return distribution((time, 1) for time in times)


def _quantile(ordered: list[tuple[float, int]], quarters: int) -> float:
    """The shortest time that so many quarters of all steps do not exceed; of two such times, their mean."""
    target, seen = quarters * sum(steps for _, steps in ordered), 0
    for k, (time, steps) in enumerate(ordered):
        seen += 4 * steps
        if seen == target and k + 1 < len(ordered):
            return (time + ordered[k + 1][0]) / 2
        if seen >= target:
            return time
    return ordered[-1][0]
