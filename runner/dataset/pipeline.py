"""`Dataset`, a data pipeline: columns of values, the order of their rows, and the operations of MindSpore on both.

Operations that keep rows apart (`map`, `shuffle`, `repeat`, `take`, the first `batch`) keep columns (`column.py`) and
order (`order.py`) apart, so that arrays are transformed at once and sinks can hold them. The others read the items of
the dataset so far as samples that are computed when they are used (`operations.py`): the same promises, but Python runs
for each item. Source: `mindspore.dataset` r1.2.
"""

import builtins
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import chain, count, pairwise
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np

from runner import ops  # noqa: F401  registers the arithmetic of the tensors that iterators return
from runner.core.values import Tensor
from runner.dataset.column import Column
from runner.dataset.operations import (
    Batches,
    BatchInfo,
    BatchMap,
    Buckets,
    Chain,
    FlatMapped,
    Items,
    Zipped,
    bucket_arguments,
    columns_of,
    described,
    filtered,
    mapped,
    operations_of,
    padding_of,
    replaced,
    split_sizes,
)
from runner.dataset.order import (
    NO_VISIT,
    Batched,
    DerivedOrder,
    Divided,
    Endless,
    Order,
    Part,
    Repeated,
    Shuffled,
    SourceOrder,
    VariedBatches,
)
from runner.dataset.prefetch import (
    Conditions,
    DSCallback,
    EpochIterator,
    RowEvents,
    default_workers,
    epoch_limit,
    prefetch_batches,
    row_events,
    threads_for,
    worker_count,
)
from runner.dataset.samplers import Sampled, each_row_once, with_child
from runner.dataset.samples import RowSource, Sample, Samples, Shared
from runner.dataset.transforms.transform import Transform
from runner.dataset.visits import Visits
from runner.errors import ConfigError, known_names
from runner.types import TensorType
from runner.validation.arguments import as_list, flag, whole_number
from runner.validation.rules import KeywordNames

Batch = tuple[np.ndarray, ...]  # an array for each column
Names = str | Sequence[str]
Operation = Callable[..., Any]
T = TypeVar("T")


class ClassCount(int):
    """A number of classes, which scripts of MindSpore call: `dataset.num_classes()`."""

    def __call__(self) -> int:
        """The number."""
        return int(self)


