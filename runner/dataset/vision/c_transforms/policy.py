"""Random choices among transforms: sub-policies with probabilities, and a uniform choice."""

from collections.abc import Callable, Sequence
from typing import Any

from runner.dataset.draws import Draws
from runner.dataset.transforms.sample_transform import RandomSampleTransform, require_transforms, transform_one
from runner.dataset.vision.image import probability_of
from runner.errors import ConfigError
from runner.validation.arguments import whole_number

__all__ = ["RandomSelectSubpolicy", "UniformAugment"]

APPLY_PROBABILITY = 0.5

Operation = Callable[..., Any]


class RandomSelectSubpolicy(RandomSampleTransform):
    """One of the sub-policies, chosen at random; each is a list of (transform, probability), applied in order."""

    def __init__(self, policy: Sequence[Sequence[tuple[Operation, float]]]) -> None:
        self.policy = [self._checked(part, policy) for part in require_policy(policy)]

    def one(self, value: Any, draws: Draws) -> Any:
        """The transformed sample."""
        for operation, probability in draws.choice(self.policy):
            if draws.chance(probability):
                value = transform_one(operation, (value,), draws)
        return value

    @staticmethod
    def _checked(part: Any, policy: Any) -> list[tuple[Operation, float]]:
        try:
            return [(require_transforms([step], "policy")[0], probability_of(prob, "policy")) for step, prob in part]
        except (TypeError, ValueError):
            allowed = "a list of lists of (transform, probability)"
            raise ConfigError("not a policy", argument="policy", value=policy, allowed=allowed) from None


class UniformAugment(RandomSampleTransform):
    """`num_ops` of the transforms, chosen at random without repetition, each applied with probability 1/2."""

    def __init__(self, transforms: Sequence[Operation], num_ops: int = 2) -> None:
        self.transforms = require_transforms(transforms)
        self.num_ops = whole_number("num_ops", num_ops, 1, len(self.transforms))

    def one(self, value: Any, draws: Draws) -> Any:
        """The transformed sample."""
        for operation in draws.order(self.transforms)[: self.num_ops]:
            if draws.chance(APPLY_PROBABILITY):
                value = transform_one(operation, (value,), draws)
        return value


def require_policy(policy: Any) -> Sequence[Any]:
    """The policy itself. Raises ConfigError unless it is a list of lists that are not empty."""
    parts = isinstance(policy, Sequence) and all(isinstance(part, Sequence) and part for part in policy)
    if not parts or not policy:
        allowed = "a list of lists of (transform, probability)"
        raise ConfigError("not a policy", argument="policy", value=policy, allowed=allowed)
    return policy  # type: ignore[no-any-return]
