"""The random numbers of one sample: a published generator, uniform, and the same wherever a sample is prepared."""

import threading

import numpy as np

from runner import set_seed
from runner.dataset.visits import Draws, Visits, draws_for_calls, draws_of_call


def test_the_numbers_are_splitmix64() -> None:
    """The first outputs for the seed 1234567, known from the generator's reference implementation."""
    draws = Draws(1234567)
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert [draws.number() for _ in expected] == expected


def test_distributions() -> None:
    draws = Draws(1)
    integers = np.bincount([draws.integer(2, 5) for _ in range(8000)], minlength=6)
    assert (integers[:2] == 0).all()
    assert (abs(integers[2:] - 2000) < 6 * 2000**0.5).all()
    uniform = np.array([draws.uniform(-1.0, 3.0) for _ in range(4000)])
    assert -1.0 <= uniform.min() < -0.9
    assert 2.9 < uniform.max() < 3.0
    assert abs(uniform.mean() - 1.0) < 0.15
    assert sum(draws.chance(0.25) for _ in range(4000)) in range(850, 1150)
    assert not any(draws.chance(0.0) for _ in range(100))
    assert all(draws.chance(1.0) for _ in range(100))
    orders = {tuple(draws.order("abc")) for _ in range(200)}
    assert len(orders) == 6
    assert draws.choice(["only"]) == "only"


def test_sequences_of_samples_depend_on_visit_and_position() -> None:
    visits = Visits.of(np.array([3, 13, 4]), 10)
    numbers = [own.number() for position in (0, 1) for own in Draws.of_samples(visits, position)]
    assert len(set(numbers)) == 6
    assert Draws.of_samples(Visits.of(np.array([13]), 10), 0)[0].number() == numbers[1]


def test_direct_calls_inside_of_a_sample_use_its_numbers() -> None:
    draws = Draws(5)
    others = []
    with draws_for_calls(draws):
        assert draws_of_call() is draws
        with draws_for_calls(Draws(6)):
            assert draws_of_call() is not draws
        assert draws_of_call() is draws
        thread = threading.Thread(target=lambda: others.append(draws_of_call()))
        thread.start()
        thread.join()
    assert others[0] is not draws
    set_seed(9)
    first = [draws_of_call().number() for _ in range(3)]
    set_seed(9)
    assert [draws_of_call().number() for _ in range(3)] == first
    assert len(set(first)) == 3
