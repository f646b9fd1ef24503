"""Batches of another form than rows stacked: padded, computed by a function, or of rows of similar length."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from runner.dataset.samples.items import Items
from runner.dataset.samples.map import described
from runner.dataset.samples.samples import PassTable, Sample, Samples, Shared, as_sample, stacked
from runner.dataset.visits import Visits
from runner.errors import ConfigError, known_names

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
    """The names of the columns after `inputs` became `outputs`, in the reference's order.

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
