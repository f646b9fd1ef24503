"""What operations of a `Dataset` compute for each item when it is used: each is a class of `Samples`.

`map` (`MapSamples`; runner's own transforms stay arrays), then those that change which items there are (`Items`,
`Chosen`, `Zipped`, `Chain`, `FlatMapped`), and batches of another form than rows stacked (`Batches`, `Buckets`), each
with the checks of its arguments. `Dataset` (`pipeline.py`) has the methods that scripts call.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from runner.dataset.column import Column
from runner.dataset.order import NO_VISIT, Order
from runner.dataset.prefetch import RowEvents
from runner.dataset.samples import PassTable, Sample, SampleColumn, Samples, Shared, as_sample, stacked
from runner.dataset.transforms.transform import SampleTransform, Transform, transform_one
from runner.dataset.visits import Draws, Visits
from runner.errors import ConfigError, known_names
from runner.validation.arguments import as_list, finite_number, whole_number

# `map`: runner's transforms, or any functions, for the values of columns.

Operation = Callable[..., Any]

FIRST_POSITION = 1 << 16  # of the random numbers: those of the transforms of a column are before


class MapSamples(Samples):
    """The results of `operations`, one after the other, for the values of `columns`, with the names `names`.

    What one operation returns, a value or a tuple of values, the next one receives; values need not be arrays between
    them. The random numbers of a sample depend on its visit alone.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        operations: Sequence[Callable[..., Any]],
        names: Sequence[str],
        events: RowEvents | None = None,
    ) -> None:
        super().__init__(names, len(columns[0].source))
        self.columns, self.operations, self._events = tuple(columns), tuple(operations), events
        self.depth = 1 + max(c.source.samples.depth if isinstance(c.source, SampleColumn) else 0 for c in columns)

    def __repr__(self) -> str:
        return ", ".join(map(described, self.operations))

    def at(self, visit: int) -> Sample:
        """Raises what an operation raises, and ConfigError when the last one returns another number of values."""
        visits = Visits.of(np.array([visit]), self.count)
        draws = Draws.of_samples(visits, FIRST_POSITION + self.depth)[0]
        made: Any = values_at(self.columns, visits)
        if self._events is not None:
            self._events.step_begin()
        for operation in self.operations:
            made = transform_one(operation, made if isinstance(made, tuple) else (made,), draws)
        if self._events is not None:
            self._events.step_end()
        return as_sample(self.names, made, described(self.operations[-1]))


def values_at(columns: Sequence[Column], visits: Visits) -> Sample:
    """The values of one visit, in the types that scripts see."""
    shared: Shared = {}
    return tuple(column.fetch_exact(visits, shared)[0, ...] for column in columns)


def described(function: object) -> str:
    """The name of a function, or the class of another object, for errors and profiles."""
    return getattr(function, "__name__", None) or type(function).__name__


def mapped(
    columns: Sequence[Column],
    operations: Sequence[Callable[..., Any]],
    names: Sequence[str],
    events: RowEvents | None = None,
) -> dict[str, Column]:
    """The columns after the operations, by their new names: with arrays as before if runner's transforms allow it."""
    column, first = columns[0], operations[0]
    if len(columns) > 1 and isinstance(first, Transform) and not isinstance(first, SampleTransform):
        rows = {"argument": "input_columns", "value": [c.name for c in columns], "operation": first}
        raise ConfigError("map takes one column for this transform", **rows)
    if events is None and len(columns) == len(names) == 1 and not isinstance(column.source, SampleColumn):
        transforms = [operation for operation in operations if isinstance(operation, Transform)]
        if len(transforms) == len(operations):
            return {names[0]: column.map(transforms).renamed(names[0])}
    samples = MapSamples(columns, operations, names, events)
    return {name: Column(name, SampleColumn(samples, index)) for index, name in enumerate(names)}


