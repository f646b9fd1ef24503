"""Buckets of gradients: the rule of `all_reduce_fusion_config` (spec section 1.3)."""

from itertools import pairwise
from typing import Any

from runner.errors import ConfigError
from runner.validation.validate import Invalid

ALLOWED = "whole numbers from 1, ascending, each once, such as [4, 8]"


def validate_indices(indices: object) -> tuple[int, ...]:
    """The indices of parameters at which a new bucket begins. Raises Invalid."""
    if not isinstance(indices, list | tuple):
        raise Invalid("indices must be a list", ALLOWED)
    if not indices:
        raise Invalid("indices must not be empty", f"{ALLOWED}, or nothing at all: one bucket")
    if not all(type(index) is int and index >= 1 for index in indices):
        raise Invalid("indices must be whole numbers of at least 1", ALLOWED)
    if len(set(indices)) != len(indices):
        raise Invalid("indices must differ", ALLOWED)
    if list(indices) != sorted(indices):
        raise Invalid("indices must ascend", ALLOWED)
    return tuple(indices)


def buckets(count: int, indices: tuple[int, ...] | None) -> list[range]:
    """The indices of the parameters in each bucket. Raises ConfigError when an index is not below `count`.

    >>> buckets(10, (4, 8))
    [range(0, 4), range(4, 8), range(8, 10)]
    """
    ends: Any = (0, *(indices or ()), count)
    if ends[-2] >= count:
        rows = {"all_reduce_fusion_config": list(ends[1:-1]), "parameters": count, "allowed": f"1 to {count - 1}"}
        raise ConfigError("a bucket begins behind the last parameter", **rows)
    return [range(first, end) for first, end in pairwise(ends)]
