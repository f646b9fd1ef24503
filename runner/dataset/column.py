"""One column of a dataset: the source's array and the transforms on the way to a batch.

The chain is arranged once, so that a batch costs little: layout moves ahead of arithmetic, what keeps the element type
is applied to the whole source and kept, and joined multiplications become one.
"""

import hashlib
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from runner import dtype as dt
from runner.dataset.transforms.transform import Affine, RandomTransform, Transform
from runner.dataset.visits import Visits
from runner.errors import ConfigError
from runner.types import TensorType

KEPT_BYTES = 1 << 30  # a whole transformed column above this size is not kept: then each batch is transformed
FINGERPRINT_BYTES = 1 << 24  # hashed at a time, so that columns that are not contiguous are never copied whole
TOLERANCE = 1e-6  # how far joining two steps may move a value, relative to the largest one or to 1


class Column:
    """A name, the source's values [N, ...] and the transforms from a stored row to a sample."""

    def __init__(self, name: str, source: np.ndarray, transforms: tuple[Transform, ...] = ()) -> None:
        self.name = name
        self.source = source
        self.transforms = transforms = tuple(numbered(transforms))
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

    def fetch(self, visits: Visits) -> np.ndarray:
        """The samples of these visits, [B, ...], in new memory."""
        values, remaining = self._plan
        batch = values.take(visits.rows, axis=0)
        for transform in remaining:
            batch = transform.at(batch, visits)
        return batch

    def fingerprint(self, digest: "hashlib._Hash") -> None:
        """Add the name, type, shape and values of the source."""
        digest.update(f"{self.name} {TensorType.of(self.source)}\n".encode())
        rows = max(1, FINGERPRINT_BYTES * len(self.source) // max(1, self.source.nbytes))
        for start in range(0, len(self.source), rows):
            digest.update(self.source[start : start + rows].tobytes())

    @cached_property
    def _plan(self) -> tuple[np.ndarray, tuple[Transform, ...]]:
        values = self.source
        chain = layout_first(self.transforms)
        while chain and _can_be_kept(values, chain[0]):
            values = chain.pop(0)(values)
        kept = values.view()
        kept.flags.writeable = False
        return kept, tuple(joined(chain, sample_type(kept)))


def sample_type(values: np.ndarray) -> TensorType:
    """The type of one row."""
    whole = TensorType.of(values)
    return whole.with_shape(*whole.shape[1:])


def numbered(transforms: Sequence[Transform]) -> Iterator[Transform]:
    """The transforms, each random one with its place among the random ones."""
    place = 0
    for transform in transforms:
        if isinstance(transform, RandomTransform):
            transform = transform.placed(place)
            place += 1
        yield transform


def layout_first(transforms: Sequence[Transform]) -> list[Transform]:
    """The same function with the transforms that can do so moved ahead of others, to where they work on bytes, once."""
    chain: list[Transform] = []
    for transform in transforms:
        place = len(chain)
        while place and (moved := transform.moved_before(chain[place - 1])):
            place -= 1
            chain[place] = moved
        chain.insert(place, transform)
    return chain


def joined(chain: Sequence[Transform], sample: TensorType) -> list[Transform]:
    """The chain with the arithmetic on bytes joined to one step, as far as no byte's result moves noticeably."""
    steps, start = list(chain), 0
    while start < len(steps) and sample.dtype is dt.uint8 and not isinstance(steps[start], Affine):
        sample = steps[start].infer(sample)
        start += 1
    if sample.dtype is not dt.uint8:
        return steps
    while len(steps) > start + 1 and isinstance(first := steps[start], Affine):
        second = steps[start + 1]
        if not isinstance(second, Affine) or not _same_on_bytes(together := first.then(second), first, second):
            break
        steps[start : start + 2] = [together]
    return steps


def _can_be_kept(values: np.ndarray, transform: Transform) -> bool:
    if isinstance(transform, RandomTransform):
        return False
    before = sample_type(values)
    after = transform.infer(before)
    return after.dtype is before.dtype and len(values) * after.nbytes <= KEPT_BYTES


def _same_on_bytes(together: Affine, first: Affine, second: Affine) -> bool:
    every_byte = np.arange(256, dtype=np.uint8).reshape(-1, *[1] * max(first.scale.ndim, second.scale.ndim))
    apart = second(first(every_byte))
    return bool(np.abs(together(every_byte) - apart).max() <= TOLERANCE * max(1.0, float(np.abs(apart).max())))
