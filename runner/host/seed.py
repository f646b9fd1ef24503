"""One seed per run; every random generator is derived from the seed and its purpose."""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from runner.errors import ConfigError

_state = {"seed": 1, "created": 0, "called": 0}


def set_seed(seed: int) -> None:
    """Set the seed that all later generators derive from, as `mindspore.set_seed` does (default: 1).

    Raises ConfigError unless `seed` is an int of at least 0.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ConfigError("a seed is a whole number of at least 0", value=repr(seed))
    _state.update(seed=seed, created=0, called=0)


@contextmanager
def preserved() -> Iterator[None]:
    """Restore the seed and its count at the end of the context."""
    before = dict(_state)
    try:
        yield
    finally:
        _state.update(before)


def get_seed() -> int:
    """The seed in force."""
    return _state["seed"]


def generator(*purpose: str | int) -> np.random.Generator:
    """A generator that depends on the seed and on the purpose (such as `"shuffle", epoch`) and on nothing else."""
    words = [part if isinstance(part, int) else zlib.crc32(part.encode()) for part in purpose]
    return np.random.default_rng(np.random.SeedSequence([get_seed(), *words]))


def next_number() -> int:
    """0, 1, 2, ... since the seed was set: the number of an initialiser or layer within a network."""
    _state["created"] += 1
    return _state["created"] - 1


def next_call() -> int:
    """0, 1, 2, ... since the seed was set: the number of a direct call of a random transform."""
    _state["called"] += 1
    return _state["called"] - 1