def operations_of(given: Any) -> list[Callable[..., Any]]:
    """The operations of a map as a list. Raises ConfigError for what cannot be called."""
    operations = list(given) if isinstance(given, list | tuple) else [given]
    if not operations or not all(map(callable, operations)):
        allowed = "transforms of runner.dataset.{vision,transforms}, subclasses of Transform, or functions"
        raise ConfigError("not transforms", argument="operations", value=given, allowed=allowed)
    return operations


# Which items there are: those of a dataset in its order, chosen, of several datasets, or several for each.


class Items(Samples):
    """The items of an order: rows, or batches."""

    def __init__(self, columns: Sequence[Column], order: Order) -> None:
        super().__init__([column.name for column in columns], order.count)
        self.columns, self.order = tuple(columns), order
        self.depth = max(c.source.samples.depth if isinstance(c.source, SampleColumn) else 0 for c in columns)
        self._visits = PassTable(order.visits)

    def visits(self, visit: int) -> Visits:
        """The visits of the rows of an item."""
        number, item = divmod(visit, self.count)
        rows = np.atleast_1d(self._visits[number][item])
        return Visits.of(rows[rows != NO_VISIT], len(self.columns[0].source))

    def at(self, visit: int) -> Sample:
        """A batch as arrays [B, ...], or a row."""
        shared: Shared = {}
        visits = self.visits(visit)
        arrays = tuple(column.fetch_exact(visits, shared) for column in self.columns)
        return arrays if self.order.batch_size is not None else tuple(array[0, ...] for array in arrays)


class Chosen(Samples):
    """Items that a function chooses in every pass: `choose` returns their visits, int64 [count]."""

    def __init__(self, items: Samples, choose: Callable[[int], np.ndarray], where: str) -> None:
        self._items, self._where = items, where
        self._visits = PassTable(choose)
        super().__init__(items.names, len(self._visits[0]))
        self.depth = items.depth
        if self.count == 0:
            raise ConfigError("no items are left", items=items.count, function=where)

    def at(self, visit: int) -> Sample:
        """Raises ConfigError when a pass has another number of items than the first."""
        number, item = divmod(visit, self.count)
        visits = self._visits[number]
        if len(visits) != self.count:
            found = {"pass": number + 1, "found": f"{len(visits)} items", "expected": f"{self.count}, as in the first"}
            repair = "a function whose result does not depend on random numbers"
            raise ConfigError(
                "the number of items differs between passes", function=self._where, **found, repair=repair
            )
        return self._items.at(int(visits[item]))


def filtered(items: Samples, inputs: Samples, predicate: Callable[..., Any]) -> Chosen:
    """The items for whose `inputs` the predicate is true."""

    def choose(number: int) -> np.ndarray:
        visits = range(number * items.count, (number + 1) * items.count)
        return np.array([visit for visit in visits if bool(predicate(*inputs.at(visit)))], np.int64)

    return Chosen(items, choose, described(predicate))


class Zipped(Samples):
    """The columns of several samples next to each other, as many as the shortest has."""

    def __init__(self, parts: Sequence[Samples]) -> None:
        super().__init__([name for part in parts for name in part.names], min(part.count for part in parts))
        self._parts = tuple(parts)
        self.depth = max(part.depth for part in parts)

    def at(self, visit: int) -> Sample:
        number, item = divmod(visit, self.count)
        return tuple(value for part in self._parts for value in part.at(number * part.count + item))


class Chain(Samples):
    """The items of several samples, one after the other."""

    def __init__(self, parts: Sequence[Samples]) -> None:
        super().__init__(parts[0].names, sum(part.count for part in parts))
        self._parts = tuple(parts)
        self._ends = np.cumsum([part.count for part in parts])
        self.depth = max(part.depth for part in parts)

    def at(self, visit: int) -> Sample:
        number, item = divmod(visit, self.count)
        index = int(np.searchsorted(self._ends, item, side="right"))
        part = self._parts[index]
        return part.at(number * part.count + item - (int(self._ends[index]) - part.count))


