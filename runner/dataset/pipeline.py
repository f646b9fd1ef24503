"""`Dataset`: columns of values, and the order in which their rows are visited.

The two are separate: `visits(epoch)` returns the visits of every batch of an epoch (`runner/dataset/visits.py`), and
`fetch(visits)` the values of any visits. Both are stateless, so a run can start at any batch of any epoch, with any
number of workers.
"""

import hashlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

import numpy as np

from runner.dataset.column import Column
from runner.dataset.description import Described
from runner.dataset.iterator import EpochIterator, epoch_limit
from runner.dataset.order import NO_VISIT, Batched, Divided, Order, Repeated, Shuffled
from runner.dataset.prefetch import prefetch_batches, threads_for, worker_count
from runner.dataset.row_source import RowSource
from runner.dataset.transforms.transform import Transform
from runner.dataset.visits import Visits
from runner.errors import ConfigError, known_names
from runner.types import TensorType
from runner.validation.arguments import as_list, flag, whole_number

__all__ = ["Dataset"]

Batch = tuple[np.ndarray, ...]  # an array for each column


class Dataset(Described):
    """An immutable data pipeline: `map`, `project`, `rename`, `shuffle`, `batch` and `repeat` return new ones.

    Columns have any names, and samples any shapes. For networks, the last column is the target and the others are the
    inputs, in order. Created by the subclasses in `runner.dataset`, such as `MnistDataset`. Source: `mindspore.dataset`
    r1.2. Datasets derived from one keep its description: `class_names`, `num_classes`, `row_names` and `preprocessing`.
    """

    queue_observer: Callable[[int], object] | None = None  # called with the queue length at each request of a batch

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
        """Transform the values of one column (by default the first one).

        Raises ConfigError for an unknown column, a transform that does not support its type, or a map after `batch`.
        """
        if self._order.batch_size is not None:
            raise ConfigError("map after batch", argument="operations", value=operations, repair="map before batch")
        steps = [operations] if isinstance(operations, Transform) else operations
        if not isinstance(steps, Sequence) or not all(isinstance(step, Transform) for step in steps):
            allowed = "those of runner.dataset.{vision,transforms}.c_transforms, or subclasses of Transform"
            raise ConfigError("not transforms", argument="operations", value=operations, allowed=allowed)
        index = self._column_index(input_columns)
        columns = [c.map(steps) if k == index else c for k, c in enumerate(self._columns)]
        return self._derived(columns, self._order, self._max_workers(num_parallel_workers))

    def project(self, columns: str | Sequence[str]) -> "Dataset":
        """Only these columns, in this order: inputs of the network, then the target.

        Raises ConfigError for an unknown column, for one that occurs twice, and for none.
        """
        names = [str(name) for name in as_list(columns)]
        if len(set(names)) != len(names) or not names:
            allowed = f"different ones of {', '.join(self.get_col_names())}"
            raise ConfigError("project needs different columns", argument="columns", value=names, allowed=allowed)
        chosen = [self._columns[self._position(name, "columns")] for name in names]
        return self._derived(chosen, self._order, self._workers)

    def rename(self, input_columns: str | Sequence[str], output_columns: str | Sequence[str]) -> "Dataset":
        """Give the columns `input_columns` the names `output_columns`; the order of columns stays.

        Raises ConfigError for an unknown column, and unless all columns have different names afterwards.
        """
        before, after = ([str(name) for name in as_list(names)] for names in (input_columns, output_columns))
        names = self.get_col_names()
        for name, new in zip(before, after, strict=False):
            names[self._position(name, "input_columns")] = new
        if len(before) != len(after) or len(set(before)) != len(before) or len({*names, ""}) != len(names) + 1:
            rows = {"argument": "output_columns", "value": after, "allowed": f"{len(before)} new and different names"}
            raise ConfigError("rename needs one new name per column", **rows, columns=", ".join(self.get_col_names()))
        renamed = [column.renamed(name) for column, name in zip(self._columns, names, strict=True)]
        return self._derived(renamed, self._order, self._workers)

    def shuffle(self, buffer_size: int) -> "Dataset":
        """Shuffle the rows (after `batch`: the batches) with a shuffle buffer, anew in every epoch.

        A buffer of at least the dataset's size makes all orders equally likely.
        """
        return self.with_order(lambda order: Shuffled(order, whole_number("buffer_size", buffer_size, 2)))

    def repeat(self, count: int = 1) -> "Dataset":
        """Make `count` passes in each epoch."""
        return self.with_order(lambda order: Repeated(order, whole_number("count", count, 1)))

    def batch(
        self, batch_size: int, drop_remainder: bool = False, num_parallel_workers: int | None = None
    ) -> "Dataset":
        """Group rows into batches; the remainder is dropped or is a short batch.

        Raises ConfigError after another `batch`, and when there would be no batch.
        """
        if self._order.batch_size is not None:
            raise ConfigError("batch after batch", argument="batch_size", value=batch_size, repair="batch once")
        flag({}, drop_remainder=drop_remainder)
        order = Batched(self._order, whole_number("batch_size", batch_size, 1), drop_remainder)
        if order.count == 0:
            allowed = f"1 to {self._order.count}, the dataset's size, or drop_remainder=False"
            rows = {"argument": "batch_size", "value": batch_size, "allowed": allowed}
            raise ConfigError("the dataset is smaller than one batch", **rows)
        return self._derived(self._columns, order, self._max_workers(num_parallel_workers))

    def divided(self, parts: int, part: int) -> "Dataset":
        """One of `parts` parts of every batch, for a rank of a data-parallel run; to be called after `batch`.

        The parts of a batch are disjoint and cover it; their sizes differ by at most one row. Raises ConfigError when a
        batch has fewer rows than `parts`.
        """
        if self._order.batch_size is None:
            raise ConfigError("only batches can be divided", argument="parts", value=parts, repair="batch first")
        whole_number("part", part, 0, whole_number("parts", parts, 1) - 1)
        return self.with_order(lambda order: Divided(order, parts, part))

    @property
    def is_even(self) -> bool:
        """False if this is a part (`divided`) of batches whose parts differ in size."""
        return self._order.is_even

    def visits(self, epoch: int) -> np.ndarray | list[np.ndarray]:
        """Visits of each batch of an epoch: int64 [steps, batch], or a list of [<= batch] if the last one is short."""
        visits = self._order.visits(whole_number("epoch", epoch, 0)).reshape(self._order.count, -1)
        filled = visits != NO_VISIT
        return visits if filled.all() else [row[full] for row, full in zip(visits, filled, strict=True)]

    def visits_from(self, step: int) -> Iterator[np.ndarray]:
        """Visits of the batch of a step (from 0) and of all later steps, without end."""
        epoch, start = divmod(step, self.get_dataset_size())
        while True:
            yield from self.visits(epoch)[start:]
            epoch, start = epoch + 1, 0

    def rows(self, visits: np.ndarray) -> np.ndarray:
        """The source rows of visits, int64 of the same shape."""
        return visits % len(self._columns[0].source)

    def order(self, epoch: int) -> np.ndarray:
        """Source rows in the order of an epoch, int64 [rows]."""
        visits = self._order.visits(whole_number("epoch", epoch, 0))
        return self.rows(np.extract(visits != NO_VISIT, visits))

    def batches(self, epoch: int) -> np.ndarray | list[np.ndarray]:
        """Source rows of each batch of an epoch, in the form that `visits` has."""
        visits = self.visits(epoch)
        return self.rows(visits) if isinstance(visits, np.ndarray) else [self.rows(batch) for batch in visits]

    def fetch(self, visits: np.ndarray) -> Batch:
        """The samples of each column for any visits, each [len(visits), ...]. Thread-safe.

        Source rows are the visits of the first pass; the pass affects random transforms only.
        """
        decoded = Visits.of(visits, len(self._columns[0].source))
        return tuple(column.fetch(decoded) for column in self._columns)

    def prepared(self, visits: Iterable[np.ndarray]) -> Generator[Batch, None, None]:
        """The batches of these visits, in order, prefetched by `threads` threads.

        The threads end with the generator, at the latest when it is closed.
        """
        return self._prefetch(self.fetch, visits)

    def compact(self) -> tuple[np.ndarray | RowSource, ...]:
        """All source rows of each column as cached (images: bytes), read-only.

        `remaining` has the transforms from these rows to samples; a device can hold arrays in this form.
        """
        return tuple(column.compact for column in self._columns)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns: names, source arrays and transforms."""
        return self._columns

    @property
    def remaining(self) -> dict[str, tuple[Transform, ...]]:
        """For each column, the transforms from rows of `compact()` to the samples of a batch."""
        return {column.name: column.remaining for column in self._columns}

    def read(self, epoch: int, start: int = 0) -> Generator[Batch, None, None]:
        """The batches of an epoch from number `start` on, prefetched as by `prepared`.

        Without `batch` the items are single samples, without a batch axis.
        """
        is_single = self._order.batch_size is None
        fetch = (lambda visit: tuple(c[0] for c in self.fetch(visit))) if is_single else self.fetch
        return self._prefetch(fetch, self.visits(epoch)[whole_number("start", start, 0) :])

    def create_tuple_iterator(self, num_epochs: int = -1, output_numpy: bool = False) -> EpochIterator[Batch]:
        """Items as tuples of arrays; each `for` loop over the iterator is one epoch, starting with epoch 0.

        The arrays are always numpy arrays, which all operators accept.
        """
        return EpochIterator(self.read, epoch_limit(num_epochs, output_numpy))

    def create_dict_iterator(
        self, num_epochs: int = -1, output_numpy: bool = False
    ) -> EpochIterator[dict[str, np.ndarray]]:
        """Items as arrays by column name; otherwise as `create_tuple_iterator`."""
        return EpochIterator(self._read_named, epoch_limit(num_epochs, output_numpy))

    def __iter__(self) -> Iterator[Batch]:
        """The items of epoch 0; the iterators of `create_tuple_iterator` continue with later epochs."""
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
        """The type of each column in the first batch (without `batch`: of a sample)."""
        if self._order.batch_size is None:
            return [column.sample for column in self._columns]
        rows = int((self._order.visits(0)[0] != NO_VISIT).sum())
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
            column.fingerprint(digest)
        return digest.hexdigest()

    def with_order(self, derive: Callable[[Order], Order]) -> "Dataset":
        """The dataset with another order of its rows, derived from the present one."""
        return self._derived(self._columns, derive(self._order), self._workers)

    def _derived(self, columns: Sequence[Column], order: Order, workers: int | None) -> "Dataset":
        return Dataset(columns, order, workers).described_as(self)

    def _max_workers(self, requested: int | None) -> int | None:
        return max(filter(None, (worker_count(requested), self._workers)), default=None)

    def _column_index(self, named: str | Sequence[str] | None) -> int:
        names = self.get_col_names()
        chosen = names[:1] if named is None else [named] if isinstance(named, str) else list(named)
        if len(chosen) != 1:
            raise ConfigError("map takes one column", argument="input_columns", value=chosen, allowed=", ".join(names))
        return self._position(chosen[0], "input_columns")

    def _position(self, name: str, argument: str) -> int:
        names = self.get_col_names()
        if name not in names:
            raise ConfigError("no such column", argument=argument, value=name, **known_names(name, names))
        return names.index(name)

    def _prefetch(
        self, fetch: Callable[[np.ndarray], Batch], visits: Iterable[np.ndarray]
    ) -> Generator[Batch, None, None]:
        self.compact()  # computed once here, not by every worker at the same time
        return prefetch_batches(fetch, visits, self.threads, self.queue_observer)

    @property
    def threads(self) -> int:
        """Number of threads that prepare batches; 0: the caller prepares them."""
        if any(isinstance(column.source, RowSource) for column in self._columns):
            return self._workers or 1  # reading and decoding files takes longer than handing over a batch
        values = sum(column.sample.size * (1 + len(column.remaining)) for column in self._columns)
        return threads_for(self._workers, self.get_batch_size() * values)

    def _read_named(self, epoch: int) -> Iterator[dict[str, np.ndarray]]:
        return (dict(zip(self.get_col_names(), arrays, strict=True)) for arrays in self.read(epoch))
