"""Batches ahead of their use, iterators over epochs, and what a script observes and changes while a pipeline runs.

Threads prepare a bounded number of batches, in order, while earlier ones are used. `RowEvents` calls the `DSCallback`s
of one map; `Conditions` has the functions that `sync_update` calls. A pipeline with either prepares nothing ahead, in
no other thread, so that rows are computed in order, when they are requested.
Source: `mindspore.dataset.callback` and `mindspore.dataset` r1.2.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from types import MappingProxyType
from typing import Any, Generic, Self, TypeVar

import numpy as np

from runner.errors import ConfigError, known_names
from runner.validation.arguments import as_list, flag, whole_number

Condition = Callable[[Any], object] | None

EVENTS = "ds_begin", "ds_epoch_begin", "ds_epoch_end", "ds_step_begin", "ds_step_end"


class DSRunContext:
    """Where a pipeline is: epoch, row of the epoch and row since the iteration began, from 1; 0 before the first."""

    def __init__(self, epoch: int = 0, step_in_epoch: int = 0, step: int = 0) -> None:
        self.cur_epoch_num, self.cur_step_num_in_epoch, self.cur_step_num = epoch, step_in_epoch, step


class DSCallback:
    """Base class of callbacks for `map(callbacks=...)`; a subclass overrides the events it needs.

    A step is a row of the map; `step_size` is the number of rows from one step event to the next.
    """

    def __init__(self, step_size: int = 1) -> None:
        self.step_size = whole_number("step_size", step_size, 1)

    def ds_begin(self, ds_run_context: DSRunContext) -> None:
        """Before the first epoch."""

    def ds_epoch_begin(self, ds_run_context: DSRunContext) -> None:
        """Before the first row of an epoch."""

    def ds_epoch_end(self, ds_run_context: DSRunContext) -> None:
        """After the last row of an epoch."""

    def ds_step_begin(self, ds_run_context: DSRunContext) -> None:
        """Before the operations of a row."""

    def ds_step_end(self, ds_run_context: DSRunContext) -> None:
        """After the operations of a row."""


class RowEvents:
    """The callbacks of one map. Rows that are computed outside of an iteration, to learn their types, are no steps."""

    def __init__(self, callbacks: Sequence[DSCallback]) -> None:
        self._callbacks = callbacks
        self._position = DSRunContext()
        self._is_active = False

    def epoch_begin(self, epoch: int) -> None:
        """An iteration enters an epoch, from 0; the first one begins anew."""
        if epoch == 0 or not self._is_active:
            self._position = DSRunContext()
            self._emit("ds_begin", self._callbacks)
        self._is_active = True
        self._position = DSRunContext(epoch + 1, 0, self._position.cur_step_num)
        self._emit("ds_epoch_begin", self._callbacks)

    def epoch_end(self) -> None:
        """All rows of the epoch are computed."""
        self._emit("ds_epoch_end", self._callbacks)

    def step_begin(self) -> None:
        """The inputs of the next row are there."""
        if self._is_active:
            at = self._position
            self._position = DSRunContext(at.cur_epoch_num, at.cur_step_num_in_epoch + 1, at.cur_step_num + 1)
            self._emit("ds_step_begin", self._due())

    def step_end(self) -> None:
        """The row is computed."""
        if self._is_active:
            self._emit("ds_step_end", self._due())

    def _due(self) -> list[DSCallback]:
        row = self._position.cur_step_num_in_epoch - 1
        return [callback for callback in self._callbacks if row % callback.step_size == 0]

    def _emit(self, event: str, callbacks: Iterable[DSCallback]) -> None:
        for callback in callbacks:
            getattr(callback, event)(self._position)


def row_events(given: Any) -> RowEvents:
    """The events for one callback or a list. Raises ConfigError for anything else, and for one without an event."""
    callbacks = as_list(given)
    for place, callback in enumerate(callbacks):
        if not isinstance(callback, DSCallback):
            rows = {"argument": f"callbacks[{place}]", "value": callback, "allowed": "a subclass of DSCallback"}
            raise ConfigError("not a callback of a dataset", **rows)
        if all(getattr(type(callback), event) is getattr(DSCallback, event) for event in EVENTS):
            rows = {"callback": type(callback).__name__, "allowed": ", ".join(EVENTS)}
            raise ConfigError("a callback that overrides no event", **rows)
    return RowEvents([callback for callback in callbacks if isinstance(callback, DSCallback)])


class Conditions:
    """The functions of a pipeline's conditions, by name; None does nothing.

    Where MindSpore blocks a pipeline until the script has reported back, here an item is computed when it is
    requested, so after every `sync_update` that preceded the request.
    """

    def __init__(self, functions: Mapping[str, Condition] = MappingProxyType({})) -> None:
        self._functions = functions

    def __bool__(self) -> bool:
        return bool(self._functions)

    @classmethod
    def of_all(cls, parts: "Iterable[Conditions]") -> Self:
        """Those of several pipelines. Raises ConfigError for one name of two functions."""
        found: dict[str, Condition] = {}
        for part in parts:
            for name, function in part._functions.items():
                if found.setdefault(name, function) is not function:
                    raise _in_use(name)
        return cls(found)

    def added(self, name: str, function: Condition) -> "Conditions":
        """These and another one. Raises ConfigError for what is no function, and for a name that is in use."""
        if function is not None and not callable(function):
            raise ConfigError("not a function", argument="callback", value=function, allowed="something callable")
        if name in self._functions:
            raise _in_use(name)
        return Conditions({**self._functions, name: function})

    def call(self, name: str, data: Any) -> None:
        """Call the function of a condition. Raises ConfigError for an unknown name."""
        if name not in self._functions:
            rows = known_names(name, self._functions)
            raise ConfigError("no such condition", argument="condition_name", value=name, **rows)
        function = self._functions[name]
        if function is not None:
            function(data)


def _in_use(name: str) -> ConfigError:
    return ConfigError("the name of a condition is in use", argument="condition_name", value=name)


# Batches ahead of their use: threads prepare a bounded number of them, in order, while earlier ones are used.
#
# Most of the work on a batch is numpy's, which releases the GIL. Handing a batch from one thread to another costs about
# 0.1 ms, half of what preparing `MIN_THREADED_VALUES` values costs (`benchmarks/data.py`). So smaller batches, such as
# LeNet's 32 digits with one multiplication each, are prepared by the caller, and CIFAR-10's augmented ones by a thread.
# At the end is `EpochIterator`, with which scripts iterate over epochs.

T = TypeVar("T")

MAX_WORKERS = 64
AHEAD_PER_WORKER = 2
MIN_THREADED_VALUES = 1 << 18  # values that are read or computed for a batch


_default: list[int] = []


def set_default_workers(count: int) -> None:
    """The number of threads of pipelines that do not set one."""
    _default[:] = [count]


def default_workers() -> int | None:
    """The number that was set, if any."""
    return _default[0] if _default else None


def worker_count(num_parallel_workers: object) -> int | None:
    """The checked argument: 1 to 64, or None for runner's own choice. Raises ConfigError."""
    if num_parallel_workers is None:
        return None
    return whole_number("num_parallel_workers", num_parallel_workers, 1, MAX_WORKERS)