class FlatMapped(Samples):
    """The items of the samples that `expand` makes of each item, one after the other."""

    def __init__(self, items: Samples, expand: Callable[[Sample], Samples], where: str) -> None:
        self._items, self._expand, self._where = items, expand, where
        self._chains = PassTable(self._chain)
        first = self._chains[0]
        super().__init__(first.names, first.count)
        self.depth = max(items.depth, first.depth)

    def _chain(self, number: int) -> Chain:
        return Chain([self._expand(self._items.at(number * self._items.count + k)) for k in range(self._items.count)])

    def at(self, visit: int) -> Sample:
        """Raises ConfigError when a pass has another number of items than the first."""
        number, item = divmod(visit, self.count)
        chain = self._chains[number]
        if chain.count != self.count:
            rows = {"pass": number + 1, "found": chain.count, "expected": self.count, "function": self._where}
            raise ConfigError("the number of items differs between passes", **rows)
        return chain.at(item)


def columns_of(samples: Samples) -> list[Column]:
    """A column for each name."""
    return [Column(name, SampleColumn(samples, index)) for index, name in enumerate(samples.names)]


# Batches: padded, computed by a function, or of rows of similar length.

Padding = tuple[tuple[int | None, ...] | None, Any]  # the shape of a padded row, and the value


class BatchInfo:
    """What `per_batch_map` is called with, after the columns. Source: `mindspore.dataset.core.py_util` r1.2."""

    def __init__(self, epoch: int, batch: int) -> None:
        self._epoch, self._batch = epoch, batch

    def get_epoch_num(self) -> int:
        """The number of the pass, from 0."""
        return self._epoch

    def get_batch_num(self) -> int:
        """The number of the batch in its pass, from 0."""
        return self._batch


class BatchMap(NamedTuple):
    """`per_batch_map` with the names of the columns that it receives and returns."""

    function: Callable[..., Any]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class Batches(Samples):
    """Batches of the rows of `items` (of a batched order): padded, computed by `batch_map`, then stacked."""

    def __init__(self, items: Items, padding: Mapping[str, Padding], batch_map: BatchMap | None) -> None:
        self._names, self._map, self._padding = items.names, batch_map, padding
        names = items.names if batch_map is None else replaced(items.names, batch_map.inputs, batch_map.outputs)
        super().__init__(names, items.count)
        self._items, self.depth = items, items.depth

    def at(self, visit: int) -> Sample:
        """Raises ConfigError when the rows of a column differ in shape or type afterwards."""
        rows = rows_of(self._items, self._items.visits(visit))
        values = {
            name: padded(name, rows[name], self._padding[name]) if name in self._padding else rows[name]
            for name in rows
        }
        if self._map is not None:
            number, batch = divmod(visit, self.count)
            made = self._map.function(*(values[name] for name in self._map.inputs), BatchInfo(number, batch))
            several = isinstance(made, tuple) or (isinstance(made, list) and len(self._map.outputs) > 1)
            made = tuple(made) if several else (made,)
            if len(made) != len(self._map.outputs):
                as_sample(self._map.outputs, made, described(self._map.function))
            values |= dict(zip(self._map.outputs, made, strict=True))
        return tuple(stacked(name, [np.asarray(row) for row in values[name]]) for name in self.names)