class Dataset(KeywordNames):
    """An immutable data pipeline: `map`, `shuffle`, `batch`, `repeat` and the others return new ones.

    Columns have any names, and samples any shapes. For networks, the last column is the target and the others are the
    inputs, in order. Created by the subclasses in `runner.dataset`, such as `MnistDataset`. Source: `mindspore.dataset`
    r1.2. Datasets derived from one keep its description: `class_names`, `num_classes`, `row_names` and `preprocessing`.
    """

    row_names: Sequence[str] | None = None  # of the rows of the source: where each was read, such as its file
    preprocessing: "Preprocessing | None" = None  # reads new files as the inputs of this dataset
    queue_observer: Callable[[int], object] | None = None  # called with the queue length at each request of a batch
    row_events: tuple[RowEvents, ...] = ()  # of the callbacks of `map`
    conditions = Conditions()  # of `sync_wait`
    _class_names: tuple[str, ...] | None = None
    _num_classes: int | None = None
    _indexing: dict[str, int] | None = None  # numbers of classes by name, where they are not those of `class_names`

    def __init__(self, columns: Sequence[Column], order: Order, num_parallel_workers: int | None = None) -> None:
        self._columns = tuple(columns)
        self._order = order
        self._workers = num_parallel_workers

    # What is known of it beside its values.

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the target's classes, in the order of their numbers."""
        return self._class_names

    @class_names.setter
    def class_names(self, names: Sequence[str] | None) -> None:
        if names is None:
            self._class_names = None
        elif isinstance(names, list | tuple) and names and all(isinstance(name, str) for name in names):
            self._class_names = tuple(names)
        else:
            raise ConfigError("not a list of names", argument="class_names", value=repr(names), allowed="texts")

    @property
    def num_classes(self) -> ClassCount | None:
        """Number of classes of the target; by default that of `class_names`."""
        count = len(self.class_names) if self._num_classes is None and self.class_names else self._num_classes
        return None if count is None else ClassCount(count)

    @num_classes.setter
    def num_classes(self, count: int | None) -> None:
        self._num_classes = None if count is None else whole_number("num_classes", count, 1)

    def get_class_indexing(self) -> dict[str, int]:
        """The number of each class by its name, for datasets that have names of classes; otherwise empty."""
        if self._indexing is not None:
            return dict(self._indexing)
        return {name: number for number, name in enumerate(self.class_names or ())}

    # Columns of values, and the order in which their rows are visited. The two are separate: `visits(epoch)` returns
    # the visits of every batch of an epoch, `fetch(visits)` the values of any visits. Both are stateless, so a run can
    # start at any batch of any epoch, with any number of workers.

    @property
    def is_even(self) -> bool:
        """False if this is a part (`divided`) of batches whose parts differ in size."""
        return self._order.is_even

    def visits(self, epoch: int) -> np.ndarray | list[np.ndarray]:
        """Visits of each batch of an epoch: int64 [steps, batch], or a list of [<= batch] if the last one is short."""
        visits = self._order.visits(whole_number("epoch", epoch, 0)).reshape(self._order.count, -1)
        filled = visits != NO_VISIT
        return visits if filled.all() else [row[full] for row, full in builtins.zip(visits, filled, strict=True)]

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
            # Reading and decoding files takes longer than handing over a batch.
            return self._workers or default_workers() or 1
        values = sum(column.sample.size * (1 + len(column.remaining)) for column in self._columns)
        return threads_for(self._workers, self.get_batch_size() * values)

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

    # What scripts iterate over.

    def create_tuple_iterator(
        self,
        columns: str | Sequence[str] | None = None,
        num_epochs: int = -1,
        output_numpy: bool = False,
        do_copy: bool = True,
    ) -> EpochIterator[list[Any]]:
        """Items as lists of Tensors, or of arrays; each `for` loop over the iterator is one epoch, from epoch 0 on.

        `columns` selects some. Element types are those of the source and of the functions of the script, such as Int64
        and Float64; text stays an array. `do_copy` has no effect: values are never shared. Raises ConfigError.
        """
        names = self.get_col_names()
        chosen = names if columns is None else [str(name) for name in as_list(columns)]
        for name in chosen:
            if name not in names:
                raise ConfigError("no such column", argument="columns", value=name, **known_names(name, names))
        places = [names.index(name) for name in chosen]
        limit = epoch_limit(num_epochs, output_numpy)
        convert = _unchanged if output_numpy else _as_tensor
        return EpochIterator(self._epochs(lambda item: [convert(item[place]) for place in places]), limit)

    def create_dict_iterator(self, num_epochs: int = -1, output_numpy: bool = False) -> EpochIterator[dict[str, Any]]:
        """Items as dicts by column name; otherwise as `create_tuple_iterator`."""
        names = self.get_col_names()
        limit = epoch_limit(num_epochs, output_numpy)
        convert = _unchanged if output_numpy else _as_tensor
        made = self._epochs(
            lambda item: {name: convert(value) for name, value in builtins.zip(names, item, strict=True)}
        )
        return EpochIterator(made, limit)

    def _epochs(self, form: Callable[[Batch], T]) -> Callable[[int], Iterator[T]]:
        def start(epoch: int) -> Iterator[T]:
            if self._order.is_endless:
                return (form(item) for item in chain.from_iterable(self.read_exact(k) for k in count(epoch)))
            return (form(item) for item in self.read_exact(epoch))

        return start

    def __iter__(self) -> Iterator[list[Any]]:
        """The items of epoch 0, as Tensors; the iterators of `create_tuple_iterator` continue with later epochs."""
        return self.create_tuple_iterator(num_epochs=1)

    def __len__(self) -> int:
        return self.get_dataset_size()

    def output_shapes(self) -> list[list[int]]:
        """Shape of each column of the first item."""
        rows = self._rows_of_first()
        return [[*rows, *column.exact[1]] for column in self._columns]

    def output_types(self) -> list[np.dtype]:
        """numpy element type of each column, as iterators return it."""
        return [column.exact[0] for column in self._columns]

    # Choose and order items and columns, without changing values.

    def project(self, columns: Names) -> "Dataset":
        """Only these columns, in this order: inputs of the network, then the target.

        Raises ConfigError for an unknown column, for one that occurs twice, and for none.
        """
        names = [str(name) for name in as_list(columns)]
        if len(set(names)) != len(names) or not names:
            allowed = f"different ones of {', '.join(self.get_col_names())}"
            raise ConfigError("project needs different columns", argument="columns", value=names, allowed=allowed)
        chosen = [self._columns[self._position(name, "columns")] for name in names]
        return self._derived(chosen, self._order, self._workers)

    def rename(self, input_columns: Names, output_columns: Names) -> "Dataset":
        """Give the columns `input_columns` the names `output_columns`; the order of columns stays.

        Raises ConfigError for an unknown column, and unless all columns have different names afterwards.
        """
        before, after = ([str(name) for name in as_list(names)] for names in (input_columns, output_columns))
        names = self.get_col_names()
        for name, new in builtins.zip(before, after, strict=False):
            names[self._position(name, "input_columns")] = new
        if len(before) != len(after) or len(set(before)) != len(before) or len({*names, ""}) != len(names) + 1:
            rows = {"argument": "output_columns", "value": after, "allowed": f"{len(before)} new and different names"}
            raise ConfigError("rename needs one new name per column", **rows, columns=", ".join(self.get_col_names()))
        renamed = [column.renamed(name) for column, name in builtins.zip(self._columns, names, strict=True)]
        return self._derived(renamed, self._order, self._workers)

    def shuffle(self, buffer_size: int) -> "Dataset":
        """Shuffle the rows (after `batch`: the batches) with a shuffle buffer, anew in every epoch.

        A buffer of at least the dataset's size makes all orders equally likely. Raises ConfigError after `sync_wait`,
        since a shuffle reads ahead.
        """
        if self.conditions:
            raise ConfigError("shuffle after sync_wait reads ahead", argument="shuffle", repair="shuffle before it")
        return self.with_order(lambda order: Shuffled(order, whole_number("buffer_size", buffer_size, 2)))

    def repeat(self, count: int | None = None) -> "Dataset":
        """Make `count` passes in each epoch. None or -1: iterators never end; an epoch of a training is one pass."""
        if count is None or count == -1:
            return self.with_order(Endless)
        return self.with_order(lambda order: Repeated(order, whole_number("count", count, 1)))

    def skip(self, count: int) -> "Dataset":
        """Without the first `count` items of every epoch. Raises ConfigError when none is left."""
        return self.with_order(lambda order: Part(order, whole_number("count", count, 0), order.count))

    def take(self, count: int = -1) -> "Dataset":
        """The first `count` items of every epoch; -1: all."""
        return self if count == -1 else self.with_order(lambda order: Part(order, 0, whole_number("count", count, 1)))

    def split(self, sizes: Sequence[int | float], randomize: bool = True) -> "list[Dataset]":
        """Disjoint parts: `sizes` are numbers of items, or shares with the sum 1.

        With `randomize`, items are drawn at random, the same ones in every epoch. Raises ConfigError for other sizes.
        """
        flag({}, randomize=randomize)
        order = Shuffled(self._order, max(2, self._order.count), is_fixed=True) if randomize else self._order
        ends = np.cumsum([0, *split_sizes(sizes, self._order.count)]).tolist()
        return [self._derived(self._columns, Part(order, *part), self._workers) for part in pairwise(ends)]

    def use_sampler(self, new_sampler: Any) -> Self:
        """Let this sampler select the rows of this dataset itself, from now on, in place of its order and sampler.

        A child of the sampler in force selects first. Datasets that were derived before keep their rows. Of what
        `concat` and other operations made, a DistributedSampler gives every item to one shard. Returns this dataset.
        Raises ConfigError for what is no sampler.
        """
        order: Order = self._order
        while isinstance(order, DerivedOrder) and (self._is_source or isinstance(order, Sampled)):
            if isinstance(order, Sampled):
                new_sampler = with_child(new_sampler, order.sampler.child_sampler)
            order = order.inner
        chosen = new_sampler if self._is_source else each_row_once(new_sampler)
        self._order = Sampled(order, chosen, self._all_values)
        return self

    def add_sampler(self, new_sampler: Any) -> Self:
        """Let this sampler select from the rows of this dataset, in their present order. Returns this dataset."""
        self._order = Sampled(self._order, new_sampler, self._all_values)
        return self

    def divided(self, parts: int, part: int) -> "Dataset":
        """One of `parts` parts of every batch, for a rank of a data-parallel run; to be called after `batch`.

        Row i of a batch belongs to part i mod `parts`, so their sizes differ by at most one row. Raises ConfigError
        when a batch has fewer rows than `parts`.
        """
        if self._order.batch_size is None:
            raise ConfigError("only batches can be divided", argument="parts", value=parts, repair="batch first")
        whole_number("part", part, 0, whole_number("parts", parts, 1) - 1)
        return self.with_order(lambda order: Divided(order, parts, part))

    def with_order(self, derive: Callable[[Order], Order]) -> "Dataset":
        """The dataset with another order of its rows, derived from the present one."""
        return self._derived(self._columns, derive(self._order), self._workers)

    # Change values, and how many items there are.

    def map(
        self,
        operations: Operation | Sequence[Operation],
        input_columns: Names | None = None,
        output_columns: Names | None = None,
        column_order: Names | None = None,
        num_parallel_workers: int | None = None,
        python_multiprocessing: bool = False,
        cache: None = None,
        callbacks: DSCallback | Sequence[DSCallback] | None = None,
    ) -> "Dataset":
        """Transform the values of columns (by default the first one) by transforms and functions, one after the other.

        A function receives the values of `input_columns` as arrays and returns those of `output_columns` (by default
        the same), a tuple for several. Threads call it, whatever `python_multiprocessing` says. `column_order` selects
        and orders all columns afterwards. `callbacks` observe the rows, which are computed in order then. Raises
        ConfigError for an unknown column and a transform that does not support its type; what a function raises is
        raised when its sample is read.
        """
        steps = operations_of(operations)
        refuse(cache=cache)
        events = None if callbacks is None else row_events(callbacks)
        flag({}, python_multiprocessing=python_multiprocessing)
        names = self.get_col_names()
        inputs = self._known(names[:1] if input_columns is None else input_columns, "input_columns")
        outputs = inputs if output_columns is None else [str(name) for name in as_list(output_columns)]
        after = replaced(names, inputs, outputs)
        _require_different(after, outputs)
        rows = self if self._order.batch_size is None else self._of(Items(self._columns, self._order), self._order)
        known = {column.name: column for column in rows._columns}
        made = mapped([known[name] for name in inputs], steps, outputs, events)
        columns = [made.get(name) or known[name] for name in after]
        result = rows._derived(columns, rows._order, self._max_workers(num_parallel_workers))
        if events is not None:
            result.row_events = (*self.row_events, events)
        return result if column_order is None else result.project(column_order)

    def filter(
        self, predicate: Operation, input_columns: Names | None = None, num_parallel_workers: int | None = None
    ) -> "Dataset":
        """The items for which `predicate` is true of the values of `input_columns` (None: of all columns).

        It is evaluated for all items here, and again in each later pass: if then another number of items satisfies it,
        reading that pass raises ConfigError.
        """
        _require_callable("predicate", predicate)
        names = self._known(self.get_col_names() if input_columns is None else input_columns, "input_columns")
        inputs = Items([self._columns[self._position(name, "input_columns")] for name in names], self._order)
        samples = filtered(Items(self._columns, self._order), inputs, predicate)
        return self._of(samples, self._order, self._max_workers(num_parallel_workers))

    def batch(
        self,
        batch_size: int | Operation,
        drop_remainder: bool = False,
        num_parallel_workers: int | None = None,
        per_batch_map: Operation | None = None,
        input_columns: Names | None = None,
        output_columns: Names | None = None,
        column_order: Names | None = None,
        pad_info: Mapping[str, Any] | None = None,
    ) -> "Dataset":
        """Group rows into batches; the remainder is dropped or is a short batch. A function `batch_size(BatchInfo)`
        returns the size of each batch.

        `pad_info`, {column: (shape, value)}, pads rows of different shapes; None in a shape is the longest row of the
        batch, and {} pads all columns with zeros. `per_batch_map(*lists of rows, BatchInfo)` returns a list of rows for
        each of `output_columns`. Raises ConfigError when there would be no batch.
        """
        flag({}, drop_remainder=drop_remainder)
        rows = self if self._order.batch_size is None else self._of(Items(self._columns, self._order), self._order)
        order = _batched(rows._order, batch_size, drop_remainder)
        if order.count == 0:
            allowed = f"1 to {rows._order.count}, the dataset's size, or drop_remainder=False"
            about = {"argument": "batch_size", "value": batch_size, "allowed": allowed}
            raise ConfigError("the dataset is smaller than one batch", **about)
        workers = self._max_workers(num_parallel_workers)
        result = rows._derived(rows._columns, order, workers)
        if per_batch_map is not None or pad_info is not None:
            padding = {} if pad_info is None else padding_of(pad_info, self.get_col_names())
            batch_map = None if per_batch_map is None else self._batch_map(per_batch_map, input_columns, output_columns)
            result = result._of(Batches(Items(rows._columns, order), padding, batch_map), order)
        return result if column_order is None else result.project(column_order)

    def bucket_batch_by_length(
        self,
        column_names: Names,
        bucket_boundaries: Sequence[int],
        bucket_batch_sizes: Sequence[int],
        element_length_function: Operation | None = None,
        pad_info: Mapping[str, Any] | None = None,
        pad_to_bucket_boundary: bool = False,
        drop_remainder: bool = False,
    ) -> "Dataset":
        """Batches of rows of similar length: bucket k has those below `bucket_boundaries[k]`, the last one the others.

        The length is that of the only column of `column_names`, or what `element_length_function` returns for them.
        Rows are padded as by `batch`. Raises ConfigError for arguments that do not fit.
        """
        flag({}, pad_to_bucket_boundary=pad_to_bucket_boundary, drop_remainder=drop_remainder)
        rows = Items(self._columns, self._order)
        padding = padding_of(pad_info or {}, self.get_col_names())
        names = self._known(column_names, "column_names")
        limits = bucket_arguments(bucket_boundaries, bucket_batch_sizes)
        bucket_of = limits.bucket_of(rows.names, names, element_length_function)
        pad = limits.padding(padding, pad_to_bucket_boundary)
        order = Batched(self._order, max(limits.sizes), False)
        return self._of(Buckets(rows, bucket_of, limits.sizes, pad, drop_remainder), order)

    def zip(self, datasets: "Dataset | Sequence[Dataset]") -> "Dataset":
        """The columns of this dataset and of others next to each other; the shortest one determines the number."""
        return zip((self, *(datasets if isinstance(datasets, list | tuple) else (datasets,))))

    def concat(self, datasets: "Dataset | Sequence[Dataset]") -> "Dataset":
        """The items of this dataset, then those of others. Raises ConfigError unless all have the same columns."""
        parts = [self, *(datasets if isinstance(datasets, list | tuple) else (datasets,))]
        _require_datasets(parts)
        if any(part.get_col_names() != self.get_col_names() for part in parts):
            found = "; ".join(", ".join(part.get_col_names()) for part in parts)
            raise ConfigError("concat needs datasets with the same columns", columns=found, repair="rename and project")
        result = self._of(Chain([Items(part._columns, part._order) for part in parts]), self._order)
        return result.observed_as(parts)

    def __add__(self, datasets: "Dataset") -> "Dataset":
        return self.concat(datasets)

    def flat_map(self, func: Operation) -> "Dataset":
        """The items of the datasets that `func` returns for each item, a list of its values, one after the other."""
        _require_callable("func", func)

        def expand(sample: Sample) -> Samples:
            made = func(list(sample))
            _require_datasets([made])
            return Items(made._columns, made._order)

        return self._of(FlatMapped(Items(self._columns, self._order), expand, described(func)), self._order)

    def apply(self, apply_func: "Callable[[Dataset], Dataset]") -> "Dataset":
        """The dataset that `apply_func` returns for this one."""
        _require_callable("apply_func", apply_func)
        made = apply_func(self)
        _require_datasets([made])
        return made

    # A training script that changes what a pipeline does next.

    def sync_wait(
        self, condition_name: str, num_batch: int = 1, callback: Callable[[Any], object] | None = None
    ) -> "Dataset":
        """Let `sync_update(condition_name, data=...)` call `callback(data)` before the items that are requested later.

        `num_batch` has no effect: nothing is prepared ahead. Raises ConfigError for a name that is in use.
        """
        whole_number("num_batch", num_batch, 1)
        made = self.with_order(lambda order: order)
        made.conditions = self.conditions.added(condition_name, callback)
        return made

    def sync_update(self, condition_name: str, num_batch: int | None = None, data: Any = None) -> None:
        """Call the function of a condition with `data`. Raises ConfigError for an unknown name."""
        if num_batch is not None:
            whole_number("num_batch", num_batch, 1)
        self.conditions.call(condition_name, data)

    def disable_sync(self) -> None:
        """Nothing: a pipeline never waits."""

    # Parts of MindSpore's API without effect.

    def device_que(
        self, prefetch_size: int | None = None, send_epoch_end: bool = True, create_data_info_queue: bool = False
    ) -> Self:
        """This dataset: `Model.train` sinks data by itself."""
        return self

    def to_device(self, send_epoch_end: bool = True, create_data_info_queue: bool = False) -> Self:
        """This dataset: `Model.train` sinks data by itself."""
        return self

    def send(self, num_epochs: int = -1) -> None:
        """Nothing: `Model.train` requests batches itself. So are `stop_send`, `continue_send` and `release`."""

    stop_send = continue_send = release = lambda self: None

    def close_pool(self) -> None:
        """Nothing: threads end with the iterators that started them."""

    def reset(self) -> None:
        """Nothing: every iterator starts with the first epoch."""

    # How one dataset becomes another.

    def described_as(self, other: "Dataset") -> Self:
        """This dataset, with the description of another one."""
        self._class_names, self.row_names, self._num_classes = other.class_names, other.row_names, other._num_classes
        self.preprocessing, self.conditions = other.preprocessing, other.conditions
        self.row_events, self._indexing = other.row_events, other._indexing
        return self

    def observed_as(self, parts: "Sequence[Dataset]") -> Self:
        """This dataset with the conditions and events of all datasets that it was made of.

        Raises ConfigError for one name of two conditions.
        """
        self.conditions = Conditions.of_all(part.conditions for part in parts)
        self.row_events = tuple(dict.fromkeys(events for part in parts for events in part.row_events))
        return self

    @property
    def _is_source(self) -> bool:
        return type(self) is not Dataset

    def _derived(self, columns: Sequence[Column], order: Order, workers: int | None) -> "Dataset":
        return Dataset(columns, order, workers).described_as(self)

    def _of(self, samples: Samples, order: Order, workers: int | None = None) -> "Dataset":
        """The dataset of samples that stand for the items of an order."""
        made = Dataset(columns_of(samples), SourceOrder(samples.count, order), workers or self._workers)
        made.described_as(self).row_names = None
        return made

    def _max_workers(self, requested: int | None) -> int | None:
        return max(filter(None, (worker_count(requested), self._workers)), default=None)

    def _known(self, given: Names, argument: str) -> list[str]:
        """Names of columns as a list. Raises ConfigError for an unknown one, and for one that occurs twice."""
        chosen = [str(name) for name in as_list(given)]
        for name in chosen:
            self._position(name, argument)
        if len(set(chosen)) != len(chosen) or not chosen:
            allowed = f"different ones of {', '.join(self.get_col_names())}"
            raise ConfigError("not different columns", argument=argument, value=chosen, allowed=allowed)
        return chosen

    def _position(self, name: str, argument: str) -> int:
        names = self.get_col_names()
        if name not in names:
            raise ConfigError("no such column", argument=argument, value=name, **known_names(name, names))
        return names.index(name)

    def _all_values(self, name: str) -> np.ndarray:
        """All rows of a column, for a sampler that needs them."""
        column = self._columns[self._position(name, "class_column")]
        return column.fetch(Visits.of(np.arange(len(column.source)), len(column.source)))

    def _batch_map(self, function: Operation, inputs: Names | None, outputs: Names | None) -> BatchMap:
        _require_callable("per_batch_map", function)
        names = self._known(self.get_col_names() if inputs is None else inputs, "input_columns")
        after = names if outputs is None else [str(name) for name in as_list(outputs)]
        _require_different(replaced(self.get_col_names(), names, after), after)
        return BatchMap(function, tuple(names), tuple(after))


