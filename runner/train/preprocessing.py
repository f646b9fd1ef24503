"""The transforms of a dataset in operators: inside of sinks, and of exported networks."""

from collections.abc import Sequence

from runner import ops
from runner.core.values import Value
from runner.dataset.transforms.transform import Transform
from runner.errors import ConfigError, RunnerError


def transformed(batch: Value, transforms: Sequence[Transform]) -> Value:
    """A traced batch [B, ...] after these transforms.

    Raises ConfigError, with the transform, when its `lower` fails or does not return what its `infer` says.
    """
    for transform in transforms:
        sample = batch.type.with_shape(*batch.shape[1:])
        expected = transform.infer(sample)
        try:
            batch = transform.lower(batch, ops)
        except RunnerError as error:
            raise error.add(transform=transform) from None
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise ConfigError("the operators of a transform fail", transform=transform, reason=reason) from error
        made = batch.type if isinstance(batch, Value) else type(batch).__name__
        if made != expected.with_shape(*batch.shape[:1], *expected.shape):
            repair = "infer and lower have to agree"
            rows = {"transform": transform, "made": made, "infer": expected, "repair": repair}
            raise ConfigError("the operators of a transform give another type", **rows)
    return batch
