"""Base classes of transforms that are written for one sample, which may be an array or an image of Pillow."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

import numpy as np

from runner.dataset.draws import Draws, draws_for_calls, draws_of_call
from runner.dataset.transforms.transform import RandomTransform, Transform
from runner.dataset.visits import Visits
from runner.errors import ConfigError
from runner.types import TensorType


class SampleTransform(Transform):
    """A transform of one sample at a time, on the host; called directly, it takes one sample.

    It has no operators: in a sink, batches are prepared on the host, and `predict.onnx` is refused with its name.
    """

    position = 0

    @abstractmethod
    def one(self, value: Any, draws: Draws) -> Any:
        """One transformed sample; random transforms use `draws`. Must not modify `value`."""

    def __call__(self, value: Any) -> Any:
        """One transformed sample."""
        return self.one(value, draws_of_call())

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value}" for name, value in self.attributes().items())
        return f"{type(self).__name__}({arguments})"

    def infer(self, sample: TensorType) -> TensorType:
        """The type of the result for zeros of this type. Raises ConfigError for unsupported samples."""
        made = self.one(np.zeros(sample.shape, sample.dtype.numpy), Draws(0))
        return TensorType.of(np.asarray(made))

    def apply(self, batch: np.ndarray, visits: Visits) -> np.ndarray:
        """The transformed samples, [B, ...]. Raises ConfigError when their shapes differ."""
        draws = Draws.of_samples(visits, self.position)
        made = [np.asarray(self.one(sample, own)) for sample, own in zip(batch, draws, strict=True)]
        shapes = sorted({array.shape for array in made})
        if len(shapes) > 1:
            repair = "Resize((height, width)), CenterCrop or PadEnd give all samples one shape"
            rows = {"transform": self, "shapes": ", ".join(map(str, shapes[:4])), "repair": repair}
            raise ConfigError("the samples of a batch have different shapes", **rows)
        return np.stack(made)

    def attributes(self) -> dict[str, Any]:
        """The arguments, as values of JSON."""
        return {name: _plain(value) for name, value in vars(self).items() if name[0] != "_" and name != "position"}


class RandomSampleTransform(SampleTransform, RandomTransform):
    """A random `SampleTransform`: the numbers of a sample depend on seed, position, pass and row alone."""


def transform_one(operation: Callable[..., Any], values: tuple[Any, ...], draws: Draws) -> Any:
    """The result of any transform, or of any other callable, for one sample (a tuple: several columns).

    All random numbers come from `draws`, also those of random transforms that a callable of the user calls.
    """
    if isinstance(operation, SampleTransform) and len(values) == 1:
        return operation.one(values[0], draws)
    if isinstance(operation, Transform) and len(values) == 1:
        return operation.apply(np.asarray(values[0])[np.newaxis], draws.visit())[0]
    with draws_for_calls(draws):
        return operation(*values)


def require_transforms(transforms: Any, argument: str = "transforms") -> list[Callable[..., Any]]:
    """The transforms as a list. Raises ConfigError unless they are a list or tuple of at least one callable."""
    if not isinstance(transforms, Sequence) or not transforms or not all(map(callable, transforms)):
        allowed = "a list of at least one transform; transforms are callable"
        raise ConfigError("not transforms", argument=argument, value=transforms, allowed=allowed)
    return list(transforms)


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist() if value.size <= 64 else f"an array of shape {list(value.shape)}"
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