def zip(datasets: Sequence[Dataset]) -> Dataset:
    """The columns of several datasets next to each other; the shortest one determines the number of items.

    Raises ConfigError for columns of the same name.
    """
    parts = list(datasets)
    _require_datasets(parts)
    names = [name for part in parts for name in part.get_col_names()]
    if len(set(names)) != len(names):
        raise ConfigError("columns of the same name", columns=", ".join(names), repair="rename some of them")
    samples = Zipped([Items(part._columns, part._order) for part in parts])
    result = parts[0]._of(samples, parts[0]._order)
    return result.observed_as(parts)


class Preprocessing(ABC):
    """How new files become the inputs of a trained network: fitted to the training split, stored as JSON with a run.

    `class_names` are those of the training's target, or None.
    """

    class_names: tuple[str, ...] | None = None

    @abstractmethod
    def read(self, paths: Sequence[Path]) -> Dataset:
        """The input columns of the samples in these files, in their order, unbatched; `row_names` says where each was.

        Raises DataError for a file that is missing, damaged, or without an input.
        """

    @abstractmethod
    def as_json(self) -> dict[str, Any]:
        """Values of plain JSON, from which `stored_preprocessing` creates an equal object."""


def _unchanged(array: np.ndarray) -> np.ndarray:
    return array