class Buckets(Samples):
    """Batches of rows of similar length: those between two boundaries, each bucket with its own batch size."""

    def __init__(
        self,
        rows: Items,
        bucket_of: Callable[[Sample], int],
        sizes: Sequence[int],
        padding: Callable[[int], Mapping[str, Padding]],
        drop_remainder: bool,
    ) -> None:
        self._rows, self._bucket_of, self._sizes = rows, bucket_of, sizes
        self._padding, self._drops = padding, drop_remainder
        self._groups = PassTable(self._group)
        super().__init__(rows.names, len(self._groups[0]))
        self.depth = rows.depth

    def _group(self, number: int) -> list[tuple[int, list[int]]]:
        """The bucket and the visits of each batch of a pass."""
        waiting: dict[int, list[int]] = {bucket: [] for bucket in range(len(self._sizes))}
        groups = []
        for visit in range(number * self._rows.count, (number + 1) * self._rows.count):
            bucket = self._bucket_of(self._rows.at(visit))
            waiting[bucket].append(visit)
            if len(waiting[bucket]) == self._sizes[bucket]:
                groups.append((bucket, waiting[bucket]))
                waiting[bucket] = []
        return groups if self._drops else groups + [(bucket, left) for bucket, left in waiting.items() if left]

    def at(self, visit: int) -> Sample:
        """Raises ConfigError when a pass has another number of batches than the first."""
        number, batch = divmod(visit, self.count)
        groups = self._groups[number]
        if len(groups) != self.count:
            rows = {"pass": number + 1, "found": len(groups), "expected": self.count}
            raise ConfigError("the number of batches differs between passes", **rows, repair="drop_remainder=False")
        bucket, visits = groups[batch]
        padding = self._padding(bucket)
        samples = [self._rows.at(visit) for visit in visits]
        columns = zip(self.names, zip(*samples, strict=True), strict=True)
        return tuple(stacked(name, padded(name, values, padding.get(name, (None, 0)))) for name, values in columns)


def rows_of(items: Items, visits: Visits) -> dict[str, list[np.ndarray]]:
    """The rows of a batch by column, in the types that scripts see; their shapes may differ."""
    shared: Shared = {}
    singles = [Visits(visits.rows[k : k + 1], visits.passes[k : k + 1]) for k in range(len(visits.rows))]
    rows: dict[str, list[np.ndarray]] = {name: [] for name in items.names}
    for single in singles:
        shared = {}
        for column in items.columns:
            rows[column.name].append(column.fetch_exact(single, shared)[0, ...])
    return rows


def replaced(names: Sequence[str], inputs: Sequence[str], outputs: Sequence[str]) -> list[str]:
    """The names of the columns after `inputs` became `outputs`, in MindSpore's order.

    As many outputs as inputs take their places; otherwise the outputs come first, then the other columns.
    """
    if len(inputs) == len(outputs):
        places = dict(zip(inputs, outputs, strict=True))
        return [places.get(name, name) for name in names]
    return [*outputs, *(name for name in names if name not in inputs)]


def padding_of(pad_info: Mapping[str, Any], names: Sequence[str]) -> dict[str, Padding]:
    """The checked argument `pad_info`; an empty one pads all columns with zeros. Raises ConfigError."""
    if not isinstance(pad_info, Mapping):
        raise ConfigError(
            "not a dict of columns", argument="pad_info", value=pad_info, allowed="{name: (shape, value)}"
        )
    made: dict[str, Padding] = {}
    for name, entry in pad_info.items() if pad_info else [(name, None) for name in names]:
        if name not in names:
            raise ConfigError("no such column", argument="pad_info", value=name, **known_names(name, names))
        shape, value = (None, 0) if entry is None else entry
        made[name] = (None if shape is None else tuple(shape)), 0 if value is None else value
    return made


def padded(name: str, rows: Sequence[np.ndarray], padding: Padding) -> list[np.ndarray]:
    """The rows of a batch with values added, or taken away, at the ends of their axes up to the given shape.

    An axis whose length is None gets the length of the longest row. Raises ConfigError for another number of axes.
    """
    given, value = padding
    shape = given if given is not None else (None,) * rows[0].ndim
    if any(row.ndim != len(shape) for row in rows):
        found = {row.ndim for row in rows}
        raise ConfigError("pad_info has another number of axes", column=name, given=list(shape), found=found)
    longest = [max(row.shape[axis] for row in rows) for axis in range(len(shape))]
    wanted = [most if length is None else length for length, most in zip(shape, longest, strict=True)]
    made = []
    for row in rows:
        result = np.full(wanted, value, row.dtype)
        kept = tuple(slice(min(old, new)) for old, new in zip(row.shape, wanted, strict=True))
        result[kept] = row[kept]
        made.append(result)
    return made


# The arguments of `bucket_batch_by_length`.


