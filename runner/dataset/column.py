"""One column of a dataset: the source's array and the transforms on the way to a batch.

The chain is arranged once, so that a batch costs little: layout moves ahead of arithmetic, what keeps the element type
is applied to the whole source and kept, and joined multiplications become one.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from runner.dataset.transforms.transform import Affine, Transform
from runner.errors import ConfigError
from runner.types import TensorType

KEPT_BYTES = 1 << 30  # a whole transformed column above this size is not kept: then each batch is transformed
TOLERANCE = 1e-6  # how far joining two steps may move a value, relative to the largest one or to 1


class Column:
    """A name, the source's values [N, ...] and the transforms from a stored row to a sample."""

    def __init__(self, name: str, source: np.ndarray, transforms: tuple[Transform, ...] = ()) -> None:
        self.name = name
        self.source = source
        self.transforms = transforms
        self.sample = sample_type(source)
        for transform in transforms:
            try:
                self.sample = transform.infer(self.sample)
            except ConfigError as error:
                error.add(column=name, operation=transform)
                raise

    def map(self, operations: Sequence[Transform]) -> "Column":
        """The column with further transforms."""
        return Column(self.name, self.source, (*self.transforms, *operations))

    @property
    def compact(self) -> np.ndarray:
        """All rows as they are kept, read-only: the source after the transforms that keep its element type."""
        return self._plan[0]

    @property
    def remaining(self) -> tuple[Transform, ...]:
        """The transforms from rows of `compact` to samples."""
        return self._plan[1]

    def fetch(self, rows: np.ndarray) -> np.ndarray:
        """The samples of the given source rows, [B, ...], in new memory."""
        values, remaining = self._plan
        batch = values.take(rows, axis=0)
        for transform in remaining:
            batch = transform(batch)
        return batch

    @cached_property
    def _plan(self) -> tuple[np.ndarray, tuple[Transform, ...]]:
        values = self.source
        chain = layout_first(self.transforms)
        while chain and _can_be_kept(values, chain[0]):
            values = chain.pop(0)(values)
        kept = values.view()
        kept.flags.writeable = False
        return kept, tuple(joined(chain) if kept.dtype == np.uint8 else chain)


def sample_type(values: np.ndarray) -> TensorType:
    """The type of one row."""
    whole = TensorType.of(values)
    return whole.with_shape(*whole.shape[1:])


def layout_first(transforms: Sequence[Transform]) -> list[Transform]:
    """The same function with the transforms that can do so moved ahead of arithmetic, where they work on bytes."""
    chain: list[Transform] = []
    for transform in transforms:
        place = len(chain)
        while place and isinstance(before := chain[place - 1], Affine):
            moved = transform.moved_before(before)
            if moved is None:
                break
            place -= 1
            chain[place] = moved
        chain.insert(place, transform)
    return chain


def joined(chain: Sequence[Transform]) -> list[Transform]:
    """The chain on bytes with the arithmetic at its head joined, as far as no byte's result moves noticeably."""
    steps = list(chain)
    while len(steps) > 1 and isinstance(first := steps[0], Affine) and isinstance(second := steps[1], Affine):
        together = first.then(second)
        if not _same_on_bytes(together, first, second):
            break
        steps[:2] = [together]
    return steps


def _can_be_kept(values: np.ndarray, transform: Transform) -> bool:
    before = sample_type(values)
    after = transform.infer(before)
    return after.dtype is before.dtype and len(values) * after.nbytes <= KEPT_BYTES


def _same_on_bytes(together: Affine, first: Affine, second: Affine) -> bool:
    every_byte = np.arange(256, dtype=np.uint8).reshape(-1, *[1] * max(first.scale.ndim, second.scale.ndim))
    apart = second(first(every_byte))
    return bool(np.abs(together(every_byte) - apart).max() <= TOLERANCE * max(1.0, float(np.abs(apart).max())))
