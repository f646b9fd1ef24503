"""`Dataset`: the operations of the reference on pipelines. Source: `mindspore.dataset` r1.2.

Operations that keep rows apart (`map`, `shuffle`, `repeat`, `take`, the first `batch`) keep columns and order apart, so
that arrays are transformed at once and sinks can hold them. The others read the items of the dataset so far as samples
that are computed when they are used (`runner/dataset/samples/`): the same promises, but Python runs for each item.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, cast

from runner.dataset.arrangement import Names
from runner.dataset.column import Column
from runner.dataset.conditions import Synchronized
from runner.dataset.order import Batched, Order, SourceOrder, VariedBatches
from runner.dataset.row_events import DSCallback, row_events
from runner.dataset.samples.batch import Batches, BatchInfo, BatchMap, Buckets, padding_of, replaced
from runner.dataset.samples.buckets import bucket_arguments
from runner.dataset.samples.items import Chain, FlatMapped, Items, Zipped, columns_of, filtered
from runner.dataset.samples.map import described, mapped, operations_of
from runner.dataset.samples.samples import Sample, Samples
from runner.errors import ConfigError
from runner.validation.arguments import as_list, flag, whole_number

__all__ = ["Dataset", "zip"]

Operation = Callable[..., Any]


class Dataset(Synchronized):
    """An immutable data pipeline: `map`, `shuffle`, `batch`, `repeat` and the others return new ones.

    Columns have any names, and samples any shapes. For networks, the last column is the target and the others are the
    inputs, in order. Created by the subclasses in `runner.dataset`, such as `MnistDataset`. Source: `mindspore.dataset`
    r1.2. Datasets derived from one keep its description: `class_names`, `num_classes`, `row_names` and `preprocessing`.
    """

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

    def _batch_map(self, function: Operation, inputs: Names | None, outputs: Names | None) -> BatchMap:
        _require_callable("per_batch_map", function)
        names = self._known(self.get_col_names() if inputs is None else inputs, "input_columns")
        after = names if outputs is None else [str(name) for name in as_list(outputs)]
        _require_different(replaced(self.get_col_names(), names, after), after)
        return BatchMap(function, tuple(names), tuple(after))

    @property
    def _is_source(self) -> bool:
        return type(self) is not Dataset

    def _derived(self, columns: Sequence[Column], order: Order, workers: int | None) -> Self:
        return cast(Self, Dataset(columns, order, workers).described_as(self))

    def _of(self, samples: Samples, order: Order, workers: int | None = None) -> "Dataset":
        """The dataset of samples that stand for the items of an order."""
        made = Dataset(columns_of(samples), SourceOrder(samples.count, order), workers or self._workers)
        made.described_as(self).row_names = None
        return made


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


def refuse(**arguments: object) -> None:
    """Raise ConfigError for an argument of the reference that is not supported, unless it is None."""
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
