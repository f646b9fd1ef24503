"""One column of a dataset: its source (an array, or a `RowSource`) and the transforms on the way to a batch.

The chain is optimised once: layout changes move before arithmetic, leading transforms that keep the element type are
applied to a whole array and cached, and consecutive affine transforms are fused. `exact_column` and its siblings make
columns of arrays as scripts have them, in other element types than networks compute with.
"""

import hashlib
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from runner import dtype as dt
from runner.dataset.samples import (
    TEXT,
    ListedSamples,
    OutOfRange,
    RowSource,
    SampleColumn,
    Shared,
    as_value,
    converted,
    narrowed,
    source_type,
    target_type,
)
from runner.dataset.transforms.transform import Affine, RandomTransform, Transform
from runner.dataset.visits import Visits
from runner.errors import ConfigError
from runner.types import TensorType

CACHED_BYTES = 1 << 30  # larger transformed columns are not cached: each batch is transformed
FINGERPRINT_BYTES = 1 << 24  # hashed at a time: columns that are not contiguous are never copied whole
TOLERANCE = 1e-6  # of the values of a fused step, relative to the largest one or to 1


class Column:
    """A name, the values of the source [N, ...] and the transforms from a row to a sample.

    `original` has the same rows in the element type that scripts see, where networks compute with another one. A
    `SampleColumn` has no transforms: what is computed from it is another one.
    """

    def __init__(
        self,
        name: str,
        source: np.ndarray | RowSource,
        transforms: tuple[Transform, ...] = (),
        original: np.ndarray | None = None,
    ) -> None:
        self.name = name
        self.source = source
        self.original = original
        self.transforms = tuple(with_positions(transforms))
        if transforms:
            _ = self.sample  # errors are raised where the transform is added

    @cached_property
    def sample(self) -> TensorType:
        """The type of a sample, as networks compute with it."""
        return self._transformed(sample_type(self.source))

    @cached_property
    def exact(self) -> tuple[np.dtype, tuple[int, ...]]:
        """Element type and shape of a sample, as scripts see it."""
        if isinstance(self.source, SampleColumn):
            return self.source.first.dtype, self.source.first.shape
        sample = self.sample if self.original is None else self._transformed(sample_type(self.original))
        return sample.dtype.numpy, sample.shape

    def _transformed(self, sample: TensorType) -> TensorType:
        for transform in self.transforms:
            try:
                sample = transform.infer(sample)
            except ConfigError as error:
                error.add(column=self.name, operation=transform)
                raise
        return sample

    def map(self, operations: Sequence[Transform]) -> "Column":
        """The column with further transforms."""
        return Column(self.name, self.source, (*self.transforms, *operations), self.original)

    def renamed(self, name: str) -> "Column":
        """The same column with another name."""
        return Column(name, self.source, self.transforms, self.original)

    @property
    def compact(self) -> np.ndarray | RowSource:
        """All rows as cached, read-only: an array after the leading transforms that keep its element type.

        A `RowSource` is returned as it is.
        """
        return self._plan[0]

    @property
    def remaining(self) -> tuple[Transform, ...]:
        """The transforms from rows of `compact` to samples."""
        return self._plan[1]

    @property
    def chain(self) -> tuple[Transform, ...]:
        """The transforms from rows of the source to samples, in the order in which they are applied."""
        return (*self._split[0], *self._split[1])

    def fetch(self, visits: Visits, shared: Shared | None = None) -> np.ndarray:
        """The samples of these visits, [B, ...], in new memory.

        Columns that are computed at once leave their values in `shared`. Raises ConfigError for samples of another
        shape than the transforms promise.
        """
        if isinstance(self.source, SampleColumn):
            return self.source.fetch(visits, {} if shared is None else shared)
        values, remaining = self._plan
        batch = values.take(visits.rows, axis=0)
        for transform in remaining:
            batch = transform.apply(batch, visits)
        self._check(batch, len(visits.rows))
        return batch

    def fetch_exact(self, visits: Visits, shared: Shared) -> np.ndarray:
        """As `fetch`, with the element types that scripts see."""
        if isinstance(self.source, SampleColumn):
            return self.source.batch(visits, shared)
        if self.original is None:
            return self.fetch(visits, shared)
        batch = self.original.take(visits.rows, axis=0)
        for transform in self.transforms:
            batch = transform.apply(batch, visits)
        self._check(batch, len(visits.rows))
        return batch

    def fingerprint(self, digest: "hashlib._Hash") -> None:
        """Update a digest with the name, type, shape and values of the source; for a `RowSource`, with its contents."""
        digest.update(f"{self.name} {source_type(self.source)}\n".encode("utf-8", "surrogatepass"))
        if isinstance(self.source, RowSource):
            for content in self.source.contents():
                digest.update(f"{len(content)}\n".encode())
                digest.update(content)
            return
        rows = max(1, FINGERPRINT_BYTES * len(self.source) // max(1, self.source.nbytes))
        for start in range(0, len(self.source), rows):
            digest.update(self.source[start : start + rows].tobytes())

    @cached_property
    def _plan(self) -> tuple[np.ndarray | RowSource, tuple[Transform, ...]]:
        values = self.source
        if isinstance(values, SampleColumn):
            return values, ()
        if isinstance(values, RowSource):
            return values, self._split[1]
        for transform in self._split[0]:
            values = transform.apply(values, Visits.of(np.arange(len(values)), max(1, len(values))))
        if not self._split[1]:
            self._check(values, len(self.source))
        cached = values.view()
        cached.flags.writeable = False
        return cached, self._split[1]

    def _check(self, batch: np.ndarray, count: int) -> None:
        if np.shape(batch) != (count, *self.sample.shape):
            rows = {"column": self.name, "operations": ", ".join(map(str, self.transforms))}
            expected, found = [count, *self.sample.shape], list(np.shape(batch))
            repair = "`infer` and `__call__` of a transform have to agree, for all samples"
            raise ConfigError("samples have another shape than the first", **rows, expected=expected, found=found).add(
                repair=repair
            )

    @cached_property
    def _split(self) -> tuple[tuple[Transform, ...], tuple[Transform, ...]]:
        """The transforms that are applied to the whole source, and those from then on."""
        sample, leading = sample_type(self.source), []
        chain = layout_first(self.transforms)
        in_memory = isinstance(self.source, np.ndarray)
        while chain and in_memory and _is_cacheable(len(self.source), sample, chain[0]):
            leading.append(chain.pop(0))
            sample = leading[-1].infer(sample)
        return tuple(leading), tuple(fuse_affine(chain, sample))


def sample_type(values: np.ndarray | RowSource) -> TensorType:
    """The type of one row."""
    column = source_type(values)
    return column.with_shape(*column.shape[1:])


def with_positions(transforms: Sequence[Transform]) -> Iterator[Transform]:
    """The transforms, each random one with its position among the random ones."""
    position = 0
    for transform in transforms:
        if isinstance(transform, RandomTransform):
            transform = transform.at_position(position)
            position += 1
        yield transform


def layout_first(transforms: Sequence[Transform]) -> list[Transform]:
    """An equivalent chain in which changes of layout come as early as possible, where they work on bytes, once."""
    chain: list[Transform] = []
    for transform in transforms:
        position = len(chain)
        while position and (moved := transform.moved_before(chain[position - 1])):
            position -= 1
            chain[position] = moved
        chain.insert(position, transform)
    return chain


def fuse_affine(chain: Sequence[Transform], sample: TensorType) -> list[Transform]:
    """The chain with consecutive affine transforms of bytes fused, as long as every result is within `TOLERANCE`."""
    steps, start = list(chain), 0
    while start < len(steps) and sample.dtype is dt.uint8 and not isinstance(steps[start], Affine):
        sample = steps[start].infer(sample)
        start += 1
    if sample.dtype is not dt.uint8:
        return steps
    while len(steps) > start + 1 and isinstance(first := steps[start], Affine):
        second = steps[start + 1]
        if not isinstance(second, Affine) or not _equal_on_bytes(fused := first.then(second), first, second):
            break
        steps[start : start + 2] = [fused]
    return steps


def _is_cacheable(rows: int, sample: TensorType, transform: Transform) -> bool:
    if isinstance(transform, RandomTransform):
        return False
    after = transform.infer(sample)
    return after.dtype is sample.dtype and rows * after.nbytes <= CACHED_BYTES


def _equal_on_bytes(fused: Affine, first: Affine, second: Affine) -> bool:
    every_byte = np.arange(256, dtype=np.uint8).reshape(-1, *[1] * max(first.scale.ndim, second.scale.ndim))
    expected = second(first(every_byte))
    return bool(np.abs(fused(every_byte) - expected).max() <= TOLERANCE * max(1.0, float(np.abs(expected).max())))


# Columns of arrays as scripts have them, of any element types.


class WideRows(RowSource):
    """Rows of an array [N, ...] with values that networks do not have, such as large Int64 numbers.

    They are converted when a network uses them; scripts read them all the same.
    """

    def __init__(self, name: str, values: np.ndarray) -> None:
        super().__init__(TensorType(dt.of(target_type(name, values)), values.shape))
        self._name, self._values = name, values

    def take(self, rows: np.ndarray, axis: int = 0) -> np.ndarray:
        """Raises ConfigError, with the number of the row, for a number that does not fit."""
        to = self.type.dtype.numpy
        made = [converted(self._name, self._values[row : row + 1], to, int(row)) for row in rows]
        return np.concatenate(made) if made else np.empty((0, *self.type.shape[1:]), to)

    def contents(self) -> Iterator[bytes]:
        return (row.tobytes() for row in self._values)


def exact_column(name: str, values: np.ndarray) -> Column:
    """A column of an array: networks compute with narrowed element types, scripts see those of the array.

    Unsigned class numbers of MindSpore's image datasets are such a type. Text, and numbers that networks cannot
    compute with, raise ConfigError where a network uses them. Raises ConfigError for other values.
    """
    if values.dtype.kind in TEXT:
        return listed_column(name, list(as_value(values)))
    try:
        for_networks = narrowed(name, values)
    except OutOfRange:
        return Column(name, WideRows(name, values), original=values)
    return Column(name, for_networks, original=None if for_networks is values else values)


def listed_column(name: str, values: Sequence[np.ndarray]) -> Column:
    """A column of arrays of any shapes, or of text."""
    return Column(name, SampleColumn(ListedSamples([name], [(np.asarray(value),) for value in values]), 0))


def labels_column(name: str, numbers: np.ndarray) -> Column:
    """Class numbers: Int32 for networks, UInt32 for scripts, as in MindSpore."""
    return Column(name, numbers.astype(np.int32), original=numbers.astype(np.uint32))
