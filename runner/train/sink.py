"""Data sinking: many training steps in one call to the device.

The dataset is stored on the device once, in its compact form. The input of a sink is a table of row numbers; batches
are gathered and scaled inside the graph, and the output is the losses. A dataset above `RESIDENT_BYTES`, one whose rows
are read when they are used (`RowSource`), or one whose transforms have no operators (random or user-defined ones), is
fed in stacked batches instead: `CHUNK_BYTES` of them are on the device while as many are fetched from the source (a
`numpy.memmap` may be larger than the memory).

`CallLength` limits a call to about a second, and with it the delay of a signal. The operands of effects are kept in
memory until the end of a call: `EFFECT_BYTES` at most.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from typing import Any

import numpy as np

from runner import compile as compiler, context, dtype, ops
from runner.core.graph import NO_GRAPHS, NO_VALUES, Graph, GraphObserver, ValueObserver
from runner.core.interpreter import current
from runner.core.values import Value
from runner.dataset.pipeline import Dataset
from runner.dataset.prefetch import prefetch_batches
from runner.dataset.transforms.transform import Transform
from runner.device import Device
from runner.errors import ConfigError, RunnerError
from runner.nn.cell import Cell
from runner.nn.optim.optimizer import scheduled_optimizers
from runner.nn.steps import DebugPrograms
from runner.ops.random import random_counter
from runner.types import TensorType

# The transforms of a dataset in operators: inside of sinks, and of exported networks.


def transformed(batch: Value, transforms: Sequence[Transform]) -> Value:
    """A traced batch [B, ...] after these transforms.

    Raises ConfigError, with the transform, when its `lower` fails or does not return what its `infer` says.
    """
    for transform in transforms:
        sample = batch.type.with_shape(*batch.shape[1:])
        expected = transform.infer(sample)
        try:
            batch = transform.lower(batch, ops)
        except RunnerError as error:
            raise error.add(transform=transform) from None
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise ConfigError("the operators of a transform fail", transform=transform, reason=reason) from error
        made = batch.type if isinstance(batch, Value) else type(batch).__name__
        if made != expected.with_shape(*batch.shape[:1], *expected.shape):
            repair = "infer and lower have to agree"
            rows = {"transform": transform, "made": made, "infer": expected, "repair": repair}
            raise ConfigError("the operators of a transform give another type", **rows)
    return batch


# The length of a call.

# How many steps of a sink one call to the device has.

CALL_SECONDS = 1.0


class CallLength:
    """The number of steps with which a call to the device takes about `CALL_SECONDS`.

    A signal is handled between two calls. Each call takes its length from the time of the last one with the same batch
    size, the first from the size of the graph.
    """

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}  # of one step, by batch size, as measured in the last call

    def record(self, size: int, steps: int, seconds: float) -> None:
        """A call of so many steps with this batch size took so many seconds."""
        self._seconds[size] = seconds / steps

    def steps(self, size: int, graph: Graph) -> int:
        """Steps of the next call with this batch size; `graph` is that of one step."""
        if size in self._seconds:
            return max(1, int(CALL_SECONDS / self._seconds[size]))
        return max(1, int(CALL_SECONDS / 2 / compiler.estimated_seconds(graph)))

    def is_short(self, steps: int) -> bool:
        """Whether so many steps take no longer than one call."""
        return steps * max(self._seconds.values(), default=0.0) <= CALL_SECONDS


# The sink, and how it gets the batches.

RESIDENT_BYTES = 2 << 30
CHUNK_BYTES = 64 << 20
EFFECT_BYTES = 256 << 20


class Sink:
    """Runs steps of a training cell with the batches of a dataset, epoch by epoch.

    `interactions` counts the calls to the device. A scheduled learning rate is an input beside the row numbers, with
    one value per step. An iteration selected by the observer `values` is the first of a new call.
    """

    def __init__(
        self,
        cell: Cell,
        device: Device,
        dataset: Dataset,
        observer: GraphObserver = NO_GRAPHS,
        values: ValueObserver = NO_VALUES,
    ) -> None:
        self.cell, self.device, self.dataset, self.observer, self.values = cell, device, dataset, observer, values
        self.programs: dict[int, compiler.SunkProgram] = {}
        self.interactions = 0
        columns = dataset.compact() if on_device(dataset) else ()
        self._columns = [column for column in columns if isinstance(column, np.ndarray)]
        self._on_device: list[Any] = []  # the columns, from the first call on
        self._scheduled = scheduled_optimizers(cell)
        self._length = CallLength()
        # MindSpore wraps a sunk step in one more cell.
        self.root = "Default/network-TrainOneStepCell" if context.reserves_class_names() else "Default/network"
        self._debug = DebugPrograms(cell, device, "train_step", self.root, values)
        self.rewind()

    def rewind(self, first_step: int = 0) -> None:
        """Continue with the batch of step `first_step`; schedules continue from their `global_step`, a parameter."""
        self._visits = self.dataset.visits_from(first_step)
        self._held: list[np.ndarray] = []
        self._ahead: tuple[np.ndarray, Future[list[np.ndarray]]] | None = None
        self._taken = self._made = first_step  # numbers of the next step to fetch, and to execute

    def __call__(self, count: int, leave: Callable[[], bool] = lambda: False) -> np.ndarray:
        """Losses of the next `count` steps.

        They are fewer when `leave` returns True between two calls to the device, and the rest would take longer than
        one call.
        """
        losses: list[np.ndarray] = []
        left = count
        with ThreadPoolExecutor(1, thread_name_prefix="sink") as fetcher:  # it starts a thread when it gets work
            while left and not (losses and leave() and not self._length.is_short(left)):
                visits = self._take(left)
                left -= len(visits)
                entries = self._entries(visits)
                if left and not self._columns:
                    following = self._take(left)
                    self._ahead = following, fetcher.submit(_stacked, self.dataset, following)
                losses.append(self._run(visits, entries))
        return np.concatenate(losses)

    def _run(self, visits: np.ndarray, entries: list[np.ndarray]) -> np.ndarray:
        """One call to the device: the losses of the steps with these visits, [steps]."""
        steps, size = visits.shape
        program = self._program(size)
        rates = [optimizer.next_rates(steps) for optimizer in self._scheduled]
        counts = [random_counter().of_steps(self._made, steps)] if program.restarted else []
        number = self.values.count(steps)
        if self.values.next_step(number) == number:
            self._observe(visits[0], rates, number)
        start = time.perf_counter()
        self._on_device = self._on_device or [program.session.put(column) for column in self._columns]
        losses = program([*entries, *self._on_device, *chain.from_iterable(rates), *counts])[0]
        self._length.record(size, steps, time.perf_counter() - start)
        for optimizer, next_rates in zip(self._scheduled, rates, strict=True):
            optimizer.advance(next_rates)
        self.interactions += 1
        self._made += steps
        return losses

    def _observe(self, visits: np.ndarray, rates: list[list[np.ndarray]], number: int) -> None:
        """Report the values of the next step, the iteration with this number, to the observer."""
        for optimizer, next_rates in zip(self._scheduled, rates, strict=True):
            optimizer.set_rates(next_rates, 0)
        random_counter().begin_step(self._made)
        self._debug(number, self.dataset.fetch(visits))

    def _take(self, limit: int) -> np.ndarray:
        """Visits of the next batches for one call: [steps, batch], all batches of equal size."""
        if self._ahead is not None:
            return self._ahead[0]
        first = self._held.pop() if self._held else next(self._visits)
        taken, most = [first], min(limit, self._most(len(first)))
        number = self.values.iterations + self._taken - self._made
        if (observed := self.values.next_step(number + 1)) is not None:
            most = min(most, observed - number)
        while len(taken) < most:
            visits = next(self._visits)
            if len(visits) != len(first):  # a short last batch has a separate program
                self._held.append(visits)
                break
            taken.append(visits)
        self._taken += len(taken)
        return np.stack(taken)

    def _most(self, size: int) -> int:
        """Maximal batches per call, by `CallLength`, `EFFECT_BYTES`, and `CHUNK_BYTES` for stacked batches."""
        most = self._length.steps(size, self._program(size).graph)
        effects = sum(x.type.nbytes for x in self._program(size).graph.effect_operands.values())
        if effects:
            most = min(most, EFFECT_BYTES // effects)
        if not self._columns:
            batch = sum(kind.with_shape(size, *kind.shape[1:]).nbytes for kind in self.dataset.column_types())
            most = min(most, CHUNK_BYTES // batch)
        return max(1, most)

    def _entries(self, visits: np.ndarray) -> list[np.ndarray]:
        """The inputs for these visits: their row numbers, or the batches themselves."""
        if self._columns:
            return [self.dataset.rows(visits)]
        if self._ahead is None:
            return _stacked(self.dataset, visits)
        (_, future), self._ahead = self._ahead, None
        return future.result()

    def _program(self, size: int) -> compiler.SunkProgram:
        if size not in self.programs:
            names = self.dataset.get_col_names()
            if self._columns:
                scanned = {"rows": TensorType(dtype.int64, (size,))}
                columns = {n: TensorType.of(c) for n, c in zip(names, self._columns, strict=True)}
                fetch = _fetch_rows(self.dataset)
            else:
                kinds = self.dataset.column_types()
                scanned = {n: t.with_shape(size, *t.shape[1:]) for n, t in zip(names, kinds, strict=True)}
                columns, fetch = {}, _identity
            stepped = [rate for optimizer in self._scheduled for rate in optimizer.schedules]
            counter = {random_counter().parameter}
            arguments = fetch, scanned, columns, stepped, counter, self.device, self.root, self.observer
            self.programs[size] = compiler.SunkProgram(self.cell.compute, *arguments)
        return self.programs[size]


def on_device(dataset: Dataset) -> bool:
    """Whether the dataset fits on the device, and its remaining transforms have operators."""
    columns = dataset.compact()
    in_memory = all(isinstance(column, np.ndarray) for column in columns)
    if not in_memory or sum(column.nbytes for column in columns) > RESIDENT_BYTES:
        return False
    left = [transform for transforms in dataset.remaining.values() for transform in transforms]
    return all(transform.has_operators for transform in left)


def _fetch_rows(dataset: Dataset) -> Callable[..., list[Value]]:
    def fetch(rows: Value, *columns: Value) -> list[Value]:
        chains = dataset.remaining.values()
        # Data have the types of the pipeline, independent of the precision of the network.
        with current().use_precision(None):
            pairs = zip(columns, chains, strict=True)
            return [transformed(ops.Gather(0)(column, rows), chain) for column, chain in pairs]

    return fetch


def _identity(*batch: Value) -> list[Value]:
    return list(batch)


def _stacked(dataset: Dataset, visits: np.ndarray) -> list[np.ndarray]:
    """The columns of several batches, [steps, batch, ...], fetched by the threads of the dataset."""
    if dataset.threads > 1:
        batches = prefetch_batches(dataset.fetch, visits, dataset.threads)
        return [np.stack(column) for column in zip(*batches, strict=True)]
    flat = dataset.fetch(visits.reshape(-1))
    return [column.reshape(*visits.shape, *column.shape[1:]) for column in flat]
