"""Transforms of transforms, of one sample: chains and random choices. Members may be any callables.

All random numbers of a sample come from its own sequence, in the order of the calls.
"""

from collections.abc import Callable, Sequence
from typing import Any

from runner.dataset.draws import Draws, draws_of_call
from runner.dataset.transforms.sample_transform import RandomSampleTransform, require_transforms, transform_one
from runner.errors import ConfigError
from runner.validation.arguments import finite_number

__all__ = ["Compose", "RandomApply", "RandomChoice", "RandomOrder"]

Operation = Callable[..., Any]


class TransformGroup(RandomSampleTransform):
    """Transforms that are applied in sequence or by chance."""

    def __init__(self, transforms: Sequence[Operation]) -> None:
        self.transforms = require_transforms(transforms)


class Compose(TransformGroup):
    """The transforms one after the other; one that returns a tuple gives the next one several operands.

    >>> Compose([abs, lambda number: number + 1])(-3)
    4
    """

    def one(self, value: Any, draws: Draws) -> Any:
        """The result of the last transform."""
        return self.all_of((value,), draws)

    def __call__(self, *values: Any) -> Any:
        """The result of the last transform; a tuple stands for several columns."""
        return self.all_of(values, draws_of_call())

    def all_of(self, values: tuple[Any, ...], draws: Draws) -> Any:
        """The result for these values of one sample, one for each column."""
        for operation in self.transforms:
            made = transform_one(operation, values, draws)
            values = made if isinstance(made, tuple) else (made,)
        return values[0] if len(values) == 1 else values


class RandomApply(TransformGroup):
    """All of the transforms with probability `prob`, otherwise none."""

    def __init__(self, transforms: Sequence[Operation], prob: float = 0.5) -> None:
        super().__init__(transforms)
        self.prob = finite_number("prob", prob)
        if not 0.0 <= self.prob <= 1.0:
            raise ConfigError("not a probability", argument="prob", value=prob, allowed="0 to 1")

    def one(self, value: Any, draws: Draws) -> Any:
        """The sample, transformed or not."""
        return in_turn(self.transforms, value, draws) if draws.chance(self.prob) else value


class RandomChoice(TransformGroup):
    """One of the transforms, each equally likely."""

    def one(self, value: Any, draws: Draws) -> Any:
        """The transformed sample."""
        return transform_one(draws.choice(self.transforms), (value,), draws)


class RandomOrder(TransformGroup):
    """All of the transforms, in a random order."""

    def one(self, value: Any, draws: Draws) -> Any:
        """The transformed sample."""
        return in_turn(draws.order(self.transforms), value, draws)


def in_turn(operations: Sequence[Operation], value: Any, draws: Draws) -> Any:
    """The sample after all of these."""
    for operation in operations:
        value = transform_one(operation, (value,), draws)
    return value
