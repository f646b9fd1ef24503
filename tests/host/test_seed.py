"""One seed, and generators that depend on it and on what they are for, on nothing else."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import runner
from runner import nn
from runner.errors import ConfigError
from runner.host import seed


def drawn(*purpose: str | int) -> list[int]:
    return seed.generator(*purpose).integers(1 << 30, size=4).tolist()


def test_the_default_is_1():
    assert runner.get_seed() == 1


@pytest.mark.parametrize("number", [0, 7, 2**40 + 7])
def test_numpys_global_generator_has_it_too(number):
    numbers = []
    for _ in range(2):
        runner.set_seed(number)
        numbers.append(np.random.random(3).tolist())
    assert numbers[0] == numbers[1]
    np.random.seed(number % 2**32)
    assert np.random.random(3).tolist() == numbers[0]


def test_a_generator_depends_on_seed_and_purpose_only():
    first = drawn("shuffle", 0, 3)
    np.random.seed(5)
    drawn("weights", 1)
    seed.next_number()
    assert drawn("shuffle", 0, 3) == first
    others = [("shuffle", 0, 4), ("shuffle", 1, 3), ("shuffle", 3, 0), ("dropout", 0, 3), ("dropout",)]
    streams = [first, *(drawn(*other) for other in others)]
    runner.set_seed(2)
    streams.append(drawn("shuffle", 0, 3))
    assert len({tuple(stream) for stream in streams}) == len(streams)
    runner.set_seed(1)
    assert drawn("shuffle", 0, 3) == first


def test_two_generators_of_one_purpose_do_not_share_their_state():
    one, other = seed.generator("x"), seed.generator("x")
    assert one.random(3).tolist() == other.random(3).tolist()


def test_another_process_draws_the_same_numbers():
    """Python's own hash of a text differs from process to process."""
    code = "from runner.host import seed; print(seed.generator('shuffle', 1).integers(1 << 30, size=4).tolist())"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONHASHSEED": "77"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(drawn("shuffle", 1))


def test_numbers_count_from_the_seed_on():
    assert [seed.next_number() for _ in range(3)] == [0, 1, 2]
    runner.set_seed(1)
    assert seed.next_number() == 0


def test_equal_networks_follow_from_equal_seeds():
    def weights(number: int) -> list[bytes]:
        runner.set_seed(number)
        return [nn.Dense(4, 3).weight.asnumpy().tobytes() for _ in range(2)]

    first, again, other = weights(3), weights(3), weights(4)
    assert first == again
    assert first[0] != first[1]  # two layers of one network
    assert set(first).isdisjoint(other)


@pytest.mark.parametrize("large", [0, 2**31, 2**63 - 1, 2**200])
def test_every_whole_number_is_a_seed(large):
    runner.set_seed(large)
    assert runner.get_seed() == large
    assert len(set(drawn("x"))) == 4


@pytest.mark.parametrize("wrong", [-1, 1.0, True, "1", None])
def test_what_is_no_seed(wrong):
    with pytest.raises(ConfigError) as caught:
        runner.set_seed(wrong)
    assert str(caught.value) == f"ConfigError: a seed is a whole number of at least 0\n  value  {wrong!r}"
    assert runner.get_seed() == 1
