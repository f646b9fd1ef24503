"""Operations of the reference that choose and order the items and columns of a pipeline, without changing values."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Self

import numpy as np

from runner.dataset.column import Column
from runner.dataset.epochs import Iterated
from runner.dataset.order import DerivedOrder, Divided, Endless, Order, Part, Repeated, Shuffled
from runner.dataset.prefetch import worker_count
from runner.dataset.samplers import Sampled, each_row_once, with_child
from runner.dataset.samples.split import split_sizes
from runner.dataset.visits import Visits
from runner.errors import ConfigError, known_names
from runner.validation.arguments import as_list, flag, whole_number

Names = str | Sequence[str]


class Arrangement(Iterated):
    """A pipeline whose items and columns can be chosen and ordered; methods return new datasets, but for samplers."""

    @property
    def _is_source(self) -> bool:
        """Whether the rows come from files or values, not from another dataset."""
        raise NotImplementedError

    def project(self, columns: Names) -> Self:
        """Only these columns, in this order: inputs of the network, then the target.

        Raises ConfigError for an unknown column, for one that occurs twice, and for none.
        """
        names = [str(name) for name in as_list(columns)]
        if len(set(names)) != len(names) or not names:
            allowed = f"different ones of {', '.join(self.get_col_names())}"
            raise ConfigError("project needs different columns", argument="columns", value=names, allowed=allowed)
        chosen = [self._columns[self._position(name, "columns")] for name in names]
        return self._derived(chosen, self._order, self._workers)

    def rename(self, input_columns: Names, output_columns: Names) -> Self:
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

    def shuffle(self, buffer_size: int) -> Self:
        """Shuffle the rows (after `batch`: the batches) with a shuffle buffer, anew in every epoch.

        A buffer of at least the dataset's size makes all orders equally likely.
        """
        return self.with_order(lambda order: Shuffled(order, whole_number("buffer_size", buffer_size, 2)))

    def repeat(self, count: int | None = None) -> Self:
        """Make `count` passes in each epoch. None or -1: iterators never end; an epoch of a training is one pass."""
        if count is None or count == -1:
            return self.with_order(Endless)
        return self.with_order(lambda order: Repeated(order, whole_number("count", count, 1)))

    def skip(self, count: int) -> Self:
        """Without the first `count` items of every epoch. Raises ConfigError when none is left."""
        return self.with_order(lambda order: Part(order, whole_number("count", count, 0), order.count))

    def take(self, count: int = -1) -> Self:
        """The first `count` items of every epoch; -1: all."""
        return self if count == -1 else self.with_order(lambda order: Part(order, 0, whole_number("count", count, 1)))

    def split(self, sizes: Sequence[int | float], randomize: bool = True) -> list[Self]:
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

    def device_que(
        self, prefetch_size: int | None = None, send_epoch_end: bool = True, create_data_info_queue: bool = False
    ) -> Self:
        """This dataset: `Model.train` sinks data by itself."""
        return self

    def to_device(self, send_epoch_end: bool = True, create_data_info_queue: bool = False) -> Self:
        """This dataset: `Model.train` sinks data by itself."""
        return self

    def divided(self, parts: int, part: int) -> Self:
        """One of `parts` parts of every batch, for a rank of a data-parallel run; to be called after `batch`.

        The parts of a batch are disjoint and cover it; their sizes differ by at most one row. Raises ConfigError when a
        batch has fewer rows than `parts`.
        """
        if self._order.batch_size is None:
            raise ConfigError("only batches can be divided", argument="parts", value=parts, repair="batch first")
        whole_number("part", part, 0, whole_number("parts", parts, 1) - 1)
        return self.with_order(lambda order: Divided(order, parts, part))

    def with_order(self, derive: Callable[[Order], Order]) -> Self:
        """The dataset with another order of its rows, derived from the present one."""
        return self._derived(self._columns, derive(self._order), self._workers)

    def _derived(self, columns: Sequence[Column], order: Order, workers: int | None) -> Self:
        raise NotImplementedError

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