def _as_tensor(array: np.ndarray) -> Any:
    return array if array.dtype.kind in "USO" else Tensor(array)


def refuse(**arguments: object) -> None:
    """Raise ConfigError for an argument of MindSpore that is not supported, unless it is None."""
    for name, value in arguments.items():
        if value is not None:
            rows = {"argument": name, "value": type(value).__name__, "allowed": "None"}
            raise ConfigError("an argument of MindSpore that runner does not have", **rows, repair="leave it out")


def _batched(order: Order, batch_size: int | Operation, drop_remainder: bool) -> Order:
    if not callable(batch_size):
        return Batched(order, whole_number("batch_size", batch_size, 1), drop_remainder)

    def size_of(epoch: int, batch: int) -> int:
        return whole_number("batch_size", batch_size(BatchInfo(epoch, batch)), 1)

    return VariedBatches(order, size_of, drop_remainder)


def _require_different(names: Sequence[str], outputs: Sequence[str]) -> None:
    if len(set(names)) != len(names) or "" in names or not outputs:
        allowed = "names that no other column has"
        raise ConfigError("not names of columns", argument="output_columns", value=list(outputs), allowed=allowed)


def _require_callable(argument: str, value: object) -> None:
    if not callable(value):
        raise ConfigError("not a function", argument=argument, value=value, allowed="something callable")


def _require_datasets(parts: Sequence[object]) -> None:
    for part in parts:
        if not isinstance(part, Dataset):
            raise ConfigError("not a dataset", value=type(part).__name__, allowed="datasets of runner.dataset")
