"""`Pipeline`: columns of values, and the order in which their rows are visited.

The two are separate: `visits(epoch)` returns the visits of every batch of an epoch (`runner/dataset/visits.py`), and
`fetch(visits)` the values of any visits. Both are stateless, so a run can start at any batch of any epoch, with any
number of workers.
"""

import hashlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

import numpy as np

from runner.dataset.column import Column
from runner.dataset.description import Described
from runner.dataset.order import NO_VISIT, Order
from runner.dataset.prefetch import default_workers, prefetch_batches, threads_for
from runner.dataset.row_source import RowSource
from runner.dataset.samples.samples import Shared
from runner.dataset.transforms.transform import Transform
from runner.dataset.visits import Visits
from runner.types import TensorType
from runner.validation.arguments import whole_number

Batch = tuple[np.ndarray, ...]  # an array for each column


class Pipeline(Described):
    """Batches, or single samples, at any position of any epoch."""

    queue_observer: Callable[[int], object] | None = None  # called with the queue length at each request of a batch

    def __init__(self, columns: Sequence[Column], order: Order, num_parallel_workers: int | None = None) -> None:
        self._columns = tuple(columns)
        self._order = order
        self._workers = num_parallel_workers

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
            yield from self._observed(epoch, self.visits(epoch)[start:])
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

        Source rows are the visits of the first pass; the pass affects random transforms and functions only. The
        element types are those that networks compute with. Where the items are batches that are computed as a whole,
        the visit of one gives it as it is.
        """
        return self._fetched(visits, Column.fetch)

    def fetch_exact(self, visits: np.ndarray) -> Batch:
        """As `fetch`, in the element types that scripts see."""
        return self._fetched(visits, Column.fetch_exact)

    def _fetched(self, visits: np.ndarray, fetch: Callable[[Column, Visits, Shared], np.ndarray]) -> Batch:
        decoded = Visits.of(visits, len(self._columns[0].source))
        shared: Shared = {}
        arrays = tuple(fetch(column, decoded, shared) for column in self._columns)
        return tuple(array[0] for array in arrays) if self.has_whole_batches else arrays

    @property
    def has_whole_batches(self) -> bool:
        """Whether an item is a batch that is computed as a whole, such as by a map after `batch`."""
        return self._order.batch_size is None and self._order.item_rows is not None

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
        visits = self.visits(epoch)[whole_number("start", start, 0) :]
        return self._prefetch(self._single(self.fetch), self._observed(epoch, visits))

    def read_exact(self, epoch: int) -> Generator[Batch, None, None]:
        """The items of an epoch as `read`, in the element types that scripts see."""
        return self._prefetch(self._single(self.fetch_exact), self._observed(epoch, self.visits(epoch)))

    def _observed(self, epoch: int, visits: Iterable[np.ndarray]) -> Iterable[np.ndarray]:
        """The visits of an epoch, with the events of its beginning and end for the callbacks of maps."""
        return self._with_events(epoch, visits) if self.row_events else visits

    def _with_events(self, epoch: int, visits: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        for column in self._columns:
            _ = column.exact  # what determines the types of rows is no step
        for events in self.row_events:
            events.epoch_begin(epoch)
        yield from visits
        for events in self.row_events:
            events.epoch_end()

    def _single(self, fetch: Callable[[np.ndarray], Batch]) -> Callable[[np.ndarray], Batch]:
        if self._order.batch_size is not None or self.has_whole_batches:
            return fetch
        return lambda visit: tuple(array[0, ...] for array in fetch(visit))

    def get_dataset_size(self) -> int:
        """Batches in an epoch (rows, without `batch`); at least 1."""
        return self._order.count

    def get_batch_size(self) -> int:
        """Rows in a full batch; 1 without `batch`."""
        return self._order.batch_size or self._order.item_rows or 1

    def get_repeat_count(self) -> int:
        """Passes over the source in one epoch."""
        return self._order.repeats

    def get_col_names(self) -> list[str]:
        """Names of the columns, in the order of `fetch`."""
        return [column.name for column in self._columns]

    def column_types(self) -> list[TensorType]:
        """The type of each column in the first batch (without `batch`: of a sample)."""
        rows = self._rows_of_first()
        return [column.sample.with_shape(*rows, *column.sample.shape) for column in self._columns]

    def _rows_of_first(self) -> tuple[int, ...]:
        """The number of rows of the first batch; nothing without `batch`."""
        return () if self._order.batch_size is None else (int((self._order.visits(0)[0] != NO_VISIT).sum()),)

    def fingerprint(self) -> str:
        """sha256 (hex) of the source's columns: names, types, shapes and values, before any transform."""
        digest = hashlib.sha256()
        for column in self._columns:
            column.fingerprint(digest)
        return digest.hexdigest()

    def _prefetch(
        self, fetch: Callable[[np.ndarray], Batch], visits: Iterable[np.ndarray]
    ) -> Generator[Batch, None, None]:
        self.compact()  # computed once here, not by every worker at the same time
        return prefetch_batches(fetch, visits, self.threads, self.queue_observer)

    @property
    def threads(self) -> int:
        """Number of threads that prepare batches; 0: the caller prepares them, when they are requested."""
        if self.conditions or self.row_events:
            return 0
        if any(isinstance(column.source, RowSource) for column in self._columns):
            return (
                self._workers or default_workers() or 1
            )  # reading and decoding files takes longer than handing over a batch
        values = sum(column.sample.size * (1 + len(column.remaining)) for column in self._columns)
        return threads_for(self._workers, self.get_batch_size() * values)
