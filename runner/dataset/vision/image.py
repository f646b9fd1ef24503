"""Checks of the arguments and samples of image transforms."""

from collections.abc import Sequence

from runner.dataset.transforms.transform import Transform
from runner.errors import ConfigError
from runner.types import TensorType
from runner.validation.arguments import as_list, whole_number

MAX_SIDE = 1 << 14


def size_of(size: int | Sequence[int]) -> tuple[int, ...]:
    """One side, or height and width, each from 1 to `MAX_SIDE`. Raises ConfigError for anything else."""
    sides = as_list(size)
    if len(sides) not in (1, 2):
        raise ConfigError("a size is one number or two", argument="size", value=size, allowed="(height, width)")
    return tuple(whole_number("size", side, 1, MAX_SIDE) for side in sides)


def require_image(transform: Transform, sample: TensorType) -> None:
    """Raise ConfigError for samples that do not have three axes."""
    if sample.ndim != 3:
        raise ConfigError(f"{transform!r} takes images [height, width, channels]", sample=sample)
