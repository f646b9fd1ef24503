"""What CI thins out and `make soak` makes whole: places to die at, bits to flip."""

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")

SOAK = "RUNNER_SOAK" in os.environ


def thinned(places: Iterable[T], every: int) -> Iterator[T]:
    """Each of the places in a soak; in CI the first and then every so many."""
    return islice(places, 0, None, 1 if SOAK else every)