class BucketLimits(NamedTuple):
    """Increasing boundaries, and a batch size for each bucket: one more than there are boundaries."""

    boundaries: list[int]
    sizes: list[int]

    def bucket_of(
        self, names: Sequence[str], inputs: Sequence[str], length: Callable[..., Any] | None
    ) -> Callable[[Sample], int]:
        """The bucket of a sample. Raises ConfigError unless one column has the length or a function computes it."""
        if length is None and len(inputs) != 1:
            repair = "one column, or element_length_function"
            raise ConfigError("several columns have no length", argument="column_names", value=inputs, repair=repair)
        places = [names.index(name) for name in inputs]

        def bucket(sample: Sample) -> int:
            values = [sample[place] for place in places]
            measured = values[0].shape[0] if length is None else int(np.asarray(length(*values)).item())
            return bisect_right(self.boundaries, measured)

        return bucket

    def padding(self, padding: Mapping[str, Padding], to_boundary: bool) -> Callable[[int], Mapping[str, Padding]]:
        """The padding of a bucket: lengths that are None become the largest of the bucket, if `to_boundary`."""

        def of_bucket(bucket: int) -> Mapping[str, Padding]:
            if not to_boundary:
                return padding
            if bucket == len(self.boundaries):
                rows = {"argument": "pad_to_bucket_boundary", "boundaries": self.boundaries}
                raise ConfigError("a row is longer than the last boundary", **rows, repair="a further boundary")
            most = self.boundaries[bucket] - 1
            return {
                name: (None if shape is None else tuple(most if n is None else n for n in shape), value)
                for name, (shape, value) in padding.items()
            }

        return of_bucket


def bucket_arguments(boundaries: Sequence[int], sizes: Sequence[int]) -> BucketLimits:
    """The checked arguments. Raises ConfigError."""
    limits = [whole_number("bucket_boundaries", limit, 1) for limit in as_list(boundaries)]
    if not limits or sorted(set(limits)) != limits:
        allowed = "increasing numbers"
        raise ConfigError("not boundaries", argument="bucket_boundaries", value=limits, allowed=allowed)
    batch_sizes = [whole_number("bucket_batch_sizes", size, 1) for size in as_list(sizes)]
    if len(batch_sizes) != len(limits) + 1:
        rows = {"argument": "bucket_batch_sizes", "value": batch_sizes, "allowed": f"{len(limits) + 1} numbers"}
        raise ConfigError("another number of batch sizes than of buckets", **rows)
    return BucketLimits(limits, batch_sizes)


# The sizes of the parts of a dataset.


def split_sizes(sizes: Sequence[int | float], count: int) -> list[int]:
    """The number of items of each part: `sizes` as they are, or shares of `count`, rounded.

    What rounding adds or leaves out is taken from the first parts or given to the first one, as in MindSpore.
    Raises ConfigError unless the sizes have the sum `count` or the shares the sum 1, and when a part would be empty.
    """
    if not isinstance(sizes, list | tuple) or not sizes:
        raise ConfigError("not a list of sizes", argument="sizes", value=sizes, allowed="numbers of items, or shares")
    if all(isinstance(size, int) for size in sizes):
        given = [whole_number("sizes", size, 1) for size in sizes]
        if sum(given) != count:
            raise ConfigError(
                "the sizes have another sum than the dataset", argument="sizes", value=given, allowed=count
            )
        return given
    shares = [finite_number("sizes", size) for size in sizes]
    if abs(sum(shares) - 1) > 1e-6 or min(shares) <= 0:
        raise ConfigError("not shares", argument="sizes", value=shares, allowed="numbers above 0 with the sum 1")
    parts = [round(share * count) for share in shares]
    left = count - sum(parts)
    if left > 0:
        parts[0] += left
    for k, part in enumerate(parts):
        if left < 0 and part + left > 0:
            parts[k], left = part + left, 0
    if min(parts) < 1:
        raise ConfigError("a share is too small for the dataset", argument="sizes", value=shares, items=count)
    return parts
