"""The items of a dataset, in its order, as samples: what follows an operation that changes which items there are."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from runner.dataset.column import Column
from runner.dataset.order import NO_VISIT, Order
from runner.dataset.samples.map import described
from runner.dataset.samples.samples import PassTable, Sample, SampleColumn, Samples, Shared
from runner.dataset.visits import Visits
from runner.errors import ConfigError


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
        """The values of all parts."""
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
        """The item of the part that has it."""
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
