"""The random numbers of a visit: the published generator, and nothing but seed, place, pass and row."""

import numpy as np
import pytest

from runner.dataset.visits import Visits, _mix, bernoulli, bounded
from runner.host import seed

MASK = 2**64 - 1


def test_the_mixing_is_splitmix64() -> None:
    """The first outputs for the seed 1234567, known from the generator's reference implementation."""
    state = np.array([(1234567 + k * 0x9E3779B97F4A7C15) & MASK for k in range(1, 6)], np.uint64)
    expected = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert _mix(state).tolist() == expected


def by_hand(counter: int) -> int:
    for shift, multiplier in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        counter = ((counter ^ (counter >> shift)) * multiplier) & MASK
    return counter ^ (counter >> 31)


def test_numbers_are_those_of_plain_integers() -> None:
    visits = Visits.of(np.array([0, 3, 999, 10**14 + 7]), 1000)
    drawn = visits.random(position=2, count=2)
    assert drawn.shape == (2, 4)
    assert drawn.dtype == np.uint64
    keys = np.random.SeedSequence([1, 0x41554731, 2]).generate_state(2, np.uint64).tolist()
    golden = 0x9E3779B97F4A7C15
    for k, key in enumerate(keys):
        for b, number in enumerate((0, 3, 999, 10**14 + 7)):
            counter = by_hand((by_hand(number // 1000 * golden & MASK) + number % 1000 * golden) & MASK)
            assert drawn[k, b] == by_hand((counter + key) & MASK)


def test_a_sample_s_numbers_do_not_depend_on_its_batch() -> None:
    numbers = np.random.default_rng(0).permutation(5000)
    whole = Visits.of(numbers, 700).random(0, 3)
    for start, end in ((0, 1), (17, 49), (4000, 5000)):
        np.testing.assert_array_equal(Visits.of(numbers[start:end], 700).random(0, 3), whole[:, start:end])


def test_no_two_numbers_are_the_same() -> None:
    """2 seeds x 3 places x 2 numbers x 40 passes x 500 rows."""
    made = []
    for number in (1, 2**62):
        seed.set_seed(number)
        made += [Visits.of(np.arange(40 * 500), 500).random(place, 2).ravel() for place in range(3)]
    assert len(np.unique(np.concatenate(made))) == 2 * 3 * 2 * 40 * 500


@pytest.mark.parametrize("limit", [2, 9, 10, 1000])
def test_whole_numbers_are_equally_likely(limit: int) -> None:
    drawn = bounded(Visits.of(np.arange(100 * limit * 20), 1000).random(0, 1)[0], limit)
    counts = np.bincount(drawn, minlength=limit)
    assert len(counts) == limit
    # Chi squared with limit - 1 degrees of freedom; six deviations from its mean.
    statistic = float(((counts - 2000.0) ** 2 / 2000.0).sum())
    assert abs(statistic - (limit - 1)) < 6 * (2 * (limit - 1)) ** 0.5


def test_the_ends_of_the_range() -> None:
    ends = np.array([0, MASK], np.uint64)
    assert bounded(ends, 9).tolist() == [0, 8]
    assert bounded(ends, 1).tolist() == [0, 0]
    assert bounded(ends, 2**32).tolist() == [0, 2**32 - 1]
    assert bernoulli(ends, 0.0).tolist() == [False, False]
    assert bernoulli(ends, 1.0).tolist() == [True, True]
    assert bernoulli(ends, 0.5).tolist() == [True, False]


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
def test_probabilities_are_exact(probability: float) -> None:
    share = bernoulli(Visits.of(np.arange(40000), 40000).random(5, 1)[0], probability).mean()
    assert abs(share - probability) < 5 * (probability * (1 - probability) / 40000) ** 0.5


def test_rows_and_passes_are_independent() -> None:
    """Neighbours in row, pass and place agree in a coin as often as two coins do."""
    coins = np.stack([bernoulli(Visits.of(np.arange(200 * 200), 200).random(k, 1)[0], 0.5) for k in range(2)])
    coins = coins.reshape(2, 200, 200)
    for axis in range(3):
        first, second = coins.take(0, axis), coins.take(1, axis)
        pairs = [(first, second)] if axis == 0 else [(np.delete(coins, -1, axis), np.delete(coins, 0, axis))]
        for one, other in pairs:
            agree, count = (one == other).mean(), one.size
            assert abs(agree - 0.5) < 5 * 0.5 / count**0.5