def threads_for(workers: int | None, values: int) -> int:
    """Number of threads for batches of so many values; 0: the caller prepares them.

    More than one worker is the user's decision; with one or None, the amount of work decides.
    """
    requested = workers or default_workers() or 1
    return requested if requested > 1 or values > MIN_THREADED_VALUES else 0


def prefetch_batches(
    fetch: Callable[[np.ndarray], T],
    batches: Iterable[np.ndarray],
    threads: int,
    queue_observer: Callable[[int], object] | None = None,
) -> Generator[T, None, None]:
    """`fetch` of every batch, in order; with threads, up to `2 * threads` are prepared while one is used.

    Exceptions of `fetch` are raised here, at the batch they belong to. The threads end when the generator is exhausted,
    fails or is closed; closing waits for the batches in progress and drops the others. `queue_observer` is called with
    the number of finished batches in the queue whenever one is requested.
    """
    if threads == 0:
        yield from map(fetch, batches)
        return
    pool = ThreadPoolExecutor(threads, thread_name_prefix="runner-dataset")
    try:
        left = iter(batches)
        ahead: deque[Future[T]] = deque(pool.submit(fetch, rows) for rows in islice(left, AHEAD_PER_WORKER * threads))
        while ahead:
            if queue_observer is not None:
                queue_observer(sum(future.done() for future in ahead))
            batch = ahead.popleft().result()
            ahead.extend(pool.submit(fetch, rows) for rows in islice(left, 1))
            yield batch
    finally:
        pool.shutdown(cancel_futures=True)


# Iterators over epochs.


def epoch_limit(num_epochs: int, output_numpy: bool) -> int:
    """The number of epochs of an iterator, -1 for no limit. Raises ConfigError for invalid arguments."""
    flag({}, output_numpy=output_numpy)
    return -1 if num_epochs == -1 else whole_number("num_epochs", num_epochs, 1)


class EpochIterator(Generic[T]):
    """Each `for` loop over it iterates over the next epoch, up to `num_epochs`; -1 is no limit.

    After a `break`, the next loop continues the same epoch, as in MindSpore.
    """

    def __init__(self, start: Callable[[int], Iterator[T]], num_epochs: int) -> None:
        self._start = start
        self._num_epochs = num_epochs
        self._items: Iterator[T] | None = None
        self.epoch = 0

    def __iter__(self) -> Self:
        return self

    def stop(self) -> None:
        """End the iteration: threads that prepare items end, and later loops have no items."""
        items, self._items = self._items, None
        if isinstance(items, Generator):
            items.close()
        self.epoch = self._num_epochs = max(self.epoch, self._num_epochs)

    def __next__(self) -> T:
        if self._items is None:
            if self.epoch == self._num_epochs:
                raise StopIteration
            self._items = self._start(self.epoch)
        try:
            return next(self._items)
        except StopIteration:
            self._items = None
            self.epoch += 1
            raise
