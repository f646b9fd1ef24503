"""One seed per run; every random generator is derived from the seed and its purpose."""

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from runner.errors import ConfigError

UNSET = -1
_observers: list[Callable[[], None]] = []
_state = {"seed": 1, "created": 0, "called": 0, "data": UNSET}


def set_seed(seed: int) -> None:
    """Set the seed that all later generators derive from, as `mindspore.set_seed` does (default: 1).

    Also that of numpy's global generator, from which users' code may draw. Raises ConfigError unless `seed` is an int
    of at least 0.
    """
    _require_seed(seed)
    np.random.seed(seed % 2**32)
    _state.update(seed=seed, created=0, called=0, data=UNSET)
    for observer in _observers:
        observer()


def on_change(observer: Callable[[], None]) -> None:
    """Call `observer` whenever the seed has been set."""
    _observers.append(observer)


def set_data_seed(seed: int) -> None:
    """Set the seed of data pipelines alone, until the next `set_seed`. Raises as `set_seed`."""
    _require_seed(seed)
    _state.update(data=seed, called=0)


def _require_seed(seed: object) -> None:
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ConfigError("a seed is a whole number of at least 0", value=repr(seed))


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


def get_data_seed() -> int:
    """The seed in force for the order of samples and for random transforms."""
    return get_seed() if _state["data"] == UNSET else _state["data"]


def generator(*purpose: str | int) -> np.random.Generator:
    """A generator that depends on the seed and on the purpose (such as `"init", number`) and on nothing else."""
    return _generator(get_seed(), purpose)


def data_generator(*purpose: str | int) -> np.random.Generator:
    """The same for the seed of data pipelines."""
    return _generator(get_data_seed(), purpose)


def _generator(number: int, purpose: tuple[str | int, ...]) -> np.random.Generator:
    words = [part if isinstance(part, int) else zlib.crc32(part.encode()) for part in purpose]
    return np.random.default_rng(np.random.SeedSequence([number, *words]))


def next_number() -> int:
    """0, 1, 2, ... since the seed was set: the number of an initialiser or layer within a network."""
    _state["created"] += 1
    return _state["created"] - 1


def next_call() -> int:
    """0, 1, 2, ... since the seed was set: the number of a direct call of a random transform."""
    _state["called"] += 1
    return _state["called"] - 1
