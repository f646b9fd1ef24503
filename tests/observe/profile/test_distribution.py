"""Medians and quartiles of samples, compared with numpy's of every single step."""

import numpy as np
import pytest
from tables import table

from runner.observe.profile.analysis import NOTHING, Distribution, distribution, of_steps


@table("seed", range(40))
def test_quartiles(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 12))
    times, steps = rng.integers(0, 9, count), rng.integers(1, 5, count)
    found = distribution(zip(times.tolist(), steps.tolist(), strict=True))
    expected = np.quantile(np.repeat(times, steps), [0.5, 0.25, 0.75], method="averaged_inverted_cdf")
    assert found[1:4] == pytest.approx(expected)
    assert found.samples == count


def test_the_median_is_the_usual_one():
    assert of_steps([4, 1, 2, 3]).value == 2.5
    assert of_steps([5.0]) == (1, 5.0, 5.0, 5.0, False)
    assert of_steps([]) == NOTHING


def close(value, low, high):
    return Distribution(10, value, low, high)


@table(
    ("a", "b", "separate"),
    [
        (close(100, 99, 101), close(70, 69, 71), True),
        (close(100, 99, 101), close(80, 79, 81), False),  # the same operator differs as much from run to run
        (close(100, 60, 140), close(70, 40, 80), False),  # the quartiles overlap
        (close(100, 95, 900), close(50, 49, 51), True),  # another process disturbed some steps, which hides nothing
        (close(100, 95, 105), close(50, 49, 99), False),
        (close(300, 100, 900), close(90, 89, 91), False),  # half of the steps are disturbed
        (close(70, 69, 71), close(100, 99, 101), False),
        (NOTHING, NOTHING, False),
    ],
)
def test_what_exceeds_the_spread(a, b, separate):
    assert a.exceeds(b) == separate
