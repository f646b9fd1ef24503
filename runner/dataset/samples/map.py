"""Samples that operations compute from the values of columns: runner's transforms, or any functions."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from runner.dataset.column import Column
from runner.dataset.draws import Draws
from runner.dataset.row_events import RowEvents
from runner.dataset.samples.samples import Sample, SampleColumn, Samples, Shared, as_sample
from runner.dataset.transforms.sample_transform import SampleTransform, transform_one
from runner.dataset.transforms.transform import Transform
from runner.dataset.visits import Visits
from runner.errors import ConfigError

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
