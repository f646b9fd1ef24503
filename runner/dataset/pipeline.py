"""`Dataset`: columns of values, and the order in which their rows are visited.

The two are kept apart. `batches(epoch)` gives the row numbers of every batch of any epoch, `fetch(rows)` gives values
for any rows; neither remembers anything, so a run can start at any batch of any epoch, on any number of workers.
"""

import hashlib
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from runner.dataset.arguments import flag, whole, workers
from runner.dataset.column import Column
from runner.dataset.iterator import EpochIterator, fetch_ahead
from runner.dataset.order import NO_ROW, Batched, Order, Repeated, Shuffled
from runner.dataset.transforms.transform import Transform
from runner.errors import ConfigError, nearest
from runner.types import TensorType

FINGERPRINT_BYTES = 1 << 24  # hashed at a time, so that columns that are not contiguous are never copied whole


class Dataset:
    """A pipeline of data. It never changes: `map`, `shuffle`, `batch` and `repeat` return new ones.

    Made by the classes of `runner.dataset`, such as `MnistDataset`. Source: `mindspore.dataset` r1.2.
    """

    def __init__(self, columns: Sequence[Column], order: Order, num_parallel_workers: int | None = None) -> None:
        self._columns = tuple(columns)
        self._order = order
        self._workers = num_parallel_workers

    def map(
        self,
        operations: Transform | Sequence[Transform],
        input_columns: str | Sequence[str] | None = None,
        num_parallel_workers: int | None = None,
    ) -> "Dataset":
        """Transform the values of one column (the first one, unless `input_columns` names another).

        Raises ConfigError for an unknown column, a transform that cannot take the column, or a map after `batch`.
        """
        if self._order.batch_size is not None:
            raise ConfigError("map after batch", argument="operations", value=operations, repair="map before batch")
        steps = [operations] if isinstance(operations, Transform) else operations
        if not isinstance(steps, Sequence) or not all(isinstance(step, Transform) for step in steps):
            raise ConfigError(
                "not transforms",
                argument="operations",
                value=operations,
                allowed="those of runner.dataset.{vision,transforms}.c_transforms, or subclasses of Transform",
            )
        chosen = self._column_number(input_columns)
        columns = [c.map(steps) if k == chosen else c for k, c in enumerate(self._columns)]
        return Dataset(columns, self._order, self._more_workers(num_parallel_workers))

    def shuffle(self, buffer_size: int) -> "Dataset":
        """Visit the rows (after `batch`: the batches) through a shuffle buffer, in another order in every epoch.

        A buffer of at least the dataset's size makes every order equally likely.
        """
        return self._ordered(Shuffled(self._order, whole("buffer_size", buffer_size, 2)))

    def repeat(self, count: int = 1) -> "Dataset":
        """Make one epoch `count` passes long."""
        return self._ordered(Repeated(self._order, whole("count", count, 1)))

    def batch(
        self, batch_size: int, drop_remainder: bool = False, num_parallel_workers: int | None = None
    ) -> "Dataset":
        """Group rows; those left at the end are dropped or make a short batch.

        Raises ConfigError after another `batch`, and when not a single batch would be left.
        """
        if self._order.batch_size is not None:
            raise ConfigError("batch after batch", argument="batch_size", value=batch_size, repair="batch once")
        order = Batched(self._order, whole("batch_size", batch_size, 1), flag("drop_remainder", drop_remainder))
        if order.count == 0:
            raise ConfigError(
                "the dataset is smaller than one batch",
                argument="batch_size",
                value=batch_size,
                allowed=f"1 to {self._order.count}, the dataset's size, or drop_remainder=False",
            )
        return Dataset(self._columns, order, self._more_workers(num_parallel_workers))

    def order(self, epoch: int) -> np.ndarray:
        """Source rows in the order in which an epoch visits them, int64 [rows]."""
        rows = self._order.rows(whole("epoch", epoch, 0))
        return np.extract(rows != NO_ROW, rows)

    def batches(self, epoch: int) -> np.ndarray | list[np.ndarray]:
        """Source rows of each batch of an epoch: int64 [steps, batch], or a list of [<= batch] with a short one."""
        rows = self._order.rows(whole("epoch", epoch, 0)).reshape(self._order.count, -1)
        filled = rows != NO_ROW
        return rows if filled.all() else [row[full] for row, full in zip(rows, filled, strict=True)]

    def fetch(self, rows: np.ndarray) -> tuple[np.ndarray, ...]:
        """The columns' samples for any source rows, each [len(rows), ...]. Safe to call from several threads."""
        return tuple(column.fetch(rows) for column in self._columns)

    def compact(self) -> tuple[np.ndarray, ...]:
        """All source rows of each column in the form in which they are kept (images: bytes), read-only.

        `remaining` leads from rows of these arrays to samples: what a device needs to hold the whole dataset.
        """
        return tuple(column.compact for column in self._columns)

    @property
    def remaining(self) -> dict[str, tuple[Transform, ...]]:
        """For each column, the transforms from rows of `compact()` to the samples of a batch."""
        return {column.name: column.remaining for column in self._columns}

    def read(self, epoch: int, start: int = 0) -> Iterator[tuple[np.ndarray, ...]]:
        """The batches of an epoch from number `start` on, fetched ahead when there are several workers.

        Without `batch` the items are single samples, without a batch axis.
        """
        self.compact()  # once and here, rather than in every worker at the same time
        fetch = self.fetch if self._order.batch_size is not None else self._fetch_one
        return fetch_ahead(fetch, self.batches(epoch)[whole("start", start, 0) :], self._workers or 1)

    def create_tuple_iterator(
        self, num_epochs: int = -1, output_numpy: bool = False
    ) -> EpochIterator[tuple[np.ndarray, ...]]:
        """Items as tuples of arrays; each `for` over the iterator is one epoch, beginning with epoch 0.

        The arrays are numpy arrays in any case: every operator takes them.
        """
        return EpochIterator(self.read, _epochs(num_epochs, output_numpy))

    def create_dict_iterator(
        self, num_epochs: int = -1, output_numpy: bool = False
    ) -> EpochIterator[dict[str, np.ndarray]]:
        """Items as arrays by column name; otherwise as `create_tuple_iterator`."""
        return EpochIterator(self._read_named, _epochs(num_epochs, output_numpy))

    def __iter__(self) -> Iterator[tuple[np.ndarray, ...]]:
        """The items of epoch 0; the iterators made by `create_tuple_iterator` go on to further epochs."""
        return self.read(0)

    def __len__(self) -> int:
        return self.get_dataset_size()

    def get_dataset_size(self) -> int:
        """Batches in an epoch (rows, without `batch`); at least 1."""
        return self._order.count

    def get_batch_size(self) -> int:
        """Rows in a full batch; 1 without `batch`."""
        return self._order.batch_size or 1

    def get_repeat_count(self) -> int:
        """Passes over the source in one epoch."""
        return self._order.repeats

    def get_col_names(self) -> list[str]:
        """Names of the columns, in the order of `fetch`."""
        return [column.name for column in self._columns]

    def column_types(self) -> list[TensorType]:
        """Type of each column of the first batch (without `batch`: of a sample)."""
        if self._order.batch_size is None:
            return [column.sample for column in self._columns]
        rows = int((self._order.rows(0)[0] != NO_ROW).sum())
        return [column.sample.with_shape(rows, *column.sample.shape) for column in self._columns]

    def output_shapes(self) -> list[list[int]]:
        """Shape of each column of a batch."""
        return [list(kind.shape) for kind in self.column_types()]

    def output_types(self) -> list[np.dtype]:
        """numpy element type of each column of a batch."""
        return [kind.dtype.numpy for kind in self.column_types()]

    def fingerprint(self) -> str:
        """sha256 (hex) of the source's columns: names, types, shapes and values, before any transform."""
        digest = hashlib.sha256()
        for column in self._columns:
            digest.update(f"{column.name} {TensorType.of(column.source)}\n".encode())
            rows = max(1, FINGERPRINT_BYTES * len(column.source) // max(1, column.source.nbytes))
            for start in range(0, len(column.source), rows):
                digest.update(column.source[start : start + rows].tobytes())
        return digest.hexdigest()

    def _ordered(self, order: Order) -> "Dataset":
        return Dataset(self._columns, order, self._workers)

    def _more_workers(self, asked: int | None) -> int | None:
        return max(filter(None, (workers(asked), self._workers)), default=None)

    def _column_number(self, named: str | Sequence[str] | None) -> int:
        names = self.get_col_names()
        wanted = names[:1] if named is None else [named] if isinstance(named, str) else list(named)
        if len(wanted) != 1:
            raise ConfigError("map takes one column", argument="input_columns", value=wanted, allowed=", ".join(names))
        if wanted[0] not in names:
            raise ConfigError(
                "no such column",
                argument="input_columns",
                value=wanted[0],
                allowed=", ".join(names),
                nearest=nearest(str(wanted[0]), names),
            )
        return names.index(wanted[0])

    def _fetch_one(self, row: np.ndarray) -> tuple[np.ndarray, ...]:
        return tuple(column.reshape(column.shape[1:]) for column in self.fetch(row))

    def _read_named(self, epoch: int) -> Iterator[dict[str, np.ndarray]]:
        return map(partial(_named, self.get_col_names()), self.read(epoch))


def _named(names: list[str], arrays: tuple[np.ndarray, ...]) -> dict[str, np.ndarray]:
    return dict(zip(names, arrays, strict=True))


def _epochs(num_epochs: int, output_numpy: bool) -> int:
    flag("output_numpy", output_numpy)
    return -1 if num_epochs == -1 else whole("num_epochs", num_epochs, 1)
